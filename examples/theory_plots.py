"""The pictures of the documentation's theory chapters: bounds against simulations.

python examples/theory_plots.py [FOLDER] [NAME ...]    writes theory-NAME.png, all by default
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import freshband
from freshband import theory
from freshband.channels import Table
from freshband.reporting.bounds import draw_bounds
from freshband.reporting.curves import COLOURS, save_figure
from freshband.statistics import standard_error

QUICK = False  # the tests draw small pictures
GREY = "#777777"


def blank(columns: int = 1, width: float = 6.4) -> tuple[Figure, list]:
    """Return an empty figure and its axes, one beside the other."""
    figure = Figure(figsize=(width, 3.9), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(1, columns)))
    for each in axes:
        each.grid(alpha=0.25, linewidth=0.6)
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def simulate(channels: object, policies: object, **options: object):
    """Run a simulation without a progress bar, and with few rounds in tests."""
    if QUICK:
        options["runs"] = min(options["runs"], 3)
    return freshband.simulate(channels, policies, progress=False, **options)


def ages() -> Figure:
    """Lemma 2: the expected age in each round, printed and corrected, and 500 clients' mean."""
    means = np.repeat([0.3, 0.8, 0.1, 0.5], [15, 10, 20, 15])
    crowd = 500
    air = Table(means=np.repeat(means[:, None], crowd, axis=1))
    result = simulate(
        air, "random", clients=crowd, rounds=len(means), runs=20, seed=1, points=len(means)
    )
    curve = result.age_curve.sel(policy="random").mean("run").values / crowd
    figure, (axes,) = blank()
    rounds = np.arange(1, len(means) + 1)
    axes.plot(rounds, theory.expected_age(means), color=COLOURS[0], label="corrected")
    axes.plot(
        rounds, theory.expected_age(means, "literal"), "--", color=COLOURS[1], label="as printed"
    )
    axes.plot(rounds, np.diff(curve, prepend=0), "k.", markersize=4, label="simulated")
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.annotate("no age is below 1", (30, 0.95), fontsize=8, color=GREY, va="top")
    for start, mean in zip((1, 16, 26, 46), (0.3, 0.8, 0.1, 0.5), strict=True):
        axes.annotate(f"μ = {mean}", (start, 8.9), fontsize=8, color=GREY)
    axes.set(xlabel="round", ylabel="expected age", ylim=(0, 9.4))
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 0.93))
    return figure


def flat_quadratic(axes) -> None:
    """Draw the printed rate on a loss that is flat in one direction (erratum E3)."""
    slope, step, rounds = 1e-3, 0.05, 2000
    t = np.arange(rounds + 1)
    gap = slope / 2
    shared = {"gap": gap, "smoothness": 1, "gradient": slope, "step": step}
    everybody = np.ones((rounds, 1))
    literal = theory.convergence_bound(everybody, **shared, variant="literal")
    corrected = theory.convergence_bound(everybody, **shared, pl=slope)
    axes.semilogy(t, literal.value, "--", color=COLOURS[1], label="bound as printed")
    axes.semilogy(t, corrected.value, color=COLOURS[0], label="corrected bound")
    axes.semilogy(t, gap * (1 - step * slope) ** (2 * t), "k:", label="actual")
    axes.set(xlabel="round", ylabel="F(w) − F*", title="all clients always get through")
    axes.legend(frameon=False, fontsize=8)


def lossy_training(axes) -> None:
    """Four clients on quadratics, uploads lost at random; only the share that arrives differs."""
    clients, rounds, local_steps, step = 4, 300, 5, 0.02
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(clients, 10))
    for colour, share in zip(COLOURS, (1.0, 0.8, 0.5), strict=False):
        delivered = rng.random((rounds, clients)) < share
        gaps, gradient = train(centres, delivered, local_steps, step)
        bound = theory.convergence_bound(
            delivered, gap=gaps[0], smoothness=1, gradient=gradient, step=step, pl=1,
            local_steps=local_steps,
        )  # fmt: skip
        axes.semilogy(bound.value, color=colour, label=f"{share:.0%} arrive")
        axes.semilogy(gaps, ":", color=colour)
    axes.set(xlabel="round", title="four clients; lines: bound, dots: actual", ylim=(1e-7, 1e3))
    axes.legend(frameon=False, fontsize=8)


def train(centres: np.ndarray, delivered: np.ndarray, local_steps: int, step: float):
    """Train on F_i = |w - c_i|²/2; return the gaps F(w_t) - F* and the largest gradient met."""
    w = centres.mean(axis=0) + 3.0
    best = centres.mean(axis=0)
    pending = np.zeros_like(centres)
    fresh = np.ones(len(centres), bool)
    gaps, largest = [((w - best) ** 2).sum() / 2], 0.0
    for arrived in delivered:
        largest = max(largest, np.linalg.norm(w - centres, axis=1).max())
        local = np.repeat(w[None], len(centres), axis=0)
        total = np.zeros_like(centres)
        for _ in range(local_steps):
            gradients = local - centres
            total += gradients
            local = local - step * gradients
        pending = np.where(fresh[:, None], total, pending)
        if arrived.any():
            w = w - step * pending[arrived].mean(axis=0)
        gaps.append(((w - best) ** 2).sum() / 2)
        fresh = arrived
    return np.array(gaps), largest


def convergence() -> Figure:
    """Theorem 1: where the printed bound fails, and how loose the corrected one is."""
    figure, (left, right) = blank(2, width=9.6)
    flat_quadratic(left)
    lossy_training(right)
    return figure


def cost_law() -> Figure:
    """Draw the cost of a round on a channel worse by 0.2, by the age before it."""
    best, worse, horizon = 0.5, 0.3, 40
    ages_before = np.arange(1, 9)
    n = 2_000 if QUICK else 200_000
    rng = np.random.default_rng(0)
    measured, errors = [], []
    for age in ages_before:
        luck = rng.random((horizon, n))
        apart = np.zeros(n)
        wrong = right = np.full(n, float(age))
        for t in range(horizon):
            wrong = np.where(luck[t] < (worse if t == 0 else best), 1, wrong + 1)
            right = np.where(luck[t] < best, 1, right + 1)
            apart += wrong - right
        measured.append(apart.mean())
        errors.append(apart.std() / n**0.5)
    figure, (axes,) = blank()
    law = [
        theory.regret_terms([best] * horizon, [worse] + [best] * (horizon - 1), [age] * horizon)[0]
        for age in ages_before
    ]
    axes.plot(ages_before, law, color=COLOURS[0], label="the law: Δ a W")
    axes.errorbar(ages_before, measured, errors, fmt="k.", capsize=2, label="simulated")
    axes.axhline(0.2 / best, color=GREY, linewidth=0.8)
    axes.annotate(
        "least possible: what Theorem 2 charges", (8, 0.42), fontsize=8, color=GREY, ha="right"
    )
    axes.set(xlabel="age before the round", ylabel="age added, in rounds", ylim=(0, None))
    axes.legend(frameon=False)
    return figure


def lower_bounds() -> Figure:
    """Theorem 2 on the channels of its proof: the regret of policies, and the lower bound."""
    horizons = np.array([50, 100, 200, 400, 800])
    figure, (axes,) = blank()
    policies = ["random", "cucb", "thompson"]
    found = {name: [] for name in policies}
    for rounds in horizons:
        result = simulate(
            "hard-stationary", policies, clients=2, rounds=int(rounds), runs=6000, seed=2, points=1
        )
        for name in policies:
            values = result.regret.sel(policy=name).values
            found[name].append((values.mean(), standard_error(values)))
    for colour, (name, values) in zip(COLOURS, found.items(), strict=False):
        mean, error = np.array(values).T
        axes.errorbar(horizons, mean, error, color=colour, marker=".", capsize=2, label=name)
    grid = np.unique(np.geomspace(50, 800, 60).astype(int))
    bound = theory.adversarial_lower_bound(2, 5, grid)
    axes.plot(grid, bound.value, "k--", label="Theorem 2")
    axes.set(xlabel="rounds T", ylabel="AoI regret", xscale="log", yscale="log")
    axes.set_xticks(horizons, [str(x) for x in horizons])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    return figure


def m_exp3() -> Figure:
    """Theorem 3: regret on the counterexample, and the printed bound it exceeds."""
    horizons = np.array([200, 400, 800, 1600, 3200])
    figure, (axes,) = blank()
    found = []
    for rounds in horizons:
        regrets = []
        for lucky in (0, 1):
            states = np.zeros((rounds, 2), np.int8)
            states[: rounds // 2] = 1
            states[3 * rounds // 4 - 1, lucky] = 1
            result = simulate(
                Table(states=states), "m-exp3", clients=1, rounds=int(rounds), runs=40, points=1
            )
            regrets.append(result.regret_fixed.mean().item())
        found.append(np.mean(regrets))
    axes.plot(horizons, found, "k.", label="M-Exp3, simulated")
    axes.plot(horizons, theory.missed_needle_regret(horizons), color=COLOURS[0],
              label="no policy below: T²/32")  # fmt: skip
    axes.plot(horizons, theory.m_exp3_bound(1, 2, horizons, "literal").value, "--",
              color=COLOURS[1], label="Theorem 3 as printed: an upper bound")  # fmt: skip
    axes.set(xlabel="rounds T", ylabel="AoI regret", xscale="log", yscale="log")
    axes.set_xticks(horizons, [str(x) for x in horizons])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False)
    return figure


def glr_cucb() -> Figure:
    """All bounds in the paper's own setting, and the regret of policies there."""
    from freshband.channels.base import open_air
    from freshband.theory.overview import describe_air, list_bounds

    rounds, runs = (500, 2) if QUICK else (20_000, 10)
    policies = ["random", "m-exp3", "glr-cucb:paper", "glr-cucb"]
    result = simulate("piecewise", policies, clients=2, rounds=rounds, runs=runs, seed=0)
    means = [open_air("piecewise", rounds, 0, run).block(rounds).means for run in range(runs)]
    entries = list_bounds(2, 5, result["round"].values, 6, describe_air(means, 2))
    return draw_bounds(result, entries)


def matching() -> Figure:
    """Two clients: the exact optimum, taking turns and never changing, by the worse channel."""
    grid = np.linspace(0.02, 0.8, 40)
    pairs = np.stack([np.full(40, 0.8), grid], axis=1)
    figure, (axes,) = blank()
    axes.plot(grid, theory.two_client_optimum(pairs, precision=1e-6).low, color=COLOURS[0],
              label="exact optimum")  # fmt: skip
    axes.plot(grid, 2 * theory.rotation_age(pairs), color=COLOURS[1], label="taking turns")
    axes.plot(grid, theory.constant_age(pairs).sum(axis=1), color=COLOURS[2],
              label="never changing")  # fmt: skip
    for mean in (0.1, 0.3, 0.5, 0.7):
        result = simulate(
            "stationary", ["oracle:mean+age", "oracle:mean+rotate"], clients=2, rounds=20_000,
            runs=20, seed=3, points=1, channel_options={"means": [0.8, mean]},
        )  # fmt: skip
        for values in 2 * result.mean_age.mean("run").values[:, None]:
            axes.plot([mean], values, "k.", label="simulated: by age, by turns" * (mean == 0.1))
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), frameon=False)
    axes.set(xlabel="mean of the worse channel; the better one has 0.8",
             ylabel="sum of both ages", ylim=(2.3, 6))  # fmt: skip
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "ages": ages,
    "convergence": convergence,
    "cost-law": cost_law,
    "lower-bounds": lower_bounds,
    "m-exp3": m_exp3,
    "glr-cucb": glr_cucb,
    "matching": matching,
}


def main(folder: Path, names: list[str]) -> None:
    """Draw the named pictures, or all of them."""
    for name in names or PICTURES:
        path = folder / f"theory-{name}.png"
        save_figure(PICTURES[name](), path)
        print(f"wrote {path}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(Path(arguments[0]) if arguments else Path("docs/images"), arguments[1:])
