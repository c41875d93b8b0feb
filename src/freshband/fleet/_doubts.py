"""Whether clients that do not answer are still there.

A client that is silent may be dead. Its probability of being alive, P(alive), falls with every
transmission that stays unanswered for longer than answers take: how long they take is learnt from
all clients, as the chance that an outcome becomes known d rounds after its round. Urgency is
multiplied by P(alive), so that a dead client does not hold a good channel.

Nobody is doubted as long as outcomes arrive: then P(alive) is 1, exactly.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel
from freshband.states import FIXED, FLAGS, between, declare, record

_PROOFS = ("outcome", "delivery", "none")
_OUTCOME, _DELIVERY, _NONE = range(3)
_DEATH = 1e-3  # chance per round that a client dies
_RETURN = 0.1  # over the rounds of silence: chance per round that a dead client comes back
_LEAST = 1e-150  # of P(alive): a client whose urgency is 0 would count as absent
_TEACHES = 0.5  # P(alive) below which a loss says nothing about the channel
_DELAYS = np.dtype([("asked", np.float64), ("answered", np.float64)])
_STRAY = 1e-3  # share of answers that may get lost even if none has so far
_MANY = 1000.0  # answers after which older ones count half


class Doubts(NamedTuple):
    """What is known of the lives of M clients, and how long answers take, up to D rounds."""

    alive: NDArray[np.float64]  # (M,) P(alive)
    heard: NDArray[np.int64]  # (M,) the last round with a sign of life
    delays: NDArray[np.void]  # (D,) outcomes unknown (asked) d rounds later, and then answered
    rule: NDArray[np.void]  # what proves that a client is alive; whether any is doubted


declare(
    Doubts,
    alive=between(_LEAST, 1),
    heard=between(0, "round"),
    delays={"asked": between(1e-300, 1e300), "answered": between(0, 1e300)},
    rule={"proof": FIXED, "doubted": FLAGS},
)


def open_doubts(n_clients: int, depth: int, proof_of_life: str) -> Doubts:
    """Return the state before the first round: all clients are alive."""
    delays = np.zeros(depth, _DELAYS)
    delays["asked"], delays["answered"] = 1.0, 0.02  # answers may come at any time,
    delays[0] = (2.0, 1.0)  # half of them at once
    return Doubts(
        alive=np.ones(n_clients),
        heard=np.zeros(n_clients, np.int64),
        delays=delays,
        rule=record(proof=_PROOFS.index(proof_of_life), doubted=False),
    )


@kernel
def _begin_doubt(doubts: Any, client: int, t: int) -> None:
    """Count the rounds since the last sign of life, in which the client may have died."""
    if doubts.alive[client] == 1.0:
        doubts.alive[client] = math.pow(1.0 - _DEATH, float(t - doubts.heard[client]))
        doubts.rule[0]["doubted"] = 1


@kernel
def _weigh_silence(doubts: Any, client: int, chance: float) -> None:
    """Update P(alive) after a silence that has this chance if the client lives, else 1."""
    alive = doubts.alive[client] * chance
    doubts.alive[client] = max(alive / (alive + (1.0 - doubts.alive[client])), _LEAST)


@kernel
def _note_answer(doubts: Any, lag: int) -> None:
    delay = doubts.delays[lag]
    delay["answered"] += 1.0
    if delay["asked"] > _MANY:
        delay["asked"] *= 0.5
        delay["answered"] *= 0.5


@kernel
def judge_outcome(doubts: Any, place: Any, when: int, t: int) -> None:
    """Let an outcome of round ``when`` speak for or against its client, in round t.

    A loss that is more likely the silence of a dead client is marked: it says nothing about the
    channel, nor about the age of the client if it is alive after all.
    """
    proof = doubts.rule[0]["proof"]
    outcome, client = place["outcome"], place["client"]
    if proof == _NONE or outcome > 1:
        return
    if when == t:
        doubts.delays[0]["asked"] += doubts.alive[client]
    if outcome < 0:
        _begin_doubt(doubts, client, t)
        return
    _note_answer(doubts, t - when)
    if outcome == 1 or proof == _OUTCOME:
        doubts.alive[client] = 1.0
        doubts.heard[client] = max(doubts.heard[client], when)
    elif when > doubts.heard[client]:  # it has not shown since that it lives
        _begin_doubt(doubts, client, t)
        _weigh_silence(doubts, client, 1.0 - place["chance"])
        place["doubted"] = doubts.alive[client] < _TEACHES


@cold
def _let_die_or_return(doubts: Any, t: int) -> None:
    doubts.rule[0]["doubted"] = 0
    for client in range(len(doubts.alive)):
        alive = doubts.alive[client]
        if alive < 1.0:
            back = _RETURN / max(t - doubts.heard[client], 1)
            doubts.alive[client] = alive * (1.0 - _DEATH) + (1.0 - alive) * back
            doubts.rule[0]["doubted"] = 1


@kernel
def close_doubts(doubts: Any, sent: Any, t: int) -> None:
    """End round t: clients may die or return, and outcomes that are still unknown raise doubts."""
    if doubts.rule[0]["proof"] == _NONE:
        return
    if doubts.rule[0]["doubted"] == 1:
        _let_die_or_return(doubts, t)
    for row in range(len(sent.rounds)):
        when = sent.rounds[row]["round"]
        if sent.rounds[row]["unknown"] > 0 and 0 < when < t:
            lag = t - when
            before = doubts.delays[lag - 1]
            late = max(1.0 - before["answered"] / before["asked"], _STRAY)
            for entry in range(sent.rounds[row]["size"]):
                if sent.entries[row, entry]["outcome"] < 0:
                    client = sent.entries[row, entry]["client"]
                    if when > doubts.heard[client]:
                        _weigh_silence(doubts, client, late)
                    doubts.delays[lag]["asked"] += doubts.alive[client]
