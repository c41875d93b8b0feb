"""Beyond the paper: what scheduling gives to accuracy, and what the rule for lost updates gives.

Random scheduling, the paper's learner with adaptive matching and the scheduler that learns fastest,
each with the paper's round and with the rule that `freshband.experiments.rules` found best, so that
the two can be told apart.

CIFAR-100 takes long: the piecewise air is left out there, and the paper's learner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import xarray as xr

from freshband.experiments.base import Claim, Piece, Scale, judge_order
from freshband.experiments.fig3 import OURS, ROLES
from freshband.experiments.rules import ruled
from freshband.experiments.training import gather, train_piece

__all__ = ["PLACES", "TITLE", "claims", "pieces", "policies"]

TITLE: Final = "What scheduling gives, and what the rule for lost updates"

PLACES: Final = {
    Scale.quick: (("digits", "piecewise"), ("digits", "extreme")),
    Scale.full: (("cifar10", "piecewise"), ("cifar10", "extreme"), ("cifar100", "extreme")),
}


def policies(dataset: str, air: str) -> list[str]:
    """Return what is compared in a place: first the paper's round, then as many with the rule."""
    learner = ROLES[air]["learner, adaptive matching"]
    plain = ["random", *([learner] if dataset != "cifar100" else []), OURS]
    return plain + [ruled(policy) for policy in plain]


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return schedulers with two rules each; half of them are Fig. 3's."""
    return [
        train_piece(scale, *place, policy) for place in PLACES[scale] for policy in policies(*place)
    ]


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Compare rules under the same scheduler, and schedulers under the same rule."""
    found = []
    for place in PLACES[scale]:
        names = policies(*place)
        plain, with_rule = names[: len(names) // 2], names[len(names) // 2 :]
        pairs = list(zip(with_rule, plain, strict=True))
        pairs += [(policy, group[0]) for group in (plain, with_rule) for policy in group[1:]]
        accuracy = gather(results, scale, place, names, "accuracy")
        whole = {policy: 100 * np.nanmean(curve, axis=1) for policy, curve in accuracy.items()}
        late = {policy: 100 * np.nanmean(c[:, -100:], axis=1) for policy, c in accuracy.items()}
        found += [
            judge_order(
                f"{', '.join(place)}: {better} above {worse}, accuracy over {span}",
                "-",
                value[better] - value[worse],
                unit="points",
                why=f"{value[worse].mean():.1f} -> {value[better].mean():.1f} %",
            )
            for better, worse in pairs
            for span, value in (("all rounds", whole), ("the last 100", late))
        ]
    return found
