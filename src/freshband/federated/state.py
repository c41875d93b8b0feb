"""What changes from round to round: the server's state, saved and restored as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray

__all__ = ["ServerState"]

_TENSORS = ("model", "updates", "trained", "gradients", "models")


@dataclasses.dataclass
class ServerState:
    """Everything that changes from round to round, apart from the coordinator.

    Attributes
    ----------
    round : int
        Rounds done.
    version : int
        Of the model: how many steps the server could have made.
    model : tensor, shape (P,)
        `w_t`.
    updates : tensor, shape (M, P)
        Each client's pending update `G_i` (6).
    trained : tensor, shape (M, P)
        Each client's model that goes with it; no rows where nobody needs them.
    gradients, models : tensors, shape (M, P)
        What the server last received of each client; no rows without contributions.
    memory : dict of tensors
        What the algorithm remembers.
    arrays : dict of arrays
        Shape (M,) each: ``downloaded`` (version a pending update began from), ``receivers`` (who
        gets the model next), ``carried`` (error a client will report), ``errors`` (last
        reported), ``heard``, ``weights`` (ζ), ``contributions``, ``worth`` (FedCE's sum over
        rounds); where clients go on while they wait, ``worked`` (rounds on their model).
    """

    round: int
    version: int
    model: torch.Tensor
    updates: torch.Tensor
    trained: torch.Tensor
    gradients: torch.Tensor
    models: torch.Tensor
    memory: dict[str, torch.Tensor]
    arrays: dict[str, NDArray[Any]]

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return everything but the counts as tensors, which are views of the present state."""
        tensors = {name: getattr(self, name) for name in _TENSORS}
        tensors |= {f"memory.{name}": value for name, value in self.memory.items()}
        tensors |= {f"arrays.{name}": torch.from_numpy(a) for name, a in self.arrays.items()}
        return tensors

    def take(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy what `to_tensors` returned into this state.

        Raises
        ------
        KeyError, ValueError
            If a tensor is missing, or has another shape or type.
        """
        for name, into in self.to_tensors().items():
            saved = tensors[name]
            if saved.shape != into.shape or saved.dtype != into.dtype:
                raise ValueError(
                    f"{name!r} must be {tuple(into.shape)} of {into.dtype}, got "
                    f"{tuple(saved.shape)} of {saved.dtype}"
                )
            into.copy_(saved)
