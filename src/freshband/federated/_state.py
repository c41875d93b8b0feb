"""What changes from round to round, saved and restored as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.errors import RuleError, shown

# What the first checkpoints do not have.
NEWER = ("reached", "there", "given", "verdicts", "on_the_way", "lengths")
_REMEMBERED = 5  # lengths of each client
UNKNOWN, LOST, TAKEN, REFUSED, EMPTY = range(-1, 4)  # what became of a transmission


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """What the server wants of a round, which is counted from 1."""

    round: int
    assignment: NDArray[np.int64]  # (M,), the channel of each client, -1 for none
    receivers: NDArray[np.int64]  # clients that get the model and train on it
    further: NDArray[np.int64]  # clients that go on training while their update waits
    present: NDArray[np.bool_] | None = None  # (M,), clients that are there; None for all

    def there(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the clients that are there."""
        return values if self.present is None else values[self.present]


@dataclasses.dataclass(frozen=True, eq=False)
class Pending:
    """A client's update that waits to get through."""

    update: torch.Tensor  # (P,), `G_i` (6); the server writes to it if it must be shortened
    version: int  # of the model it began from
    trained: torch.Tensor | None = None  # (P,), the model that goes with it, where it is needed
    error: float = math.nan  # of the model without this client (35), if it is reported
    problem: str = ""  # why it must be refused

    def replace(self, update: torch.Tensor, client_lr: float) -> None:
        """Put another update in place of this one; the model goes with it."""
        if self.trained is not None:
            self.trained.add_(self.update - update, alpha=client_lr)
        self.update.copy_(update)


@dataclasses.dataclass
class PendingUpdates:
    """What the clients hold until it gets through."""

    updates: torch.Tensor  # (M, P), each client's update `G_i` (6)
    trained: torch.Tensor  # (M, P), the models that go with them; no rows where nobody needs them
    downloaded: NDArray[np.int64]  # (M,), versions of the models they began from
    errors: NDArray[np.float64]  # (M,), of the models without the client, reported with it (35)
    kept: torch.Tensor  # (M, L), what of the models stays with the clients

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
            **({"kept": self.kept} if self.kept.shape[1] else {}),
        }


@dataclasses.dataclass
class ServerState:
    """What the server knows, apart from its coordinator and its valuation."""

    round: int  # rounds done
    version: int  # of the model: the number of steps the server could have made
    model: torch.Tensor  # (P,), `w_t`
    memory: Any  # what the algorithm remembers, as a tuple of tensors and arrays
    receivers: NDArray[np.bool_]  # (M,), who gets the model next
    weights: NDArray[np.float64]  # (M,), `ζ`
    worked: NDArray[np.int64]  # (M,), rounds on the model a client has; empty where it is always 1
    reached: NDArray[np.int64]  # (M,), rounds from which the ages count: of the last success
    there: NDArray[np.bool_]  # (M,), who was there in the last round
    given: NDArray[np.int64]  # (M,), rounds in which clients got the model they work on
    verdicts: NDArray[np.int8]  # (M,), on the updates clients hold: 0, TAKEN or REFUSED
    on_the_way: NDArray[np.int8]  # (D, M), acknowledgements of the last D rounds, oldest first
    lengths: NDArray[np.float64]  # (M, 5), `η |G|` of each client's last updates, NaN for none

    @classmethod
    def first(
        cls, model: torch.Tensor, memory: Any, weights: NDArray[np.float64], *,
        counts_work: bool, delay: int,
    ) -> ServerState:  # fmt: skip
        """Return the state before the first round: everybody gets the model."""
        n_clients = len(weights)
        return cls(
            round=0,
            version=0,
            model=model,
            memory=memory,
            receivers=np.ones(n_clients, np.bool_),
            weights=weights,
            worked=np.zeros(n_clients if counts_work else 0, np.int64),
            reached=np.zeros(n_clients, np.int64),
            there=np.ones(n_clients, np.bool_),
            given=np.zeros(n_clients, np.int64),
            verdicts=np.zeros(n_clients, np.int8),
            on_the_way=np.full((delay, n_clients), UNKNOWN, np.int8),
            lengths=np.full((n_clients, _REMEMBERED), np.nan),
        )

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return everything but the counts as tensors, which are views of the present state."""
        tensors = {"model": self.model}
        tensors |= {f"memory.{name}": value for name, value in _named(self.memory).items()}
        tensors["arrays.receivers"] = torch.from_numpy(self.receivers)
        tensors["arrays.weights"] = torch.from_numpy(self.weights)
        for name in ("worked", *NEWER):
            if len(getattr(self, name)):
                tensors[f"arrays.{name}"] = torch.from_numpy(getattr(self, name))
        return tensors


def _named(memory: Any) -> dict[str, torch.Tensor]:
    """Return what a rule remembers by name; a wrapper's memory holds that of its rule."""
    found: dict[str, torch.Tensor] = {}
    if not isinstance(memory, tuple) or len(memory) != len(getattr(memory, "_fields", ())):
        raise RuleError(f"a rule must remember a NamedTuple of tensors, got {shown(memory)}")
    for name, value in zip(getattr(memory, "_fields", ()), memory, strict=True):
        if isinstance(value, tuple):
            parts = _named(value)
        else:
            parts = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value}
        for twice in parts.keys() & found.keys():
            raise RuleError(f"two rules remember {twice!r}: one must call it otherwise")
        found |= parts
    return found


def copy_into(views: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor]) -> None:
    """Copy what was saved into views of a state; `KeyError` or `ValueError` if it does not fit."""
    for name, into in views.items():
        held = saved[name]
        if held.shape != into.shape or held.dtype != into.dtype:
            raise ValueError(
                f"{name!r} must be {tuple(into.shape)} of {into.dtype}, got "
                f"{tuple(held.shape)} of {held.dtype}"
            )
        into.copy_(held)
