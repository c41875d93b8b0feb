"""Weigh age against contribution: what makes ages equal, and what raises accuracy.

Twenty clients with different data (Dirichlet 0.1) train on the digits over thirty changing
channels. Only the matching differs: channel states, data, initial weights and batches are the same.
The picture shows for each matching the cumulative variance of ages and the accuracy averaged over
the rounds, both as paired differences to plain age matching, with standard errors over runs.

    python examples/priority_tradeoff.py [RUNS [PICTURE.png]]
"""

import sys
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from freshband.federated import Federation, Training, load_dataset, train_together
from freshband.statistics import standard_error

CLIENTS, ROUNDS = 20, 150
BETAS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


def priority(beta: float, window: int | None, **more: Any) -> dict[str, Any]:
    """Return the settings of a priority matching."""
    options = {"beta": beta, "norm_window": window}
    return {"matching": "priority", "policy_options": options, **more}


FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "maxima of the present round (default)": {f"β = {b:g}": priority(b, 1) for b in BETAS},
    "maxima of all rounds (as printed)": {f"β = {b:g}": priority(b, None) for b in BETAS},
    "random matching": {"": {"matching": "random"}},
    "age matching": {"": {"matching": "age"}},
    "weights by contribution (43)": {"": priority(0.9, 1, weights="contribution")},
}


def play(run: int) -> np.ndarray:
    """Return cumulative variance and mean accuracy of every variant."""
    digits, federations = load_dataset("digits"), []
    for variant in (each for family in FAMILIES.values() for each in family.values()):
        settings = Training(
            model="mlp",
            clients=CLIENTS,
            rounds=ROUNDS,
            run=run,
            partition_options={"alpha": 0.1},
            eval_every=5,
            **variant,
        )
        shared = federations[0].clients if federations else None
        federations.append(Federation(settings, dataset=digits, clients=shared))
    history = list(train_together(federations))
    federations[0].close()
    return np.array(
        [
            [sum(r.variance for r in records), np.nanmean([r.accuracy for r in records])]
            for records in zip(*history, strict=True)
        ]
    )


def draw(names: list[tuple[str, str]], mean: np.ndarray, error: np.ndarray, runs: int) -> Figure:
    """Draw the differences of every variant to age matching."""
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    axes = figure.subplots()
    colours = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7")
    for place, (colour, family) in enumerate(zip(colours, FAMILIES, strict=True)):
        rows = [i for i, (kind, _) in enumerate(names) if kind == family]
        x, y = mean[rows, 0], 100 * mean[rows, 1]
        axes.errorbar(
            x, y, xerr=error[rows, 0], yerr=100 * error[rows, 1],
            fmt="o-", markersize=5, linewidth=1, elinewidth=0.7, color=colour, label=family,
        )  # fmt: skip
        for i, row in enumerate(rows):
            away = (0, 14 + 9 * (i % 2)) if place == 1 else (6, 6 if i == 3 else -12)
            axes.annotate(
                names[row][1].removeprefix("β = "), (x[i], y[i]), xytext=away,
                textcoords="offset points", fontsize=7, color=colour,
                ha="center" if place == 1 else "left",
            )  # fmt: skip
    axes.set_xscale("symlog", linthresh=2)
    axes.set_xlim(-0.7, 300)
    axes.set_xlabel("cumulative AoI variance beyond age matching's (to the right is less fair)")
    axes.set_ylabel("mean accuracy beyond age matching's, points")
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.axvline(0, color="grey", linewidth=0.5)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"digits, M = {CLIENTS}, T = {ROUNDS}, {runs} runs, ± one standard error; numbers are β",
        fontsize=9, loc="left",
    )  # fmt: skip
    return figure


def main(runs: int = 16, picture: str = "priority-tradeoff.png") -> None:
    """Run all variants, draw them and print a table."""
    results = np.array([play(run) for run in range(runs)])  # (run, variant, measure)
    names = [(family, name) for family, variants in FAMILIES.items() for name in variants]
    difference = results - results[:, [names.index(("age matching", ""))]]
    mean = difference.mean(axis=0)
    error = np.nan_to_num(standard_error(difference))
    draw(names, mean, error, runs).savefig(picture, dpi=200)
    print("| matching | | cumulative variance | mean accuracy, points |\n| --- | --- | --- | --- |")
    for (family, name), m, e in zip(names, mean, error, strict=True):
        print(
            f"| {family} | {name} | {m[0]:+.1f} ± {e[0]:.1f} | {100 * m[1]:+.2f} ± "
            f"{100 * e[1]:.2f} |"
        )


if __name__ == "__main__":
    main(*(convert(text) for convert, text in zip((int, str), sys.argv[1:], strict=False)))
