"""A run played again, to look at what a policy believed on the way."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from freshband._policy import Policy
from freshband.schedulers.base import means
from freshband.schedulers.beliefs import Beliefs, explain
from freshband.simulation._players import Game, enter


def replay_beliefs(policy: Policy, game: Game, cuts: NDArray[np.int64]) -> list[Beliefs]:
    """Return what a policy believed after the rounds ``cuts[1:]``; nothing if it cannot tell."""
    player = enter(policy, game)
    if explain(player.scheduler) is None:
        return []
    air, found = game.open_air(), []
    fates = None if game.is_plain(policy) else game.open_fates()
    for begin, end in pairwise(cuts.tolist()):
        size = end - begin
        player.play(begin, air.block(size), None if fates is None else fates.block(size))
        means(player.scheduler, np.zeros(game.model.n_channels))  # uses what came late
        believed = explain(player.scheduler)
        assert believed is not None  # it was not before
        found.append(believed)
    return found
