"""What the server does with the updates that arrived: the paper's rule and three known ones.

All ride on the same channels and differ in who trains, what is kept and how it is applied:

=========  =======================  ===========================  =================================
algorithm  who trains in a round    what becomes of a lost one   how an arrived one is applied
=========  =======================  ===========================  =================================
async      whose update got through is sent again                weighted mean of all that arrived
fedasync   the same                 is sent again                one by one, mixed into the model
fedbuff    the same                 is sent again                mean of a full buffer
fedavg     everybody                is thrown away               mean of all that arrived
=========  =======================  ===========================  =================================

Each can keep an average of its recent models, to be handed out in place of the newest: `Averaged`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.federated.aggregation import staleness_weight, update_steps
from freshband.federated.settings import Training

__all__ = [
    "Algorithm",
    "Arrivals",
    "Averaged",
    "FedAsync",
    "FedBuff",
    "WeightedMean",
    "build_algorithm",
    "served_model",
]

Rows: TypeAlias = torch.Tensor | Mapping[int, torch.Tensor]
_AVERAGE: Final = "average"  # where `Averaged` remembers it


@dataclasses.dataclass(frozen=True)
class Arrivals:
    """What got through in a round.

    Attributes
    ----------
    delivered : bool array, shape (M,)
        `S_t`.
    updates : rows of P numbers, by client
        `G_i`; those of clients not in `S_t` must not be read.
    models : rows of P numbers, by client
        The client's model after local training, `w^E`; none unless the algorithm needs it.
    staleness : int64 array, shape (M,)
        Model versions missed.
    weights : float64 array, shape (M,)
        `ζ`, summing to 1.
    round : int
        Counted from 1.
    """

    delivered: NDArray[np.bool_]
    updates: Rows
    models: Rows
    staleness: NDArray[np.int64]
    weights: NDArray[np.float64]
    round: int = 0


class Algorithm(Protocol):
    """A rule of the server; what it remembers is `memory`, saved with the run."""

    @property
    def everybody_trains(self) -> bool:
        """Whether every client trains in every round, not only those whose update got through."""
        ...

    @property
    def needs_models(self) -> bool:
        """Whether `apply` reads the clients' models."""
        ...

    def open_memory(self, model: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return what the rule remembers before the first round."""
        ...

    def apply(
        self, model: torch.Tensor, memory: dict[str, torch.Tensor], arrivals: Arrivals
    ) -> tuple[NDArray[np.float64], int]:
        """Move the model, in place; return each update's step and the versions passed."""
        ...


@dataclasses.dataclass(frozen=True)
class WeightedMean:
    """The paper's rule (7), repaired: `w <- w - Σ s_i G_i`, see `update_steps`.

    If everybody trains on the newest model, so that only fresh arrivals count, it is FedAvg.
    """

    settings: Training
    everybody_trains: bool = False
    needs_models: bool = False

    def open_memory(self, model: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return nothing."""
        return {}

    def apply(
        self, model: torch.Tensor, memory: dict[str, torch.Tensor], arrivals: Arrivals
    ) -> tuple[NDArray[np.float64], int]:
        """Take the weighted mean of what arrived."""
        chosen = self.settings
        steps = update_steps(
            arrivals.weights,
            arrivals.delivered,
            chosen.client_lr,
            chosen.aggregation,
            chosen.server_lr,
        )
        _descend(model, arrivals, steps)
        return steps, 1


@dataclasses.dataclass(frozen=True)
class FedAsync:
    """Each arrival is mixed in: `w <- (1 - α s) w + α s w_i`, in the order of clients.

    References
    ----------
    Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019.
    """

    settings: Training
    everybody_trains: bool = False
    needs_models: bool = True

    def open_memory(self, model: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return nothing."""
        return {}

    def apply(
        self, model: torch.Tensor, memory: dict[str, torch.Tensor], arrivals: Arrivals
    ) -> tuple[NDArray[np.float64], int]:
        """Mix the models in one by one."""
        shares = self.settings.mixing * _discount(self.settings, arrivals.staleness)
        shares = np.where(arrivals.delivered, shares, 0.0)
        for client in np.flatnonzero(arrivals.delivered).tolist():
            model.lerp_(arrivals.models[client], float(shares[client]))
        return shares, 1


@dataclasses.dataclass(frozen=True)
class FedBuff:
    """Arrivals gather in a buffer; a full one moves the model by its mean.

    A version of the model passes with each such step, and staleness counts those.

    References
    ----------
    Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022.
    """

    settings: Training
    everybody_trains: bool = False
    needs_models: bool = False

    def open_memory(self, model: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the empty buffer and its count."""
        return {"buffer": torch.zeros_like(model), "buffered": torch.zeros(1, dtype=torch.int64)}

    def apply(
        self, model: torch.Tensor, memory: dict[str, torch.Tensor], arrivals: Arrivals
    ) -> tuple[NDArray[np.float64], int]:
        """Gather, and step whenever the buffer is full."""
        chosen, passed = self.settings, 0
        shares = _discount(chosen, arrivals.staleness)
        step = chosen.server_lr * chosen.client_lr / chosen.buffer_size
        buffer, buffered = memory["buffer"], int(memory["buffered"])
        for client in np.flatnonzero(arrivals.delivered).tolist():
            buffer.add_(arrivals.updates[client], alpha=float(shares[client]))
            buffered += 1
            if buffered == chosen.buffer_size:
                model.sub_(buffer, alpha=step)
                buffer.zero_()
                buffered, passed = 0, passed + 1
        memory["buffered"].fill_(buffered)
        return np.where(arrivals.delivered, step * shares, 0.0), passed


@dataclasses.dataclass(frozen=True)
class Averaged:
    """Another rule, and an average of its recent models: clients train on the newest as ever.

    The mean of a run's later models lies nearer to where they are going than the last one does,
    which is where the last few clients heard have pulled it. After t rounds model s counts in
    proportion to about `s^recency`; with 16 half of the weight lies on the last 4 % of the rounds
    and nine tenths on the last 13 %, however long the run will be.

    Parameters
    ----------
    rule : Algorithm
        What moves the model.
    recency : int >= 0, default 16
        0 is the mean of all models.

    References
    ----------
    Shamir, Zhang, "Stochastic gradient descent for non-smooth optimization: convergence results
    and optimal averaging schemes", ICML 2013: polynomial-decay averaging.
    """

    rule: Algorithm
    recency: int = 16

    @property
    def everybody_trains(self) -> bool:
        """As the rule has it."""
        return self.rule.everybody_trains

    @property
    def needs_models(self) -> bool:
        """As the rule has it."""
        return self.rule.needs_models

    def open_memory(self, model: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return what the rule remembers, the average and how many models are in it."""
        counted = torch.zeros(1, dtype=torch.int64)
        return {**self.rule.open_memory(model), _AVERAGE: model.clone(), "averaged": counted}

    def apply(
        self, model: torch.Tensor, memory: dict[str, torch.Tensor], arrivals: Arrivals
    ) -> tuple[NDArray[np.float64], int]:
        """Let the rule move the model, then mix the model into the average."""
        moved = self.rule.apply(model, memory, arrivals)
        counted = int(memory["averaged"]) + 1
        memory["averaged"].fill_(counted)
        memory[_AVERAGE].lerp_(model, (self.recency + 1) / (self.recency + counted))
        return moved


def served_model(model: torch.Tensor, memory: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the model to hand out: the average if there is one, else the newest."""
    return memory.get(_AVERAGE, model)


def build_algorithm(settings: Training) -> Algorithm:
    """Return the algorithm the settings name."""
    kinds: dict[str, Callable[[Training], Algorithm]] = {
        "async": WeightedMean,
        "fedavg": partial(WeightedMean, everybody_trains=True),
        "fedasync": FedAsync,
        "fedbuff": FedBuff,
    }
    if settings.algorithm not in kinds:
        raise ParameterError(f"algorithm must be one of {', '.join(kinds)}")
    rule = kinds[settings.algorithm](settings)
    return Averaged(rule) if settings.served == "average" else rule


def _discount(settings: Training, staleness: NDArray[np.int64]) -> NDArray[np.float64]:
    return staleness_weight(
        np.maximum(staleness, 0),
        settings.staleness,
        a=settings.staleness_a,
        b=settings.staleness_b,
    )


def _descend(model: torch.Tensor, arrivals: Arrivals, steps: NDArray[np.float64]) -> None:
    for client in np.flatnonzero(
        arrivals.delivered
    ).tolist():  # other rows may hold anything, NaN too
        model.sub_(arrivals.updates[client], alpha=float(steps[client]))
