"""When forecasts have failed: a client was not heard for longer than they can explain.

For each client there is the logarithm of the probability, as forecast, that all its transmissions
since the last success were lost. Beyond the limit all losses count alike, so that it tells how
many there were. The guarantee of `bayes` rests on it.
"""

from __future__ import annotations

import math
from typing import Any

from freshband._jit import kernel

_DOUBT = (1e4, 1e2)  # a drought less likely than 1 / (M (10^4 + 100 t)) is answered by chance
_LEAST = 0.05  # the success rate a forecast claims at least: who expects nothing is never wrong
_PATIENCE = 200  # losses after which chance has failed a client as well
_SELDOM = 0.1  # the share of rounds that are still left to chance for its sake


@kernel
def _limit(clients: int, t: int) -> float:
    """Return how unlikely losses may be, as minus a logarithm."""
    return math.log(clients * (_DOUBT[0] + _DOUBT[1] * t))


@kernel
def note_outcome(drought: Any, client: int, t: int, forecast: float, outcome: int) -> None:
    """Note an outcome and the success rate that was forecast."""
    if client < len(drought):
        claim = min(max(forecast, _LEAST), 1.0 - _LEAST)
        before, limit = drought[client], -_limit(len(drought), t)
        after = before + math.log(1.0 - claim)
        if after < limit:
            after = min(before, limit) + math.log(1.0 - _LEAST)
        drought[client] = 0.0 if outcome == 1 else after


@kernel
def note_late(drought: Any, client: int, outcome: int) -> None:
    """Let a success that came late end the losses of its client, as one in time does.

    With more clients than places nobody knows here whose place it was: then it ends those of all.
    """
    if outcome == 1:
        for place in range(len(drought)):
            if place == client or client >= len(drought):
                drought[place] = 0.0


@kernel
def leave_to_chance(drought: Any, clients: int, t: int, rng: Any) -> int:
    """Whether a client was not heard for so long that the forecasts cannot be right.

    Then chance decides, until it has failed the client as well: nobody may be there to be heard.
    Afterwards chance decides now and then.
    """
    limit, lost = _limit(clients, t), False
    patience = -_PATIENCE * math.log(1.0 - _LEAST)
    for client in range(min(clients, len(drought))):
        beyond = -drought[client] - limit
        if beyond > patience:
            lost = True
        elif beyond > 0.0:
            return 1
    return int(lost and rng.random() < _SELDOM)
