"""How the default scheduler does where it is at home, off its prior, and against adversaries.

``python -m benchmarks.default [--write]`` prints a table (ten minutes on two cores), and writes it
into docs/theory/bayes.md. No choice about `bayes` was made on these seeds. "Best other" is the best
of seven schedulers at their defaults.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.page import _renew, _table
from freshband import Coordinator, simulate
from freshband.channels import Table, build
from freshband.statistics import standard_error

OTHERS = ("random", "cucb", "kl-ucb", "thompson", "m-exp3", "glr-cucb", "glr-cucb:fresh")
OURS = "bayes"
_ROUNDS = 4_000  # of a table
GROWTH = "the same, its regret over that at T=100,000"
HEAD = ("air", "`bayes`", "best other", "ratio", "told of changes")
PAGE = Path(__file__).parent.parent / "docs" / "theory" / "bayes.md"


class Air(NamedTuple):
    """A channel model and the size of the problem on it."""

    title: str
    channels: str
    options: Mapping[str, Any] = MappingProxyType({})
    clients: int = 2
    rounds: int = 20_000
    runs: int = 32
    measure: str = "regret"


_NONE: Mapping[str, Any] = MappingProxyType({})


def _small(title: str, channels: str, options: Mapping[str, Any] = _NONE) -> Air:
    return Air(title, channels, options, clients=4, rounds=250, runs=200)


AIRS = (
    Air("Fig. 2(a)", "fig2", runs=400),
    Air("the same, N=30, M=20", "piecewise", {"n_channels": 30, "n_breakpoints": 5}, 20, runs=16),
    Air("one segment of it", "stationary", rounds=3_333, runs=400),
    Air("stationary, T=100,000", "stationary", rounds=100_000, runs=64),
    Air("stationary, T=400,000", "stationary", rounds=400_000, runs=64),
    Air(GROWTH, "stationary", rounds=400_000, runs=64, measure="growth"),
    _small("fig3-extreme", "fig3-extreme"),
    Air("fig3-piecewise", "fig3-piecewise", clients=20, rounds=250, runs=200),
    Air("hazard 0.002", "switching", {"hazard": 0.002}),
    Air("hazard 0.02", "switching", {"hazard": 0.02}),
    Air("hazard 0.2", "switching", {"hazard": 0.2}),
    Air("sweeping jammer", "jammer"),
    _small("fig3-extreme, means U[.6, .95]", "fig3-extreme", {"mean_low": 0.6, "mean_high": 0.95}),
    _small("fig3-extreme, means U[.02, .3]", "fig3-extreme", {"mean_low": 0.02, "mean_high": 0.3}),
    Air("5 breakpoints, means U[.85, .99]", "piecewise",
        {"n_breakpoints": 5, "mean_low": 0.85, "mean_high": 0.99}, rounds=10_000, runs=96),
    Air("5 breakpoints, means U[.02, .2]", "piecewise",
        {"n_breakpoints": 5, "mean_low": 0.02, "mean_high": 0.2}, rounds=10_000, runs=96),
    _small("alternating", "gilbert-elliott", {"n_channels": 6, "p_bad": 0.8, "p_good": 0.8}),
    Air("jammer of both channels used last, mean age", "reactive",
        {"mean_low": 0.5, "mean_high": 0.95, "width": 2, "budget": 1.0},
        rounds=4_000, measure="mean_age"),
    Air("jammer of one of them, half of the rounds, mean age", "reactive",
        {"mean_low": 0.5, "mean_high": 0.95}, rounds=4_000, measure="mean_age"),
)  # fmt: skip


class Row(NamedTuple):
    """A measure by policy and run."""

    title: str
    policies: Sequence[str]
    values: NDArray[np.float64]  # (policies, runs)

    def cells(self) -> list[str]:
        """Return a row of the table."""
        best = min(range(len(OTHERS)), key=lambda i: float(self.values[i].mean()))
        ours, theirs = self.values[self.policies.index(OURS)], self.values[best]
        compared = ""
        if theirs.mean() > 0 and ours.mean() > 0:
            ratio = ours.mean() / theirs.mean()
            error = standard_error(ours - ratio * theirs) / theirs.mean()
            compared = f"{ratio:.3f} ± {error:.3f}"
        told = _shown(self.values[-1]) if self.policies[-1] == "told" else ""
        name = f"`{self.policies[best]}` {_shown(theirs)}"
        return [self.title, _shown(ours), name, compared, told]


class Growth(NamedTuple):
    """Regret by policy and run, at a quarter of the rounds and at the end."""

    title: str
    policies: Sequence[str]
    values: NDArray[np.float64]  # (policies, runs, 2)

    def cells(self) -> list[str]:
        """Return a row of the table: how much the regret grew; the best other has the least."""
        ours, told = self.policies.index(OURS), len(self.policies) - 1
        best = int(self.values[: len(OTHERS), :, 1].mean(axis=1).argmin())
        grown = {}
        for policy in (ours, best, told):
            early, late = self.values[policy].T
            ratio = late.mean() / early.mean()
            error = standard_error(late - ratio * early) / early.mean()
            grown[policy] = f"{ratio:.2f} ± {error:.2f}"
        return [self.title, grown[ours], f"`{self.policies[best]}` {grown[best]}", "", grown[told]]


def _shown(values: NDArray[np.float64]) -> str:
    digits = 2 if abs(values.mean()) < 10 else 0
    return f"{values.mean():,.{digits}f} ± {standard_error(values):,.{digits}f}"


def on_airs(airs: Sequence[Air], seed: int) -> Iterator[Row | Growth]:
    """Play all schedulers on the same air."""
    for air in airs:
        told = ["told"] if air.measure != "mean_age" else []
        policies = [*OTHERS, OURS, *told]
        result = simulate(
            build(air.channels, air.options), policies, clients=air.clients, rounds=air.rounds,
            runs=air.runs, seed=seed, points=4, progress=False,
        )  # fmt: skip
        if air.measure == "growth":
            curve = result.regret_curve.sel(round=[air.rounds // 4, air.rounds])
            yield Growth(air.title, policies, curve.transpose("policy", "run", "round").values)
        else:
            yield Row(air.title, policies, result[air.measure].values)


def periodic(
    rounds: int,
    channels: int,
    rng: np.random.Generator,
    period: int | NDArray[np.int64] = 7,
    blocked: int | NDArray[np.int64] = 2,
) -> Table:
    """Return channels blocked in so many rounds of a period, which may differ per channel."""
    phase = (np.arange(rounds)[:, None] + 3 * np.arange(channels)) % period
    rates = np.broadcast_to(rng.uniform(0.5, 0.95, channels), phase.shape)
    return Table(means=np.where(phase < blocked, 0.02, rates))


def on_periodic_air(seed: int, runs: int = 32) -> Row:
    """Play on channels that are blocked periodically."""
    policies, rng = [*OTHERS, OURS], np.random.default_rng(seed)
    values = [
        simulate(
            periodic(10_000, 5, rng), policies, clients=2, rounds=10_000, runs=1, seed=seed + run,
            points=1, progress=False,
        ).regret.values[:, 0]
        for run in range(runs)
    ]  # fmt: skip
    return Row("blocked in 2 of 7 rounds", policies, np.array(values).T)


def table_against(
    policy: str, copies: int, seed: int, rounds: int = _ROUNDS, options: Any = None
) -> Table:
    """Return a table of bits by somebody who knows the code, but not the random bits.

    In each round the two channels most used by ``copies`` of the policy are bad, the others good.
    """
    players = [
        Coordinator(policy, 2, 5, seed=seed + copy, options=options) for copy in range(copies)
    ]
    states = np.ones((rounds, 5), np.uint8)
    for row in states:
        plans = [player.plan() for player in players]
        row[np.argsort(-np.bincount(np.concatenate(plans), minlength=5), kind="stable")[:2]] = 0
        for player, plan in zip(players, plans, strict=True):
            player.observe(row[plan] == 1)
    return Table(states=states.astype(float))


def against_tables(seed: int, runs: int = 16) -> Iterator[Row]:
    """Play on tables made against `bayes`, with other seeds."""
    for copies, title in ((24, "table against 24 copies"), (1, "table of another run")):
        table = table_against(OURS, copies, seed)
        policies = [*OTHERS, OURS]
        result = simulate(
            table, policies, clients=2, rounds=_ROUNDS, runs=runs, seed=seed + 1_000,
            points=1, progress=False,
        )  # fmt: skip
        yield Row(f"{title}, mean age", policies, result.mean_age.values)


def measured(only: str, seed: int) -> Iterator[Row | Growth]:
    """Yield the rows whose title contains a text."""
    yield from on_airs([air for air in AIRS if only in air.title], seed)
    if only in "blocked in 2 of 7 rounds":
        yield on_periodic_air(seed)
    if only in "table against":
        yield from against_tables(seed)


def main() -> None:
    """Measure, print, and with ``--write`` renew the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=27_182)
    parser.add_argument("--only", default="", help="rows whose title contains this")
    parser.add_argument("--write", action="store_true", help="update the docs")
    args = parser.parse_args()
    rows = []
    for row in measured(args.only, args.seed):
        rows.append(row.cells())
        print(" | ".join(rows[-1]), flush=True)
    print(_table(HEAD, rows))
    if args.write:
        _renew(PAGE, _table(HEAD, rows))


if __name__ == "__main__":
    main()
