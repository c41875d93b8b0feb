"""When forecasts have failed: a client was not heard for longer than they can explain.

For each client there is the logarithm of the probability, as forecast, that all its transmissions
since the last success were lost. The guarantee of `bayes` rests on it.
"""

from __future__ import annotations

import math
from typing import Any

from freshband._jit import kernel

_DOUBT = (1e4, 1e2)  # a drought less likely than 1 / (M (10^4 + 100 t)) is answered by chance
_LEAST = 0.05  # the success rate a forecast claims at least: who expects nothing is never wrong


@kernel
def note_outcome(drought: Any, client: int, forecast: float, outcome: int) -> None:
    """Note an outcome and the success rate that was forecast."""
    if client < len(drought):
        claim = min(max(forecast, _LEAST), 1.0 - _LEAST)
        loss = math.log(1.0 - claim)
        drought[client] = 0.0 if outcome == 1 else drought[client] + loss


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
def is_beaten(drought: Any, clients: int, t: int) -> int:
    """Whether a client was not heard for so long that the forecasts cannot be right."""
    worst = 0.0
    for client in range(min(clients, len(drought))):
        worst = min(worst, drought[client])
    return int(-worst > math.log(clients * (_DOUBT[0] + _DOUBT[1] * t)))
