"""``freshband train``: train a model over channels nobody can trust."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshband import federated
from freshband._default import DEFAULT_POLICY
from freshband._plugins import made_with
from freshband.cli import _options, _training
from freshband.cli._formats import print_result
from freshband.cli._live import Watch
from freshband.cli._options import Format
from freshband.cli._playing import PlayedRun, interruptible
from freshband.cli._settings import check_outputs, given_options, tell_notes
from freshband.cli._tables import open_console, print_written
from freshband.errors import ParameterError

if TYPE_CHECKING:
    import xarray as xr

    from freshband.federated.settings import Training

_INTERRUPTED = 130
_FIELDS = (
    "dataset", "partition", "model", "channels", "policy", "matching", "algorithm", "clients",
    "rounds", "seed", "device",
)  # fmt: skip
_WITH_RESUME = {"resume", "output", "plot", "quiet", "tensorboard", "log"}
_OPTIONS = {"output": "--format", "settings": "--set"}


def train(
    context: typer.Context,
    dataset: _options.Dataset = "digits",
    partition: _options.Partition = "dirichlet",
    model: _options.Model = None,
    channels: _options.Channels = "fig3-piecewise",
    policy: Annotated[
        str,
        _options.option(
            _options.AIR,
            "Which channels are used, scheduler[:preset][+token...]; see 'freshband list "
            "schedulers'.",
            "--policy",
            "--scheduler",
        ),
    ] = DEFAULT_POLICY,
    matching: Annotated[
        str | None,
        _options.option(
            _options.AIR,
            "Who gets which channel: age, priority (by contribution and age), rotate, random, "
            "fixed.",
            show_default="what suits the policy",
        ),
    ] = None,
    algorithm: Annotated[
        str,
        _options.option(
            _options.RUN,
            "What the server does with updates, rule[+wrapper...], such as fedbuff or "
            "renorm+average; see 'freshband list algorithms'.",
        ),
    ] = "renorm",
    clients: _options.Clients = 10,
    rounds: _options.Rounds = 60,
    seed: _options.Seed = 0,
    out: Annotated[
        Path | None,
        _options.option(
            _options.KEPT,
            "Folder for result.nc and checkpoints; without it nothing is saved.",
            metavar="DIR",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        _options.option(
            _options.KEPT, "Resume the run in this folder where it stopped.", metavar="DIR"
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        _options.option(
            _options.RUN,
            "Any other setting, repeatable: client_lr=0.1, ack_delay=5, or an option of a thing by "
            "its table: channels, policy, matching, fleet, dataset, partition, model, loss, "
            "optimiser, metric, algorithm, valuation, such as partition.alpha=0.1; 'freshband list "
            "training' lists all.",
            "--set",
            metavar="[TABLE.]KEY=VALUE",
        ),
    ] = None,
    config: _options.Config = None,
    like: _options.Like = None,
    device: _options.Device = "auto",
    data_dir: _options.DataDir = None,
    checkpoint_every: Annotated[
        int, _options.count("Rounds between two checkpoints.", _options.KEPT)
    ] = 10,
    keep: Annotated[int, _options.count("Number of checkpoints kept.", _options.KEPT)] = 2,
    output: _options.Output = Format.table,
    plot: Annotated[
        Path | None,
        _options.option(
            _options.KEPT, "Draw accuracy, ages, variance and participation (png, pdf, svg)."
        ),
    ] = None,
    tensorboard: Annotated[
        bool | None,
        _options.option(
            _options.KEPT,
            "Write scalars to DIR/tensorboard, for 'tensorboard --logdir DIR'.",
            "--tensorboard/--no-tensorboard",
            show_default="no",
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        _options.option(
            _options.KEPT,
            "Tell a logger of every round, repeatable: tensorboard, mlflow, wandb (offline unless "
            "WANDB_MODE says otherwise), or one of your own; see 'freshband list loggers'.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress at all.")] = False,
) -> None:
    """Train a model whose updates travel over unreliable channels.

    Each round the clients whose update got through receive the new model and
    train on their own samples; then everybody sends over the channel that the
    scheduler assigned. Ctrl-C or SIGTERM ends the round, saves, and prints how
    to resume; a second one stops at once.

    [bold]Examples[/bold]

      freshband train --policy bayes --matching priority --out run

      freshband train --resume run

      freshband train --set partition.alpha=0.1 --set client_lr=0.1 --plot run.png

      freshband train --clients 20 --set channels.n_channels=5 --set ack_delay=3

      freshband train --config mine.toml --rounds 250 --device cuda --out mine
    """
    _training.need_extra()
    from freshband.federated.loggers.base import open_loggers

    given = given_options(context)
    check_outputs(None, plot)
    open_loggers(log or [])  # before a folder is made
    if resume is not None:
        _refuse_beside_resume(given - _WITH_RESUME)
        run = federated.resume_run(resume)
        job = PlayedRun(run.federation, run)
    else:
        chosen, kept = _choose(context.params, given)
        if out is None and (tensorboard or given & {"checkpoint_every", "keep"}):
            raise ParameterError("checkpoints and TensorBoard need a folder: give --out DIR")
        with made_with(like, kept):
            if out is None:
                job = PlayedRun(federated.Federation(chosen))
            else:
                run = federated.start_run(chosen, out, checkpoint_every=checkpoint_every, keep=keep)
                job = PlayedRun(run.federation, run)
    told = _tell_notes(job, 0)
    try:
        with job.federation:
            _play(job, quiet=quiet, loggers=_loggers(job, tensorboard, log or []))
            _tell_notes(job, told)
            _report(job, output, plot)
    except KeyboardInterrupt:
        _say_how_to_resume(job)
        raise
    if job.interrupted:
        _say_how_to_resume(job)
        raise typer.Exit(_INTERRUPTED)


def _tell_notes(job: PlayedRun, told: int) -> int:
    """Print the run's notes from the given one on; return how many there are."""
    notes = [] if job.run is None else job.run.notes
    tell_notes(notes[told:])
    return len(notes)


def _choose(params: dict[str, Any], given: set[str]) -> tuple[Training, dict[str, Any]]:
    """Put the settings together: a result's, then a file's, then the command line's.

    Also return the attributes of the result, which name the files imported when it was made.
    """
    layers = [] if params["config"] is None else [_training.read_file(params["config"])]
    layers.append(_training.read_line(params, given, _FIELDS))
    base: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    if params["like"] is not None:
        from freshband.federated.result import _read_settings, load_training

        saved, kept = _training.read_like(params["like"], load_training, _read_settings)
        tell_notes(f"left out: {why}" for why in saved.unused().values())
        base = saved.model_dump()
    return _training.merge_layers(base, layers), kept


def _refuse_beside_resume(others: set[str]) -> None:
    for name in sorted(others):
        option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
        raise ParameterError(f"--resume uses the settings of its folder: leave out {option}")


def _play(job: PlayedRun, *, quiet: bool, loggers: list[str]) -> None:
    from freshband.federated.loggers import logging_to

    with ExitStack() as stack:
        watch = stack.enter_context(Watch(job.settings, len(job.records), job.device, quiet=quiet))
        folder = None if job.run is None else job.run.out
        tell = stack.enter_context(logging_to(loggers, job.settings, folder, done=len(job.records)))

        def stop() -> None:
            job.stop()
            watch.say("ending the round; Ctrl-C again stops at once")

        stack.enter_context(interruptible(stop))
        for record in job:
            watch.update(record)
            tell(record)
    if job.interrupted and len(job.records) == job.settings.rounds:
        job.interrupted = False  # it was the last round


def _say_how_to_resume(job: PlayedRun) -> None:
    if job.run is None:
        told, how = len(job.records), "nothing is saved without --out"
    else:
        told = max(job.run.saved_round, 0)
        how = f"resume with: freshband train --resume {shlex.quote(str(job.run.out))}"
    typer.echo(f"stopped after round {told} of {job.settings.rounds}; {how}", err=True)


def _loggers(job: PlayedRun, tensorboard: bool | None, named: list[str]) -> list[str]:
    """Return the loggers by name; TensorBoard goes on where it began."""
    folder = None if job.run is None else job.run.out / "tensorboard"
    goes_on = tensorboard is None and folder is not None and folder.exists()
    if (tensorboard or goes_on) and "tensorboard" not in named:
        return [*named, "tensorboard"]
    return named


# ----------------------------------------------------------------------------------------- report


def _report(job: PlayedRun, output: Format, plot: Path | None) -> None:
    from freshband.federated.result import collect_records, summarise_training

    if not job.records or (job.interrupted and output is not Format.table):
        return
    result = collect_records(job.records, job.settings, device=job.device)
    written = []
    if job.run is not None and job.run.wrote_result:
        written = [job.run.out / "model.safetensors", job.run.result_path]
    if plot is not None:
        from freshband.reporting.curves import save_figure
        from freshband.reporting.training import draw_training

        save_figure(draw_training(result), plot)
        written.append(plot)
    if not print_result(output, "train", summarise_training(result)):
        _print_summary(result, written)


def _print_summary(result: xr.Dataset, written: list[Path]) -> None:
    from rich.table import Table

    from freshband.federated.result import summarise_training

    found = summarise_training(result)
    console = open_console()
    console.print(
        f"{found['dataset']} over {found['channels']}, [bold]{found['policy']}[/bold]: "
        f"{found['clients']} clients, {found['rounds']} rounds, seed {found['seed']}",
        highlight=False,
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, text in _rows(found).items():
        table.add_row(name, text)
    console.print(table)
    print_written(written)


def _rows(found: dict[str, Any]) -> dict[str, str]:
    from freshband.reporting._numbers import with_digits as number

    heard = sum(found["participation"]) / len(found["participation"])
    best = f"best {number(found['best_accuracy'], 3)} in round {found['best_round']}"
    return {
        "accuracy": f"[bold]{number(found['final_accuracy'], 3)}[/bold]  {best}",
        "loss": number(found["final_loss"], 3),
        "spread over clients": f"{number(found['accuracy_spread'], 3)} of accuracy",
        "age": f"mean {found['mean_age']:.2f}, oldest {found['max_age']:.0f}, cumulative variance "
        f"{found['cumulative_variance']:,.1f}",
        "participation": f"{heard:.0%} of rounds, Jain {found['jain']:.3f}, staleness "
        f"{number(found['mean_staleness'], 2)}",
        "changes noticed": "no detector" if found["alarms"] is None else str(found["alarms"]),
        "updates refused": f"{found['refused']}, {found['too_long']} of them for their length"
        + _kept_out(found["kept_out"]),
        "sent": f"{found['bytes_up'] / 1e6:,.1f} MB up, {found['bytes_down'] / 1e6:,.1f} MB down",
        "time": f"{found['seconds']:.1f} s, {found['rounds_per_second']:.1f} rounds/s on "
        f"{found['device']}",
    }


def _kept_out(clients: list[int]) -> str:
    """Return what to do about clients whose latest updates were all refused, if there are any."""
    if not clients:
        return ""
    told = ", ".join(map(str, clients[:10])) + (", …" if len(clients) > 10 else "")
    return f"; the latest of clients {told} all were: if they are honest, set length_limit to 0"
