"""``freshband reproduce``: experiments, one command each."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperArgument

from freshband.cli._folding import Command
from freshband.cli._formats import print_result
from freshband.cli._options import Address, Backend, Format, Output, Quiet, Where
from freshband.cli._tables import make_table, open_console
from freshband.cli._training import need_extra
from freshband.errors import ParameterError, UnknownNameError, nearest, shown

if TYPE_CHECKING:
    import click

    from freshband.experiments.base import Experiment, Machine

_OTHERS = (
    "all: every experiment; choice: settings of CIFAR that the paper leaves open; page: write "
    "FOLDER.md from the files in FOLDER, which --out names"
)


class _Size(StrEnum):
    quick = "quick"
    full = "full"


class ReproduceCommand(Command):
    """The command, whose help names the experiments that are registered."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help page."""
        from freshband.experiments.base import _experiment_names, registry

        told = [f"{name}: {registry[name].title}" for name in _experiment_names()]
        name = self.params[0]
        assert isinstance(name, TyperArgument)
        name.help = "; ".join([*told, _OTHERS]) + "."
        super().format_help(ctx, formatter)


def _names(incomplete: str) -> list[str]:
    """Return the names that the command takes and that begin with a text."""
    from freshband.experiments.base import _COMMANDS, _experiment_names

    return [name for name in (*_experiment_names(), *_COMMANDS) if name.startswith(incomplete)]


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help=f"An experiment, which 'freshband list experiments' lists; {_OTHERS}.",
            show_default=False,
            autocompletion=_names,
        ),
    ],
    scale: Annotated[
        _Size,
        typer.Option(
            help="quick: minutes on any machine, digits in place of CIFAR; full: the paper's "
            "setting, for which training needs a GPU."
        ),
    ] = _Size.quick,
    out: Annotated[Path, typer.Option(help="Folder for results, pictures and verdicts.")] = Path(
        "reproduction"
    ),
    dataset: Annotated[
        str | None,
        typer.Option(
            show_default="all",
            help="Train on this data set alone, such as cifar10: 'freshband list experiments' has "
            "those of each experiment. Files of verdicts and pictures carry its name.",
        ),
    ] = None,
    air: Annotated[
        str | None,
        typer.Option(
            show_default="all",
            help="Train on this air (channel environment) alone, such as piecewise; with --dataset "
            "on one panel of a figure.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to train: auto (a GPU if there is one), cpu, cuda.")
    ] = "auto",
    precision: Annotated[
        str, typer.Option(help="Precision of products on a GPU: auto (tf32), float32, tf32, bf16.")
    ] = "auto",
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with cifar10/ and cifar100/, the official binary files; by default they "
            "are downloaded."
        ),
    ] = None,
    pieces: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="all",
            help="Stop after computing this number of pieces; call again to continue.",
        ),
    ] = None,
    backend: Backend = Where.threads,
    address: Address = None,
    output: Output = Format.table,
    quiet: Quiet = False,
) -> None:
    """Reproduce the paper's figures: results, pictures, and a verdict on every statement.

    What is computed is kept piece by piece, so an interrupted command can be resumed: call it
    again. Experiments share runs where they train the same. An experiment of your own is one file:
    freshband --import FILE.py reproduce NAME.

    [bold]Examples[/bold]

      freshband reproduce fig2a --out reproduction

      freshband reproduce all --scale quick

      freshband reproduce fig3 --scale full --dataset cifar10 --device cuda --pieces 4
    """
    from freshband.experiments.base import Machine, _experiment_names, _read_rows, registry

    if name not in _names(""):
        raise UnknownNameError(f"unknown experiment {shown(name)}; {nearest(name, _names(''))}")
    for option, value in {"--dataset": dataset, "--air": air}.items():
        if value is not None and name in ("choice", "page"):
            raise ParameterError(f"{option} limits experiments, and {name!r} is none")
    machine = Machine(device, precision, data_dir, backend.value, address, progress=not quiet)
    if name == "page":
        _write_page(out)
        return
    chosen = _experiment_names() if name == "all" else [name]
    if name == "choice" or any("train" in registry[each].extras for each in chosen):
        need_extra()
    if name == "choice":
        choose(out, machine, pieces, output)
        return
    found: dict[str, Any] = {}
    for experiment in _sized(chosen, scale, dataset or "", air or ""):
        pieces = _compute(experiment, out, machine, pieces)
        if pieces == 0:
            typer.echo("stopped after this number of pieces; call again to continue", err=True)
            return
        found[experiment.name] = _read_rows(out / experiment.verdicts)
    if not print_result(output, "reproduce", found):
        _print_verdicts(found, out)


def _sized(names: list[str], scale: _Size, dataset: str, air: str) -> list[Experiment]:
    """Return experiments at a scale, limited; of several, those without the limit are left out."""
    from freshband.experiments.base import registry

    found = [registry[name].at(scale.value) for name in names]
    for limit, known in ((dataset, "datasets"), (air, "airs")):
        if limit:
            found = [each for each in found if limit in getattr(each, known)] or found
    return [each.on(dataset, air) for each in found]


def _compute(
    experiment: Experiment, folder: Path, machine: Machine, pieces: int | None
) -> int | None:
    """Compute and draw an experiment; return how many pieces may still be computed."""
    from freshband.experiments.base import load_pieces, reproduce
    from freshband.reporting._figures import draw_picture
    from freshband.reporting.curves import save_figure

    for piece, known in reproduce(experiment, folder, machine, pieces):
        if machine.progress:
            typer.echo(f"{'kept' if known else 'made'} {piece.key}", err=True)
        pieces = pieces - 1 if pieces is not None and not known else pieces
        if pieces == 0:
            return 0
    results = load_pieces(experiment, folder)
    for shown_as, picture in experiment.figures.items():
        drawn = draw_picture(picture(experiment, results))
        save_figure(drawn, folder / experiment.file(shown_as, ".png"))
    return pieces


def _write_page(folder: Path) -> None:
    from freshband._files import write_whole
    from freshband.reporting._reproduction import reproduction_page

    path = folder.with_name(f"{folder.resolve().name}.md")
    write_whole(path, reproduction_page(folder).encode())
    typer.echo(f"wrote {path}")


def choose(
    folder: Path, machine: Machine, trials: int | None, output: Format, **search: Any
) -> None:
    """Try settings that were not tried yet, up to a number of trials, and print the best."""
    from freshband.experiments._choice import best_of, read_trials, try_all

    for trial in islice(try_all(folder, machine, **search), trials):
        typer.echo(_listed(trial), err=True)
    known = read_trials(folder)
    places = dict.fromkeys((trial["dataset"], trial["air"]) for trial in known)
    found = {", ".join(place): best_of(known, place) for place in places}
    if not print_result(output, "choice", found):
        undecided = "not decided yet"
        for place, best in found.items():
            typer.echo(f"{place}: {_listed(best) or undecided}")


def _listed(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _print_verdicts(found: dict[str, Any], out: Path) -> None:
    from freshband.reporting._reproduction import written_measure, written_p

    console = open_console()
    for name, claims in found.items():
        rows = []
        for claim in claims:
            colour = "red" if "not" in claim["verdict"].split() else "green"
            verdict, measured = f"[{colour}]{claim['verdict']}[/]", written_measure(claim)
            p = written_p(claim["p"])
            rows.append((claim["what"], claim["paper"], measured, p, verdict, claim["why"]))
        head = ("statement", "paper", "measured", "p", "verdict", "why")
        console.print(make_table(name, head, rows))
    console.print(f"results, pictures and verdicts are in {out}", highlight=False)
