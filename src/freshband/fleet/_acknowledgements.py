"""Acknowledgements as users give them: read, and compared with what is known."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband.errors import ParameterError, SequenceError, shown
from freshband.fleet._names import Names
from freshband.fleet._state import DELIVERED, LOST, MUTE, UNKNOWN, Sent

_WORDS = {LOST: "lost", DELIVERED: "delivered", MUTE: "lost"}


def read_mask(name: str, mask: Any, count: int, what: str) -> NDArray[np.int8] | int:
    """Return a mask as 0 and 1, or raise `ParameterError`; None means 1 everywhere."""
    if mask is None:
        return 1
    flags = _as_array(mask)
    whole = flags.dtype.kind in "iu" and ((flags == 0) | (flags == 1)).all()
    if flags.shape != (count,) or not (flags.dtype.kind == "b" or whole):
        raise ParameterError(
            f"{name} must hold True or False per {what}, {count} in all, got {shown(mask)}"
        )
    return flags.astype(np.int8)


def _as_array(values: Any) -> NDArray[Any]:
    """Return values as an array; one of a single object where they are of different lengths."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.array(None)


def read_outcome(delivered: Any, n_clients: int) -> NDArray[np.int8]:
    """Return acknowledgements as 1, 0 and -1 (unknown), or raise `ParameterError`."""
    if isinstance(delivered, np.ndarray) and delivered.dtype.kind in "bi" and delivered.ndim == 1:
        whole = delivered.astype(np.int8)
        if (
            delivered.dtype.kind == "b"
            or ((whole == delivered) & (whole >= UNKNOWN) & (whole <= DELIVERED)).all()
        ):
            return _of_length(whole, n_clients)
    values = delivered.tolist() if isinstance(delivered, np.ndarray) else delivered
    codes = {True: 1, False: 0, None: -1, -1: -1}
    try:
        if isinstance(values, str | bytes | Mapping | Set):  # these have no order by client
            raise TypeError
        outcome = [codes[value] for value in values]
    except (KeyError, TypeError):
        raise ParameterError(
            f"delivered must hold True, False or None (unknown) per client, got {shown(delivered)}"
        ) from None
    return _of_length(np.array(outcome, np.int8), n_clients)


def _of_length(outcome: NDArray[np.int8], n_clients: int) -> NDArray[np.int8]:
    if len(outcome) != n_clients:
        raise ParameterError(
            f"delivered must have one entry per client, {n_clients}, got {len(outcome)}"
        )
    return outcome


def read_news(
    sent: NDArray[np.void], delivered: Any, n_clients: int, clients: Any, teaches: Any
) -> NDArray[np.int8]:
    """Return the outcome of each transmission of a round; see `Coordinator.observe`."""
    if clients is None and teaches is None:
        outcome = read_outcome(delivered, n_clients)
        return outcome.take(sent["client"])
    count, place, heard = n_clients, sent["client"], np.ones(len(sent), np.bool_)
    if clients is not None:
        count, place, heard = _find(sent["client"], clients, n_clients)
    outcome = read_outcome(delivered, count)
    if teaches is not None:
        quiet = read_mask("teaches", teaches, count, "outcome") == 0
        outcome[quiet & (outcome == LOST)] = MUTE
    news = np.full(len(sent), UNKNOWN, np.int8)
    news[heard] = outcome[place]
    return news


def _find(
    senders: NDArray[np.int64], clients: Any, n_clients: int
) -> tuple[int, NDArray[np.int64], NDArray[np.bool_]]:
    """Return how many clients are listed, where the senders among them are, and which these are."""
    listed = _as_array(clients)
    if listed.ndim != 1 or (listed.dtype.kind not in "iu" and len(listed)):
        raise ParameterError(f"clients must be different numbers, got {shown(clients)}")
    order = np.argsort(listed)
    ranked = listed[order]
    if (ranked[1:] == ranked[:-1]).any():
        raise ParameterError(f"clients must be different numbers, got {shown(clients)}")
    if len(ranked) and not (ranked[0] >= 0 and ranked[-1] < n_clients):
        raise ParameterError(
            f"clients must be numbers from 0 to {n_clients - 1}, got {shown(clients)}"
        )
    place = np.searchsorted(ranked, senders)
    heard = place < len(ranked)
    heard[heard] = ranked[place[heard]] == senders[heard]
    return len(ranked), order[place[heard]], heard


def check_open(sent: Sent, when: int, latest: int, planned: bool, *, named: bool) -> None:
    """Raise `SequenceError` if a round cannot be observed."""
    row = sent.row(when)
    if not named and not planned and (latest == 0 or sent.rounds[row]["unknown"] == 0):
        raise SequenceError(f"nothing to observe: call plan() for round {latest + 1}")
    if when > latest:
        raise SequenceError(f"round {when} is not planned yet; the latest is {latest}")
    if sent.rounds[row]["round"] != when:
        raise SequenceError(
            f"round {when} is over: outcomes may be at most max_delay = {len(sent.rounds) - 1} "
            f"rounds late, and the latest round is {latest}"
        )


def check_news(sent: NDArray[np.void], when: int, news: NDArray[np.int8], names: Names) -> None:
    """Remove what is known already from the news; a contradiction raises `ParameterError`."""
    known = sent["outcome"]
    wrong = np.flatnonzero((known != UNKNOWN) & (news != UNKNOWN) & ((known == 1) != (news == 1)))
    if len(wrong):
        entry = wrong[0]
        name = names[int(sent["client"][entry])]
        raise ParameterError(
            f"the outcome of client {name!r} in round {when} is known: it was "
            f"{_WORDS[int(known[entry])]}, got {_WORDS[int(news[entry])]}"
        )
    news[known != UNKNOWN] = UNKNOWN


def still_open(sent: Sent, when: int, outcome: int) -> NDArray[np.int8]:
    """Return news of a round that give the same outcome to all that are unknown."""
    known = sent.of(when)["outcome"] != UNKNOWN
    return np.where(known, UNKNOWN, outcome).astype(np.int8)
