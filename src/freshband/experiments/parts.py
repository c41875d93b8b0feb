"""Beyond the paper: what scheduling gives to accuracy, and what the rule for lost updates gives.

Random scheduling and the scheduler that learns fastest, each with the paper's round and with the
rule that `freshband.experiments.rules` found best, so that the two can be told apart.

CIFAR-100 on the piecewise air is left out: it takes as long as all the others together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import xarray as xr

from freshband.experiments.base import Claim, Piece, Scale, judge_order
from freshband.experiments.fig3 import OURS
from freshband.experiments.rules import ruled
from freshband.experiments.training import gather, train_piece

__all__ = ["PLACES", "POLICIES", "TITLE", "claims", "pieces"]

TITLE: Final = "What scheduling gives, and what the rule for lost updates"

PLACES: Final = {
    Scale.quick: (("digits", "piecewise"), ("digits", "extreme")),
    Scale.full: (("cifar10", "piecewise"), ("cifar10", "extreme"), ("cifar100", "extreme")),
}
POLICIES: Final = ("random", ruled("random"), OURS, ruled(OURS))


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return two schedulers with two rules each; half of them are Fig. 3's."""
    return [
        train_piece(scale, dataset, air, policy)
        for dataset, air in PLACES[scale]
        for policy in POLICIES
    ]


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Compare rules under the same scheduler, and schedulers under the same rule."""
    base, base_ruled, ours, ours_ruled = POLICIES
    found = []
    for place in PLACES[scale]:
        accuracy = gather(results, scale, place, POLICIES, "accuracy")
        mean = {policy: 100 * np.nanmean(curve, axis=1) for policy, curve in accuracy.items()}
        late = {policy: 100 * np.nanmean(c[:, -100:], axis=1) for policy, c in accuracy.items()}
        for better, worse in (
            (base_ruled, base), (ours_ruled, ours), (ours, base), (ours_ruled, base_ruled),
        ):  # fmt: skip
            found += [
                judge_order(
                    f"{', '.join(place)}: {better} above {worse}, accuracy over {span}",
                    "-",
                    value[better] - value[worse],
                    unit="points",
                    why=f"{value[worse].mean():.1f} -> {value[better].mean():.1f} %",
                )
                for span, value in (("all rounds", mean), ("the last 100", late))
            ]
    return found
