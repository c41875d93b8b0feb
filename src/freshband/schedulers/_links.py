"""What schedulers that score every link have in common."""

from __future__ import annotations

from typing import Any

from freshband._jit import kernel


@kernel
def offer_all(chosen: Any) -> None:
    """Offer every channel to the matching; ``chosen`` has the shape (N,)."""
    for channel in range(len(chosen)):
        chosen[channel] = channel


@kernel
def average_clients(rates: Any, out: Any) -> None:
    """Write the mean over the clients of rates of shape (M, N)."""
    for channel in range(len(out)):
        total = 0.0
        for client in range(len(rates)):
            total += rates[client, channel]
        out[channel] = total / len(rates)
