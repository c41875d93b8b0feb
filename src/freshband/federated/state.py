"""What changes from round to round, saved and restored as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.errors import ParameterError

__all__ = ["Pending", "PendingUpdates", "ServerState", "copy_into"]


@dataclasses.dataclass(frozen=True, eq=False)
class Pending:
    """A client's update that waits to get through.

    Attributes
    ----------
    update : tensor, shape (P,)
        `G_i` (6). The server writes to it if it must be shortened.
    version : int
        Of the model it began from.
    trained : tensor, shape (P,), optional
        The client's model that goes with it, where algorithm or valuation read it.
    error : float
        Error of the model without this client (35), NaN if not reported.
    problem : str
        Why it must be refused, or "".
    """

    update: torch.Tensor
    version: int
    trained: torch.Tensor | None = None
    error: float = math.nan
    problem: str = ""

    def replace(self, update: torch.Tensor, client_lr: float) -> None:
        """Put another update in place of this one; the model goes with it."""
        if self.trained is not None:
            self.trained.add_(self.update - update, alpha=client_lr)
        self.update.copy_(update)


@dataclasses.dataclass
class PendingUpdates:
    """What the clients hold until it gets through.

    Attributes
    ----------
    updates : tensor, shape (M, P)
        Each client's update `G_i` (6).
    trained : tensor, shape (M, P)
        The client's model that goes with it; no rows where nobody needs them.
    downloaded : int64 array, shape (M,)
        Version of the model it began from.
    errors : float64 array, shape (M,)
        Error of the model without the client, which it reports with the update (35).
    """

    updates: torch.Tensor
    trained: torch.Tensor
    downloaded: NDArray[np.int64]
    errors: NDArray[np.float64]

    def of(self, client: int) -> Pending:
        """Return one client's, as views."""
        return Pending(
            self.updates[client],
            int(self.downloaded[client]),
            self.trained[client] if len(self.trained) else None,
            float(self.errors[client]),
        )

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return everything as tensors, which are views of the present state."""
        return {
            "updates": self.updates,
            "trained": self.trained,
            "arrays.downloaded": torch.from_numpy(self.downloaded),
            "arrays.carried": torch.from_numpy(self.errors),
        }


@dataclasses.dataclass
class ServerState:
    """What the server knows, apart from its coordinator and its valuation.

    Attributes
    ----------
    round : int
        Rounds done.
    version : int
        Of the model: how many steps the server could have made.
    model : tensor, shape (P,)
        `w_t`.
    memory : tuple
        What the algorithm remembers, as tensors and arrays.
    receivers : bool array, shape (M,)
        Who gets the model next.
    weights : float64 array, shape (M,)
        `ζ`.
    worked : int64 array, shape (M,)
        Rounds a client has worked on the model it was given; empty where it works for one alone.
    """

    round: int
    version: int
    model: torch.Tensor
    memory: Any
    receivers: NDArray[np.bool_]
    weights: NDArray[np.float64]
    worked: NDArray[np.int64]

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return everything but the counts as tensors, which are views of the present state."""
        tensors = {"model": self.model}
        tensors |= {f"memory.{name}": value for name, value in _named(self.memory).items()}
        tensors["arrays.receivers"] = torch.from_numpy(self.receivers)
        tensors["arrays.weights"] = torch.from_numpy(self.weights)
        if len(self.worked):
            tensors["arrays.worked"] = torch.from_numpy(self.worked)
        return tensors


def _named(memory: Any) -> dict[str, torch.Tensor]:
    """Return what a rule remembers by name; a wrapper's memory holds that of its rule."""
    found: dict[str, torch.Tensor] = {}
    for name, value in zip(getattr(memory, "_fields", ()), memory, strict=True):
        if isinstance(value, tuple):
            parts = _named(value)
        else:
            parts = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value}
        for twice in parts.keys() & found.keys():
            raise ParameterError(f"two rules remember {twice!r}: one must call it otherwise")
        found |= parts
    return found


def copy_into(views: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor]) -> None:
    """Copy what was saved into views of a state.

    Raises
    ------
    KeyError, ValueError
        If a tensor is missing, or has another shape or type.
    """
    for name, into in views.items():
        held = saved[name]
        if held.shape != into.shape or held.dtype != into.dtype:
            raise ValueError(
                f"{name!r} must be {tuple(into.shape)} of {into.dtype}, got "
                f"{tuple(held.shape)} of {held.dtype}"
            )
        into.copy_(held)
