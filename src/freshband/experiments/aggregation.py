"""Beyond the paper: what the server should do in a round in which few are heard.

Equation (7), repaired, moves the model by the mean of what arrived (``renorm``). Where one client
of four gets through, the model becomes that client's and forgets what the others hold: on air that
stays bad accuracy falls to that of a single client, whatever the scheduler. With ``fixed`` an
update counts with its own weight, whoever else is heard, as if the silent had changed nothing. Both
are shown with random scheduling and with the scheduler that learns fastest, so that what scheduling
gives and what the aggregation gives can be told apart.

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

__all__ = ["PLACES", "TITLE", "claims", "pieces", "policies"]

TITLE: Final = "Aggregation where few are heard"

PLACES: Final = {
    Scale.quick: (("digits", "piecewise"), ("digits", "extreme")),
    Scale.full: (("cifar10", "piecewise"), ("cifar10", "extreme"), ("cifar100", "extreme")),
}


def policies(air: str) -> tuple[str, str, str, str]:
    """Return random scheduling and ours, each with the paper's round and with our rule."""
    return "random", ruled("random", air), OURS, ruled(OURS, air)


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return two schedulers with two aggregations each; half of them are Fig. 3's."""
    return [
        train_piece(scale, dataset, air, policy)
        for dataset, air in PLACES[scale]
        for policy in policies(air)
    ]


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Compare aggregations under the same scheduler, and schedulers under the same aggregation."""
    found = []
    for place in PLACES[scale]:
        base, base_ruled, ours, ours_ruled = policies(place[1])
        accuracy = gather(results, scale, place, policies(place[1]), "accuracy")
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
