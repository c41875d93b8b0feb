"""What the server knows of a fleet, and the transmissions of the last rounds.

The server keeps the *expected round of the last delivery*, L, of every client; the age at the end
of round t is `t - L + 1`. A delivery in round r sets `L = r`. While the outcome of a transmission
is unknown, `L <- p r + (1 - p) L` with the estimated chance p, which is the recursion
`E[a] <- p + (1 - p) (E[a] + 1)`, and costs nothing for clients that are idle. Transmissions of the
last rounds are kept, so that L is computed again when an outcome arrives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._rounds import MOST_WORTH, Desk, open_desk
from freshband.fleet._doubts import Doubts, open_doubts
from freshband.fleet.options import LEAST_WEIGHT, MOST_WEIGHT
from freshband.states import FIXED, FLAGS, Moment, between, declare, not_saved

UNKNOWN, LOST, DELIVERED, MUTE = -1, 0, 1, 2  # MUTE: lost, which says nothing about the channel


ROUND = np.dtype([("round", np.int64), ("size", np.int64), ("unknown", np.int64)])
ENTRY = np.dtype(
    [
        ("client", np.int64),
        ("channel", np.int64),
        ("outcome", np.int64),
        ("doubted", np.int64),  # 1 for a loss that may be the silence of a dead client
        ("chance", np.float64),  # estimated success rate
        ("before", np.float64),  # L of the client before the round
    ]
)


class Sent(NamedTuple):
    """Transmissions of the last D rounds, at most S in each; round r is in row r mod D."""

    rounds: NDArray[np.void]  # (D,) number, 0 for none; transmissions; those that are unknown
    entries: NDArray[np.void]  # (D, S)

    def row(self, when: int) -> int:
        """Return the row of a round."""
        return when % len(self.rounds)

    def of(self, when: int) -> NDArray[np.void]:
        """Return the transmissions of a round that is kept."""
        row = self.row(when)
        return self.entries[row, : self.rounds[row]["size"]]


class SharedLinks(NamedTuple):
    """Marks a fleet whose slots are filled with the most urgent clients."""

    most: NDArray[np.int64]  # (1,) the largest number of transmissions per round, S


class OwnLinks(NamedTuple):
    """Marks a fleet with a slot for every client, because every link is scored."""

    most: NDArray[np.int64]  # (1,) S


class Everybody(NamedTuple):
    """Marks a round of the paper's kind: all clients and channels are there, a slot for each."""

    most: NDArray[np.int64]  # (1,) S


class Fleet(NamedTuple):
    """What the server knows of M clients and N channels; Q slots are filled anew in each round."""

    desk: Desk  # of the slots; ages are real numbers
    served: NDArray[np.int64]  # (Q,) the client in each slot
    weight: NDArray[np.float64]  # (M,) importance of a client's age
    priorities: NDArray[np.float64]  # (M,) contributions from training; zeros without
    present: NDArray[np.int8]  # (M,) 1 for clients that may send in this round
    available: NDArray[np.int8]  # (N,) 1 for channels that exist in this round
    since: NDArray[np.float64]  # (M,) L
    ages: NDArray[np.float64]  # (M,) effective ages in this round, 0 for absent clients
    rate: NDArray[np.float64]  # (N,) estimated success rates of channels
    sent: Sent
    doubts: Doubts
    links: SharedLinks | OwnLinks | Everybody
    slots: NDArray[np.int64]  # (1,) the number of slots in use


not_saved(Fleet, "ages", "rate")  # written in every round before they are read


def _is_sent(sent: Sent, at: Moment) -> bool:
    """Whether every row holds a round that is kept, and each of its outcomes once."""
    rounds, entries = sent.rounds, sent.entries
    newest, depth = at.round + at.planned, len(rounds)
    used = rounds["round"] > 0
    kept = (rounds["round"] > newest - depth) & (rounds["round"] <= newest)
    kept &= rounds["round"] % depth == np.arange(depth)
    counted = np.arange(entries.shape[1]) < rounds["size"][:, None]
    unknown = ((entries["outcome"] == UNKNOWN) & counted).sum(axis=1)
    return bool(
        (kept | ~used).all()
        and (rounds["size"][~used] == 0).all()
        and ((rounds["size"] >= 0) & (rounds["size"] <= entries.shape[1])).all()
        and (unknown == rounds["unknown"]).all()
    )


def _is_fleet(fleet: Fleet, at: Moment) -> bool:
    """Whether what was sent names clients and channels that exist, and the open plan was sent."""
    n_clients, n_channels, desk = len(fleet.since), len(fleet.available), fleet.desk
    clients, channels = fleet.sent.entries["client"], fleet.sent.entries["channel"]
    exist = (clients >= 0) & (clients < n_clients) & (channels >= 0) & (channels < n_channels)
    assigned = desk.assignment[desk.assignment >= 0]
    waiting = fleet.sent.of(at.round + 1)["channel"]
    return bool(
        exist.all()
        and len(set(assigned.tolist())) == len(assigned)
        and (fleet.served >= 0).all()
        and (fleet.served < n_clients).all()
        and fleet.slots[0] <= len(fleet.served)
        and (not at.planned or fleet.sent.rounds[fleet.sent.row(at.round + 1)]["round"] > at.round)
        and (not at.planned or np.array_equal(waiting, assigned))
    )


declare(
    Sent,
    rounds={"round": between(0, "round"), "size": between(0), "unknown": between(0)},
    entries={
        "client": between(0),
        "channel": between(0),
        "outcome": between(UNKNOWN, MUTE),
        "doubted": FLAGS,
        "chance": FLAGS,
        "before": between(-1e300, "round"),
    },
    invariant=_is_sent,
)
for _marker in (SharedLinks, OwnLinks):  # nobody saves a fleet of `Everybody`
    declare(_marker, most=FIXED)
declare(
    Fleet,
    served=between(0),
    weight=between(LEAST_WEIGHT, MOST_WEIGHT),
    priorities=between(0, MOST_WORTH),
    present=FLAGS,
    available=FLAGS,
    since=between(-1e300, "round"),
    slots=between(0),
    invariant=_is_fleet,
)


def open_fleet(
    n_clients: int,
    n_channels: int,
    *,
    most: int,
    links: bool = False,
    weights: NDArray[np.float64] | None = None,
    max_delay: int = 0,
    proof_of_life: str = "outcome",
) -> Fleet:
    """Return the fleet before the first round: all ages are 1.

    ``most`` is the largest number of transmissions per round, S. With ``links`` the scheduler
    scores every link, and each client has its own slot.
    """
    slots, depth = (n_clients if links else most), max_delay + 1
    desk = open_desk(slots, n_channels, links)
    return Fleet(
        desk=desk._replace(
            ages=np.ones(slots),
            chosen=np.zeros(n_channels if links else most, np.int64),
        ),
        served=np.arange(slots),
        weight=np.ones(n_clients) if weights is None else weights,
        priorities=np.zeros(n_clients),
        present=np.ones(n_clients, np.int8),
        available=np.ones(n_channels, np.int8),
        since=np.zeros(n_clients),
        ages=np.zeros(n_clients),
        rate=np.full(n_channels, 0.5),
        sent=Sent(np.zeros(depth, ROUND), np.zeros((depth, most), ENTRY)),
        doubts=open_doubts(n_clients, depth, proof_of_life),
        links=(OwnLinks if links else SharedLinks)(np.array([most])),
        slots=np.array([slots]),
    )


def is_complete(fleet: Fleet) -> bool:
    """Whether all clients and channels are there, with a slot for each client."""
    slots = isinstance(fleet.links, SharedLinks) and len(fleet.served) == len(fleet.since)
    return slots and bool(fleet.present.all() and fleet.available.all())


def as_complete(fleet: Fleet) -> Fleet:
    """Return the fleet, marked as complete: less has to be compiled."""
    return fleet._replace(links=Everybody(fleet.links.most))
