"""The state of `m-exp3`: the channel sets played so far, and where each is found."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import kernel
from freshband.schedulers.counts import Counts, keeps_means
from freshband.states import FIXED, ORDER, Moment, _grown, between, declare, reserve


@keeps_means  # the weights of super-arms cannot learn late, so nothing does
class MExp3State(NamedTuple):
    """Weights of the V super-arms played so far, with room for more."""

    counts: Counts  # historical means, which rank the chosen channels
    deck: NDArray[np.int64]  # (N,) for uniform draws
    members: NDArray[np.int64]  # (room, M) channels of each played super-arm, sorted
    excess: NDArray[np.float64]  # (room,) ln excess
    tree: NDArray[np.float64]  # (room + 1,) Fenwick tree of exp(ln excess - reference)
    slots: NDArray[np.int64]  # (2^b,) hash table from members to position, -1 empty
    level: NDArray[np.void]  # ln base, and the reference
    rate: NDArray[np.void]  # γ, sharing, C (arms), and the reward's scale
    mark: NDArray[np.void]  # position drawn, V (played), and how γ, sharing and overrides work
    chance: NDArray[np.float64]  # (1,) probability of the super-arm drawn
    chosen: NDArray[np.int64]  # (M,) the super-arm drawn, sorted


def _is_played(state: MExp3State, at: Moment) -> bool:
    """Whether every set was played once and is found, and the one drawn can be learnt about."""
    played, room = int(state.mark[0]["played"]), len(state.excess)
    sets, length = state.members[:played], len(state.slots)
    if not (played <= room == len(state.members) == len(state.tree) - 1):
        return False
    if length < 2 * room or length & (length - 1) or not _are_sets(sets, len(state.deck)):
        return False
    slots = np.full(length, -1, np.int64)
    for position in range(played):
        slots[find_set(slots, state.members, sets[position])] = position
    known = slots[find_set(slots, state.members, state.chosen)]
    drawn = state.mark[0]["drawn"]
    learns = drawn == known or (
        drawn < 0 and played < room
    )  # earlier versions forgot what they drew
    return np.array_equal(slots, state.slots) and bool(learns)


def _are_sets(sets: NDArray[np.int64], n_channels: int) -> bool:
    return bool(((sets >= 0) & (sets < n_channels)).all() and (np.diff(sets) > 0).all())


declare(
    MExp3State,
    grows=("members", "excess", "tree", "slots"),
    invariant=_is_played,
    deck=ORDER,
    members=between(0, "deck"),
    slots=between(-1, "members"),
    level={"base": between(-np.inf), "reference": between(-np.inf)},
    rate=FIXED,
    mark={
        "drawn": between(-1, "members"),
        "played": between(0, "round"),
        "gamma_rule": FIXED,
        "share_rule": FIXED,
        "aa_rule": FIXED,
    },
    chance=between(1e-300, 2),
    chosen=between(0, "deck"),
)


@reserve.register(MExp3State)
def _reserve(state: MExp3State, rounds: int) -> MExp3State:
    needed = int(min(state.mark[0]["played"] + rounds, state.rate[0]["arms"]))
    room = len(state.excess)
    if needed <= room:
        return state
    more = max(needed, room + room // 2) - room
    slots = np.full(1 << (2 * (room + more)).bit_length(), -1, np.int64)
    state = state._replace(
        members=_grown(state.members, axis=0, more=more),
        excess=_grown(state.excess, axis=0, more=more),
        tree=_grown(state.tree, axis=0, more=more),
        slots=slots,
    )
    for position in range(int(state.mark[0]["played"])):
        slots[find_set(slots, state.members, state.members[position])] = position
    return state


@kernel
def find_set(slots: Any, members: Any, arm: Any) -> int:
    """Return the slot of a super-arm in the hash table, or the empty one it belongs in."""
    mask = len(slots) - 1
    h = 0
    for j in range(len(arm)):
        h = ((h ^ arm[j]) * 739982445 + 12345) & 0x7FFFFFFF
        h ^= h >> 15
    slot = h & mask
    while slots[slot] >= 0:
        same = True
        for j in range(len(arm)):
            if members[slots[slot], j] != arm[j]:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & mask
    return slot
