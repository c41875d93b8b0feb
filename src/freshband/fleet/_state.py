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

from freshband._rounds import Desk, open_desk
from freshband.fleet._doubts import Doubts, open_doubts
from freshband.states import not_saved

UNKNOWN, LOST, DELIVERED, MUTE = -1, 0, 1, 2  # MUTE: lost, which says nothing about the channel


class Sent(NamedTuple):
    """Transmissions of the last D rounds, at most S in each; round r is in row r mod D."""

    round: NDArray[np.int64]  # (D,) 0 for none
    size: NDArray[np.int64]  # (D,) number of transmissions
    unknown: NDArray[np.int64]  # (D,) number of those whose outcome is unknown
    client: NDArray[np.int64]  # (D, S)
    channel: NDArray[np.int64]  # (D, S)
    outcome: NDArray[np.int8]  # (D, S)
    chance: NDArray[np.float64]  # (D, S) estimated success rate
    before: NDArray[np.float64]  # (D, S) L of the client before the round


class SharedLinks(NamedTuple):
    """Marks a fleet whose slots are filled with the most urgent clients."""

    most: NDArray[np.int64]  # (1,) the largest number of transmissions per round, S


class OwnLinks(NamedTuple):
    """Marks a fleet with a slot for every client, because every link is scored."""

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
    links: SharedLinks | OwnLinks
    slots: NDArray[np.int64]  # (1,) the number of slots in use


not_saved(Fleet, "ages", "rate")  # written in every round before they are read


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
        sent=Sent(
            round=np.zeros(depth, np.int64),
            size=np.zeros(depth, np.int64),
            unknown=np.zeros(depth, np.int64),
            client=np.zeros((depth, most), np.int64),
            channel=np.zeros((depth, most), np.int64),
            outcome=np.zeros((depth, most), np.int8),
            chance=np.zeros((depth, most)),
            before=np.zeros((depth, most)),
        ),
        doubts=open_doubts(n_clients, depth, proof_of_life),
        links=(OwnLinks if links else SharedLinks)(np.array([most])),
        slots=np.array([slots]),
    )
