"""``freshband reproduce``: the paper's figures, one command each."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshband.cli.settings import AddressOption, Format, Where, WhereOption
from freshband.cli.tables import make_table, open_console
from freshband.cli.training import need_extra

if TYPE_CHECKING:
    from freshband.experiments.base import Machine, Scale

__all__ = ["reproduce"]


class Figure(StrEnum):
    """What can be reproduced."""

    fig2a = "fig2a"
    fig2b = "fig2b"
    fig2c = "fig2c"
    fig3 = "fig3"
    fig4 = "fig4"
    rules = "rules"
    parts = "parts"
    all = "all"
    choice = "choice"


class Size(StrEnum):
    """How large an experiment is."""

    quick = "quick"
    full = "full"


def reproduce(
    figure: Annotated[
        Figure,
        typer.Argument(
            help="fig2a regret by policy, fig2b by breakpoints, fig2c by channel sets, fig3 "
            "accuracy, fig4 age variance, rules for lost updates, parts: what "
            "scheduling gives and what these; or all; choice: settings of CIFAR the paper leaves "
            "open.",
            show_default=False,
        ),
    ],
    scale: Annotated[
        Size,
        typer.Option(
            help="quick: minutes on any machine, digits in place of CIFAR; full: the paper's "
            "setting, which wants a GPU for fig3, fig4, rules and parts."
        ),
    ] = Size.quick,
    out: Annotated[Path, typer.Option(help="Folder for results, pictures and verdicts.")] = Path(
        "reproduction"
    ),
    device: Annotated[
        str, typer.Option(help="Where to train: auto (a GPU if there is one), cpu, cuda.")
    ] = "auto",
    precision: Annotated[
        str, typer.Option(help="Of products on a GPU: auto (tf32), float32, tf32 or bf16.")
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
            help="Stop after computing so many pieces; call again to go on.",
        ),
    ] = None,
    backend: WhereOption = Where.threads,
    address: AddressOption = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Reproduce the paper's figures: results, pictures, and a verdict on every statement.

    What is computed is kept piece by piece, so an interrupted command goes on where it was: call
    it again. fig3, fig4 and parts share runs.

    [bold]Examples[/bold]

      freshband reproduce fig2a --out reproduction

      freshband reproduce all --scale quick

      freshband reproduce fig3 --scale full --device cuda --data-dir data --pieces 4
    """
    from freshband.experiments.base import EXPERIMENTS, Machine, Scale
    from freshband.experiments.base import reproduce as compute

    names = list(EXPERIMENTS) if figure is Figure.all else [figure.value]
    if {"fig3", "fig4", "rules", "parts", "choice"} & set(names):
        need_extra()
    machine = Machine(device, precision, data_dir, backend.value, address, progress=not quiet)
    size = Scale(scale.value)
    if figure is Figure.choice:
        _choose(out, machine, pieces, output)
        return
    left = pieces
    found: dict[str, Any] = {}
    for name in names:
        for piece, known in compute(name, size, out, machine):
            if not quiet:
                typer.echo(f"{'kept' if known else 'made'} {piece.key}", err=True)
            left = left - 1 if left is not None and not known else left
            if left == 0:
                typer.echo("stopped as asked; call again to go on", err=True)
                return
        _draw(name, size, out)
        found[name] = json.loads((out / f"{name}-{size.value}.json").read_text(encoding="utf-8"))
    if output is Format.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        _print_verdicts(found, out)


def _draw(name: str, scale: Scale, folder: Path) -> None:
    from freshband.experiments.base import load_pieces
    from freshband.reporting.curves import save_figure
    from freshband.reporting.figures import draw_experiment

    for shown, drawn in draw_experiment(name, load_pieces(name, scale, folder), scale).items():
        save_figure(drawn, folder / f"{shown}-{scale.value}.png")


def _choose(folder: Path, machine: Machine, trials: int | None, output: Format) -> None:
    """Try what was not tried yet, at most so many trials, and print the best."""
    from freshband.experiments.choice import GRID, best_of, read_trials, try_all

    for trial in islice(try_all(folder, machine), trials):
        typer.echo(", ".join(f"{name} {value}" for name, value in trial.items()), err=True)
    known = read_trials(folder)
    found = {
        f"{dataset}, {air}": best_of(known, dataset, air)
        for dataset, air in GRID
        if any((trial["dataset"], trial["air"]) == (dataset, air) for trial in known)
    }
    if output is Format.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        for what, best in found.items():
            typer.echo(f"{what}: " + ", ".join(f"{name} {value}" for name, value in best.items()))


def _print_verdicts(found: dict[str, Any], out: Path) -> None:
    from freshband.reporting.numbers import written_number

    console = open_console()
    bad = {"not reproduced", "does not hold"}
    for name, claims in found.items():
        rows = []
        for claim in claims:
            error = claim["error"]
            ours = written_number(claim["ours"]) + (
                "" if error != error else f" ± {written_number(error)}"
            )
            colour = "red" if claim["verdict"] in bad else "green"
            verdict = f"[{colour}]{claim['verdict']}[/]"
            ours = f"{ours} {claim['unit']}"
            rows.append((claim["what"], claim["paper"], ours, verdict, claim["why"]))
        console.print(make_table(name, ("statement", "paper", "ours", "verdict", "why"), rows))
    console.print(f"results, pictures and verdicts are in {out}", highlight=False)
