"""Priority matching: by contribution and age of the clients, section V of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband._jit import kernel
from freshband.matching.base import (
    pairs_ranks,
    priorities_of,
    rank_clients,
    register,
    serve,
    serves_urgent,
    sort_clients,
    write_urgency,
)
from freshband.parameters import Parameters
from freshband.ranking import CLIENTS, take_best
from freshband.states import FIXED, between, declare, record

_SCALES = ("sum", "none", "running_max", "minmax")
_PEAKS = np.dtype([(name, np.float64) for name in ("spread", "age", "worth")])


@serves_urgent
@pairs_ranks
class _PriorityState(NamedTuple):
    """Running maxima, and the clients in order; W is the window, at least 1."""

    clients: NDArray[np.int64]  # (M,)
    priority: NDArray[np.float64]  # (M,) λ_i of the last round
    recent: NDArray[np.void]  # (W,) spread, oldest age and largest contribution of a round
    beta: NDArray[np.float64]  # (1,) β
    option: NDArray[np.void]  # scale, and whether maxima are over a window
    lot: NDArray[np.int64]  # (1,) breaks ties differently in every run


declare(
    _PriorityState,
    clients=between(0, "clients"),
    recent={name: between(0, 1e300) for name in _PEAKS.names or ()},
    beta=FIXED,
    option=FIXED,
    lot=FIXED,
)


@kernel
def _peak(recent: Any, windowed: bool, t: int, value: float) -> float:
    """Store this round's value and return the maximum over all rounds, or over the window."""
    if windowed:
        recent[t % len(recent)] = value
    else:
        recent[0] = max(recent[0], value)
    peak = 0.0
    for row in range(len(recent)):
        peak = max(peak, recent[row])
    return peak


@kernel
def _write_contributions(matching: Any, t: int, contributions: Any) -> None:
    """Write the contributions on the specified scale into ``priority``."""
    low, high, total = contributions[0], contributions[0], 0.0
    for j in range(len(contributions)):
        low = min(low, contributions[j])
        high = max(high, contributions[j])
        total += contributions[j]
    peak = _peak(matching.recent["worth"], matching.option[0]["windowed"], t, high)
    scale = matching.option[0]["scale"]
    for j in range(len(contributions)):
        worth = contributions[j]
        if scale == 0:
            worth = worth / total if total > 0.0 else 1.0 / len(contributions)
        elif scale == 2:
            worth = worth / peak if peak > 0.0 else 0.0
        elif scale == 3:
            worth = (worth - low) / (high - low) if high > low else 0.0
        matching.priority[j] = worth


@kernel
def _write_priorities(matching: Any, t: int, ages: Any, priorities: Any) -> None:
    """Write the priorities, equation (39)."""
    n_clients = len(ages)
    total, oldest = 0.0, 0.0
    for j in range(n_clients):
        total += ages[j]
        oldest = max(oldest, float(ages[j]))
    spread = 0.0
    for j in range(n_clients):
        spread += (ages[j] - total / n_clients) ** 2
    windowed = matching.option[0]["windowed"]
    most_spread = _peak(matching.recent["spread"], windowed, t, spread)
    oldest_ever = _peak(matching.recent["age"], windowed, t, oldest)
    beta = matching.beta[0] * (spread / most_spread if most_spread > 0.0 else 0.0)
    _write_contributions(matching, t, priorities)
    for j in range(n_clients):
        worth = matching.priority[j]
        matching.priority[j] = (1.0 - beta) * worth + beta * (ages[j] / oldest_ever)


@rank_clients.register(_PriorityState)
def _rank_clients(matching: _PriorityState, t: int, ages: Any, priorities: Any) -> None:
    _write_priorities(matching, t, ages, priorities)
    sort_clients(matching.priority[: len(ages)], t, matching.lot[0], matching.clients)


@serve.register(_PriorityState)
def _serve(
    matching: _PriorityState, t: int, ages: Any, priorities: Any, rng: Any, served: Any
) -> None:
    _write_priorities(matching, t, ages, priorities)
    for client in range(len(ages)):
        if ages[client] == 0.0:  # absent
            matching.priority[client] = -1.0
    take_best(matching.priority, t + CLIENTS + matching.lot[0], served)


@priorities_of.register(_PriorityState)
def _priorities(matching: _PriorityState, out: Any) -> bool:
    for j in range(len(out)):
        out[j] = matching.priority[j]
    return True


@write_urgency.register(_PriorityState)
def _write_urgency(matching: _PriorityState, ages: Any, out: Any) -> None:
    priorities_of(matching, out)


@register("priority")
@final
class Priority(Parameters):
    """The client with the highest priority, by contribution and age, gets the best channel.

    The priority of client i is `λ_i = (1 - β_t) C_i + β_t a_i / max a` with
    `β_t = β V_t / max V` (equations (36) to (40)): contribution `C_i` decides while ages are
    even, age decides when they are spread, `V_t = Σ (a_i - mean)^2`. Pairs ranks of clients with
    ranks of channels, so it maximises `Σ λ_i mean_{k(i)}`. Contributions come from training:
    `Coordinator.plan(contributions)`.

    Parameters
    ----------
    beta : float in [0, 1], default 0.9
        The largest weight of age, β.
    contribution_scale : {"sum", "none", "running_max", "minmax"}, default "sum"
        How contributions are scaled: to shares of their sum (ζ of (43)), not at all (as printed),
        by their largest value so far, or to [0, 1] in each round.
    norm_window : int >= 1 or None, default 1
        The number of most recent rounds, this one included, over which maxima are taken; None means
        all rounds, as printed.

    Notes
    -----
    With the defaults the oldest goes first and contribution decides among clients of the same age,
    of which there are many: a difference of one round weighs `0.9 / max a`, contributions `0.1 C`.
    So ages are as even as with `age`. The page about training compares the settings.

    The preset ``paper`` is equations (36) to (40) as printed: contributions are not scaled and
    maxima run over all rounds. It takes β = 1, with which ages count most.

    **Deviations** (erratum E8). The preset ``paper`` has only (1) and (4). (1) β is not given in
    the paper. (2) `C` lies in [0, 2] and the normalised age in (0, 1], so as printed contributions
    outweigh ages; the default scale makes both comparable. (3) As printed, `max V` and `max a` run
    over all rounds: after one bad period both ratios, and so the weight of ages, stay small; the
    default uses the present round. (4) `V_t / max V` is 0/0 while ages are even, and read as 0:
    then contribution alone decides.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("cucb+priority", n_clients=2, n_channels=2, seed=0)
    >>> for t in range(40):
    ...     plan = coordinator.plan(contributions=[0.2, 0.8])
    ...     _ = coordinator.observe(plan == 1)
    >>> coordinator.plan(contributions=[0.2, 0.8]).shape
    (2,)
    """

    needs_contributions: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"beta": 1.0, "contribution_scale": "none", "norm_window": None},
    }

    beta: float = Field(default=0.9, ge=0, le=1)
    contribution_scale: Literal["sum", "none", "running_max", "minmax"] = "sum"
    norm_window: int | None = Field(default=1, ge=1)

    def start(self, n_clients: int, lot: int = 0) -> _PriorityState:
        """Allocate the state."""
        return _PriorityState(
            clients=np.arange(n_clients),
            priority=np.zeros(n_clients),
            recent=np.zeros(self.norm_window or 1, _PEAKS),
            beta=np.array([self.beta]),
            option=record(
                scale=_SCALES.index(self.contribution_scale),
                windowed=self.norm_window is not None,
            ),
            lot=np.array([lot], np.int64),
        )
