"""``freshband compare``: train with several policies on the same channels and data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from freshband._plugins import made_with
from freshband.cli import _options, _training
from freshband.cli._formats import print_result
from freshband.cli._options import Format, Where
from freshband.cli._playing import keeping
from freshband.cli._settings import check_options, check_outputs, given_options
from freshband.cli._tables import print_policies, print_written
from freshband.errors import ParameterError

_FIELDS = ("dataset", "partition", "model", "channels", "clients", "rounds", "seed", "device")
# Columns that a narrow terminal leaves out, in this order.
_SPARE = ("Jain", "loss", "mean accuracy", "mean age", "spread", "cum. variance")


def compare(
    context: typer.Context,
    policies: Annotated[
        str,
        _options.option(
            _options.AIR,
            "Comma-separated policies, each scheduler[:preset][+token...]\\[@algorithm], the "
            "algorithm being what the server does with updates, such as fedbuff or fixed+average; "
            "see 'freshband list algorithms'. LABEL=scheduler{key=value,...} is one with settings "
            "of its own. The others are compared with the first.",
        ),
    ] = "random,bayes,bayes+priority",
    dataset: _options.Dataset = "digits",
    partition: _options.Partition = "dirichlet",
    model: _options.Model = None,
    channels: _options.Channels = "fig3-piecewise",
    clients: _options.Clients = 10,
    rounds: _options.Rounds = 60,
    runs: Annotated[
        int,
        _options.count(
            "Independent runs; in each, policies share air, data, weights and batches.",
            _options.RUN,
        ),
    ] = 3,
    seed: _options.Seed = 0,
    settings: Annotated[
        list[str] | None,
        _options.option(
            _options.RUN,
            "Any other setting, repeatable: client_lr=0.1, ack_delay=5; an option of a thing by "
            "its table (channels, fleet, dataset, partition, model, algorithm, valuation), such as "
            "partition.alpha=0.1; or of a policy, such as glr-cucb.delta=0.01.",
            "--set",
            metavar="[TABLE.]KEY=VALUE",
        ),
    ] = None,
    config: _options.Config = None,
    like: _options.Like = None,
    device: _options.Device = "auto",
    data_dir: _options.DataDir = None,
    output: _options.Output = Format.table,
    out: Annotated[
        Path | None,
        _options.option(
            _options.KEPT, "Save all rounds of all runs, with their settings, as NetCDF."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        _options.option(
            _options.KEPT, "Draw regret, accuracy and fairness on one page (png, pdf, svg)."
        ),
    ] = None,
    backend: _options.Backend = Where.threads,
    address: _options.Address = None,
    gpus: Annotated[
        float, typer.Option(min=0, help="Share of a GPU that each run takes on Ray, such as 0.25.")
    ] = 0.0,
    quiet: _options.Quiet = False,
) -> None:
    """Train with several policies on the same channels and data, side by side.

    In every run the policies meet the same channels, their clients hold the same
    samples and models begin with the same weights: differences to the first
    policy are paired.

    [bold]Examples[/bold]

      freshband compare --policies random,bayes,bayes+priority --plot it.png

      freshband compare --policies glr-cucb,m-exp3 --channels jammer --out it.nc

      freshband compare --policies glr-cucb,glr-cucb@fedbuff --set client_lr=0.1
    """
    _training.need_extra()
    from freshband.federated.comparison import compare as train_all
    from freshband.federated.comparison import save_comparison, summarise_comparison

    check_outputs(out, plot)
    request, facts = _request(context.params, given_options(context))
    where: dict[str, Any] = {"backend": backend.value, "address": address, "gpus": gpus}
    with made_with(like, facts), keeping(out):
        result = train_all(**request, **where, progress=not quiet, keep=out)
        if out is not None:
            save_comparison(result, out)
    if plot is not None:
        from freshband.reporting.curves import save_figure
        from freshband.reporting.training import draw_comparison

        save_figure(draw_comparison(result), plot)
    summary = summarise_comparison(result)
    columns = _columns(summary["policies"])
    if not print_result(output, "compare", summary, columns):
        print_policies(_title(summary), _caption(summary), columns, _SPARE)
        print_written([out, plot])


def _request(params: dict[str, Any], given: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Put together what is compared: a saved comparison, then a file, then the command line.

    Also return the attributes of the saved one, which name the files imported when it was made.
    """
    from freshband._policy import label_of, split_policies
    from freshband.federated._rules import unused_by_all

    layers = [] if params["config"] is None else [_training.read_file(params["config"])]
    base: dict[str, Any] = {}
    options: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    chosen = {"policies": params["policies"], "runs": params["runs"]}
    if params["like"] is not None:
        from freshband.federated.comparison import _read_comparison, load_comparison

        saved, facts = _training.read_like(params["like"], load_comparison, _read_comparison)
        if "own_algorithm" in facts:
            raise ParameterError(
                f"{params['like']} was made with {facts['own_algorithm']}, given as an object: "
                "repeat it from Python, or register the rule and name it behind @"
            )
        if "own" in facts:
            raise ParameterError(
                f"{params['like']} was made with things given as objects, {facts['own']}: repeat "
                "it from Python, or register them and give their names"
            )
        base, options = saved["settings"].model_dump(), saved["policy_options"]
        chosen = {name: saved[name] for name in chosen}
    for layer in layers:
        for name in ("policy", "matching"):
            if name in layer.fields or name in layer.options:
                raise ParameterError(f"{layer.source} names a {name}: compare takes policies")
        chosen |= {name: layer.fields.pop(name) for name in chosen if name in layer.fields}
    chosen |= {name: params[name] for name in chosen if name in given}
    texts = chosen["policies"]
    texts = split_policies(texts) if isinstance(texts, str) else texts
    named = {label_of(str(text)): str(text).strip() for text in texts}
    names = list(named)
    layer = _training.read_line(params, given, _FIELDS, names)
    own = {name: layer.options.pop(name) for name in names if name in layer.options}
    kept = {name: values for name, values in options.items() if name in names}
    together = {name: {**kept.get(name, {}), **own.get(name, {})} for name in own | kept}
    check_options(own, list(named.values()), together)
    with made_with(params["like"], facts):
        settings = _training.merge_layers(
            base,
            [*layers, layer],
            lambda draft: unused_by_all(draft, named, together),
        )
    return {**chosen, "settings": settings, "policy_options": together}, facts


# ------------------------------------------------------------------------------------------ table


def _title(summary: dict[str, Any]) -> str:
    from freshband.reporting._numbers import counted

    return (
        f"{summary['dataset']} over {summary['channels']}: {summary['clients']} clients, "
        f"{summary['rounds']} rounds, {counted(summary['runs'], 'run')}, seed {summary['seed']}"
    )


def _columns(rows: dict[str, Any]) -> dict[str, list[str]]:
    """Return the table's columns by heading, a cell for each policy."""
    main = "regret" if next(iter(rows.values()))["regret"] else "regret_fixed"
    measures = {
        "accuracy": ("final_accuracy", 3),
        "mean accuracy": ("mean_accuracy", 3),
        "loss": ("final_loss", 3),
        "spread": ("accuracy_spread", 3),
        "regret": (main, 0),
        "mean age": ("mean_age", 2),
        "cum. variance": ("cumulative_variance", 1),
        "Jain": ("jain", 3),
    }
    columns = {
        heading: [_cell(row, measure, digits) for row in rows.values()]
        for heading, (measure, digits) in measures.items()
    }
    return {"policy": list(rows), **columns}


def _cell(row: dict[str, Any], measure: str, digits: int) -> str:
    """Return the mean, and in a second line the paired difference to the first policy."""
    from freshband.reporting._numbers import MISSING, with_digits

    if row[measure] is None:
        return MISSING
    text = with_digits(row[measure]["mean"], digits)
    difference = row["versus_first"].get(measure)
    if difference is None:
        return text
    return f"{text}\n{with_digits(difference['mean'], digits, difference['se'], sign=True)}"


def _caption(summary: dict[str, Any]) -> str:
    first = next(iter(summary["policies"]))
    row = summary["policies"][first]
    error = " ± its standard error" if summary["runs"] > 1 else ""
    oracle = "mean+age oracle's" if row["regret"] else "best fixed set's (no means known)"
    if summary["same_air"]:
        error += " (all runs met the same states of the channels: it is that of data, weights, "
        error += "batches and a policy's own random choices)"
    return (
        f"below each mean: paired difference to {first}{error}; accuracy after the last round; "
        f"spread: of accuracy over clients; regret: age beyond the {oracle}"
    )
