"""Where the default scheduler loses: ``python -m benchmarks.losing [--write]``.

Somebody who looked for air on which `bayes` is beaten found most of these; each shows a limit of
its model. The table has mean ages. It takes some minutes on two cores, and is written into
docs/theory/bayes.md. The best other is the best of twelve schedulers on the same runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.default import _NONE, OURS, PAGE, _shown, periodic
from benchmarks.page import _renew, _table
from freshband import Coordinator, simulate
from freshband.channels import ChannelModel, Table, build
from freshband.statistics import standard_error

OTHERS = (
    "random", "round-robin", "cucb", "thompson", "glr-cucb", "glr-cucb:fresh", "bocpd-thompson",
    "r-bocpd", "sw-thompson", "d-thompson", "aoi-thompson", "glr-klucb",
)  # fmt: skip
HEAD = ("air", "N, M, T", "`bayes`", "best other", "ratio", "`random`")
Rates = NDArray[np.float64]


class Case(NamedTuple):
    """An air of each run, by its random numbers, and the size of the problem on it."""

    title: str
    channels: int
    clients: int
    rounds: int
    air: Callable[[int, np.random.Generator], ChannelModel]
    fleet: Mapping[str, Any] = _NONE


def repaired(rates: Sequence[float], to: float) -> Callable[..., ChannelModel]:
    """Return air on which the worst channel gets a good one after a quarter of the rounds."""

    def make(rounds: int, rng: np.random.Generator) -> ChannelModel:
        means = np.tile(rng.permutation(np.array(rates)), (rounds, 1))
        means[rounds // 4 :, means[0].argmin()] = to
        return Table(means=means)

    return make


def few_good(rates: Sequence[float], of: Sequence[int]) -> Callable[..., ChannelModel]:
    """Return air with so many channels of each rate."""

    def make(rounds: int, rng: np.random.Generator) -> ChannelModel:
        return Table(means=np.tile(rng.permutation(np.repeat(rates, of)), (rounds, 1)))

    return make


def fading(channels: int, lasts: int) -> Callable[..., ChannelModel]:
    """Return air on which all rates are multiplied by one factor, drawn anew again and again."""

    def make(rounds: int, rng: np.random.Generator) -> ChannelModel:
        drawn = np.where(rng.random(rounds) < 1 / lasts, rng.uniform(0.1, 1.0, rounds), np.nan)
        drawn[0] = 1.0
        last = np.maximum.accumulate(np.where(np.isnan(drawn), 0, np.arange(rounds)))
        return Table(means=drawn[last][:, None] * rng.uniform(0.1, 0.9, channels))

    return make


def jammed(channels: int, window: int, width: int) -> Callable[..., ChannelModel]:
    """Return air with a jammer of the channels used most in a window of rounds."""
    options = {"n_channels": channels, "window": window, "width": width, "budget": 1.0}
    return lambda rounds, rng: build("reactive", options)


def still(channels: int) -> Callable[..., ChannelModel]:
    """Return air that never changes."""
    return lambda rounds, rng: build("stationary", {"n_channels": channels})


def nearly_dead(rounds: int, rng: np.random.Generator) -> ChannelModel:
    """Return six channels that hardly ever work."""
    return Table(means=np.tile(rng.uniform(0.005, 0.045, 6), (rounds, 1)))


def repeating(shortest: int, longest: int) -> Callable[..., ChannelModel]:
    """Return five channels, each blocked in a quarter of a period of its own, drawn evenly."""

    def make(rounds: int, rng: np.random.Generator) -> ChannelModel:
        period = rng.integers(shortest, longest + 1, 5)
        return periodic(rounds, 5, rng, period, period // 4)

    return make


CASES = (
    Case("an idle channel is repaired", 5, 2, 5_000, repaired((0.5, 0.5, 0.1, 0.1, 0.1), 0.95)),
    Case("the same, all others poor", 5, 2, 20_000,
         repaired((0.15, 0.15, 0.05, 0.05, 0.05), 0.95)),
    Case("five excellent of a hundred, most useless", 100, 2, 1_000,
         few_good((0.02, 0.3, 0.9), (90, 5, 5))),
    Case("all channels fade together, every 20 rounds", 20, 2, 10_000, fading(20, 20)),
    Case("jammer of what was used in the last 12 rounds", 30, 2, 5_000, jammed(30, 12, 24)),
    Case("jammer of what was used in the last 20 rounds", 30, 1, 5_000, jammed(30, 20, 20)),
    Case("answers 20 rounds late, channels vanish untold", 20, 2, 4_000, still(20),
         {"ack_delay": 20, "outages": 200}),
    Case("rates between 0.005 and 0.045", 6, 2, 5_000, nearly_dead),
    Case("all blocked in 5 of 23 rounds", 5, 2, 10_000, repeating(23, 23)),
    Case("each blocked in a quarter of its own 8 to 16 rounds", 5, 2, 10_000, repeating(8, 16)),
)  # fmt: skip


def unheard(policy: str, seed: int, rounds: int) -> float:
    """Return the mean age of three clients beside one that is never heard; losses are reported."""
    rng = np.random.default_rng(seed)
    rates, total = rng.uniform(0.1, 0.9, 10), 0.0
    server = Coordinator(policy, n_clients=4, n_channels=10, seed=seed)
    for _ in range(rounds):
        plan = server.plan()
        server.observe((rng.random(4) < rates[plan]) & (np.arange(4) > 0))
        total += float(server.ages[1:].mean())
    return total / rounds


def play_unheard(seed: int, runs: int) -> list[str]:
    """Return a row of the table: one client of four is never heard."""
    found = [
        [unheard(policy, seed + run, 2_000) for policy in (*OTHERS, OURS)] for run in range(runs)
    ]
    return _row("one client of four is never heard, the others", "10, 4, 2,000", found)


def play(case: Case, seed: int, runs: int) -> list[str]:
    """Return a row of the table."""
    policies = [*OTHERS, OURS]
    found = [
        simulate(
            case.air(case.rounds, np.random.default_rng((seed, run))), policies,
            clients=case.clients, rounds=case.rounds, runs=1, seed=seed + run, fleet=case.fleet,
            points=1, progress=False,
        ).mean_age.values[:, 0]
        for run in range(runs)
    ]  # fmt: skip
    size = f"{case.channels}, {case.clients}, {case.rounds:,}"
    return _row(case.title, size, found)


def _row(title: str, size: str, found: Sequence[Any]) -> list[str]:
    """Return a row of the table from mean ages, by run and policy."""
    *others, ours = np.array(found).T
    best = min(range(len(others)), key=lambda i: float(others[i].mean()))
    ratio = ours.mean() / others[best].mean()
    error = standard_error(ours - ratio * others[best]) / others[best].mean()
    theirs = f"`{OTHERS[best]}` {_shown(others[best])}"
    compared = f"{ratio:.2f} ± {error:.2f}"
    return [title, size, _shown(ours), theirs, compared, _shown(others[0])]


def main() -> None:
    """Measure, print, and with ``--write`` renew the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=16_180)
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--write", action="store_true", help="update the docs")
    args = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(play(case, args.seed, args.runs))
        print(" | ".join(rows[-1]), flush=True)
    rows.append(play_unheard(args.seed, args.runs))
    print(" | ".join(rows[-1]), flush=True)
    if args.write:
        _renew(PAGE, _table(HEAD, rows), "losing")


if __name__ == "__main__":
    main()
