"""Beyond the paper: what to do about updates that are lost, under random scheduling alone.

Three changes to the paper's round, alone and together. With ``fixed`` an update counts with its own
weight, whoever else is heard; an ``eager`` client goes on training while its update waits to get
through; with ``average`` the server hands out a mean of its recent models. None asks anything of
the channels, so each is tried with random scheduling, in runs that no figure shows: a policy can
take what is best here without having been chosen by the runs it is judged by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Piece, Scale, judge_order
from freshband.experiments.training import AIRS, gather, train_piece

__all__ = [
    "CHANGES",
    "DATASET",
    "FIRST",
    "OURS",
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
DATASET: Final = {Scale.quick: "digits", Scale.full: "cifar10"}
OURS: Final = {"piecewise": "fixed", "extreme": "fixed"}  # what ours does in Figs. 3 and 4
FIRST: Final = 1000  # no figure shows this run and those that follow


def ruled(policy: str, air: str) -> str:
    """Return a policy with the rule ours has on an air.

    Examples
    --------
    >>> ruled("random", "extreme")
    'random@fixed'
    """
    return _with(policy, OURS[air])


def _with(policy: str, rule: str) -> str:
    return f"{policy}@{rule}" if rule else policy


def _policy(rule: str) -> str:
    return _with("random", rule)


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return random scheduling with every rule, on both kinds of air."""
    return [
        train_piece(scale, DATASET[scale], air, _policy(rule), FIRST)
        for air in AIRS
        for rule in RULES[scale]
    ]


def late(
    results: Mapping[str, xr.Dataset], scale: Scale, air: str
) -> dict[str, NDArray[np.float64]]:
    """Return accuracy over the last 25 rounds in percent, run by run, by rule."""
    policies = {rule: _policy(rule) for rule in RULES[scale]}
    found = gather(results, scale, (DATASET[scale], air), policies, "accuracy", FIRST)
    return {rule: 100 * np.nanmean(curve[:, -25:], axis=1) for rule, curve in found.items()}


def best_rule(results: Mapping[str, xr.Dataset], scale: Scale, air: str) -> str:
    """Return the rule with which random scheduling is most accurate in the end; "": the paper's."""
    found = late(results, scale, air)
    return max(found, key=lambda rule: float(found[rule].mean()))


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Compare every rule with the paper's round."""
    found = []
    for air in AIRS:
        value, best = late(results, scale, air), best_rule(results, scale, air)
        found += [
            judge_order(
                f"{DATASET[scale]}, {air}: {_policy(rule)} above random, last 25 rounds",
                "-",
                value[rule] - value[""],
                unit="points",
                why=f"{value[''].mean():.1f} -> {value[rule].mean():.1f} %"
                + (", best" if rule == best else ""),
            )
            for rule in RULES[scale][1:]
        ]
    return found
