"""Beyond the paper: what to do about updates that are lost, under random scheduling alone.

Three changes to the paper's round, alone and together. With ``fixed`` an update counts with its own
weight, whoever else is heard; an ``eager`` client goes on training while its update waits to get
through; with ``average`` the server hands out a mean of its recent models. None asks anything of
the channels, so each is tried with random scheduling, in runs that no figure shows: what is best
here ours does in Figs. 3 and 4, without having been chosen by the runs it is judged by.

Eager clients work almost twice as much, so the best is also compared with two other ways to spend
that: ``fedavg``, where everybody gets the model and trains in every round and lost updates are
thrown away, and ``longer``, the paper's round with twice the local steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Piece, Scale, judge_order
from freshband.experiments.training import AIRS, needed_rounds, train_piece

__all__ = [
    "CHANGES",
    "DATASET",
    "FIRST",
    "OURS",
    "RIVALS",
    "RULES",
    "TITLE",
    "best_rule",
    "claims",
    "late",
    "pieces",
    "ruled",
]

TITLE: Final = "What to do about lost updates"

CHANGES: Final = ("fixed", "eager", "average")
# The paper's round and each change alone; also two of them, and all.
RULES: Final = {
    Scale.quick: ("", *CHANGES),
    Scale.full: tuple("+".join(some) for n in range(4) for some in combinations(CHANGES, n)),
}
# Other ways to work as much as eager clients do.
RIVALS: Final = {
    Scale.quick: ("fedavg", "longer"),
    Scale.full: ("fedavg", "longer", "fedavg+average", "longer+average"),
}
DATASET: Final = {Scale.quick: "digits", Scale.full: "cifar10"}
OURS: Final = "eager+average"  # the best on both airs, which a test holds against the files
FIRST: Final = 1000  # no figure shows this run and those that follow
_LONGER: Final = 2  # times the local steps


def ruled(policy: str) -> str:
    """Return a policy with the rule ours has.

    Examples
    --------
    >>> ruled("random")
    'random@eager+average'
    """
    return _with(policy, OURS)


def _with(policy: str, rule: str) -> str:
    return f"{policy}@{rule}" if rule else policy


def _read(rule: str) -> tuple[str, int]:
    """Return the policy, and how many times the local steps its clients make."""
    kept = [part for part in rule.split("+") if part != "longer"]
    return _with("random", "+".join(kept)), _LONGER if "longer" in rule else 1


def _named(rule: str) -> str:
    policy, longer = _read(rule)
    return f"{policy}, {longer} times the local steps," if longer > 1 else policy


def _piece(scale: Scale, air: str, rule: str) -> Piece:
    policy, longer = _read(rule)
    return train_piece(scale, DATASET[scale], air, policy, FIRST, longer)


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return random scheduling with every rule and every rival, on both kinds of air."""
    return [_piece(scale, air, rule) for air in AIRS for rule in (*RULES[scale], *RIVALS[scale])]


def late(
    results: Mapping[str, xr.Dataset], scale: Scale, air: str
) -> dict[str, NDArray[np.float64]]:
    """Return accuracy over the last 25 rounds in percent, run by run, by rule and rival."""
    return {
        rule: 100 * np.nanmean(_curves(results[_piece(scale, air, rule).key])[:, -25:], axis=1)
        for rule in (*RULES[scale], *RIVALS[scale])
    }


def _curves(result: xr.Dataset) -> NDArray[np.float64]:
    return np.asarray(result.accuracy[0].values, dtype=np.float64)


def best_rule(results: Mapping[str, xr.Dataset], scale: Scale, air: str) -> str:
    """Return the rule with which random scheduling is most accurate in the end; "": the paper's."""
    found = late(results, scale, air)
    return max(RULES[scale], key=lambda rule: float(found[rule].mean()))


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Compare every rule with the paper's round, and the best with its rivals."""
    found = []
    for air in AIRS:
        value, best = late(results, scale, air), best_rule(results, scale, air)
        base = results[_piece(scale, air, "").key]
        beyond_paper = [(rule, "") for rule in RULES[scale][1:]]
        for better, worse in [*beyond_paper, *((best, rival) for rival in RIVALS[scale])]:
            told = worse or better  # of which no other line tells what it costs
            its, longer = results[_piece(scale, air, told).key], _read(told)[1]
            work = longer * float(its.trained.mean() / base.trained.mean())
            rounds = np.mean(needed_rounds(base["round"].values, _curves(its), _curves(base)))
            found.append(
                judge_order(
                    f"{DATASET[scale]}, {air}: {_named(better)} above {_named(worse)} "
                    "in the last 25 rounds",
                    "-",
                    value[better] - value[worse],
                    unit="points",
                    why=f"{value[worse].mean():.1f} -> {value[better].mean():.1f} %"
                    + (", best" if better == best and not worse else "")
                    + f"; {told} needs {rounds:.2f} of random's rounds, with {work:.1f} times the "
                    "work in each",
                )
            )
    return found
