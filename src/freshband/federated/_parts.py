"""What goes into a server, from the settings of a run, and checks of what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from freshband.coordinator import Coordinator
from freshband.errors import ParameterError, RuleError, reason, shown
from freshband.federated._state import ServerState, copy_into
from freshband.federated._valuation import Valuation
from freshband.federated.algorithms import Algorithm, Arrivals
from freshband.federated.settings import Training
from freshband.fleet.conditions import SimulatedFleet
from freshband.fleet.options import FleetOptions


def parts_of(settings: Training, n_channels: int, fleet: SimulatedFleet) -> dict[str, Any]:
    """Return what the settings of a run say of its server, as arguments of `FederatedServer`."""
    rule, policy = settings.contribution_rule, settings.build_policy()
    policy.check_late(fleet.ack_delay, fleet.links == "differ")
    return {
        "coordinator": Coordinator(
            policy, settings.clients, n_channels, settings.seed,
            run=settings.run, horizon=settings.rounds,
            **{name: getattr(fleet, name) for name in FleetOptions.model_fields},
        ),
        "ack_delay": fleet.ack_delay,
        "rounds": settings.rounds,
        "valuation": None if rule is None else Valuation(
            settings.clients, settings.client_lr, rule=rule, options=settings.valuing,
            weigh=settings.weights == "contribution",
        ),
        "length_limit": settings.length_limit,
        "clip_norm": settings.clip_norm,
    }  # fmt: skip


def check_move(algorithm: Algorithm, moved: Any, n_clients: int) -> tuple[NDArray[np.float64], int]:
    """Return what a rule has returned, or say what is wrong with that of the user's own."""
    name = f"{type(algorithm).__name__}.apply"
    if not isinstance(moved, tuple) or len(moved) != 2:
        raise RuleError(f"{name} must return steps and the versions passed, got {shown(moved)}")
    steps, passed = moved
    if not isinstance(steps, np.ndarray) or steps.shape != (n_clients,) or steps.dtype.kind != "f":
        raise RuleError(f"{name} must return {n_clients} steps as a float array first")
    if not isinstance(passed, int | np.integer) or passed < 0:
        raise RuleError(f"{name} must return the versions passed second, got {shown(passed)}")
    return steps, int(passed)


@contextmanager
def undoing(
    algorithm: Algorithm, state: ServerState, lengths: NDArray[np.float64], arrivals: Arrivals
) -> Iterator[None]:
    """Put the server's state back if a rule of the user's own breaks, and name round and clients.

    ``lengths`` are those of updates before the round. Rules of the package are trusted.
    """
    if _is_ours(algorithm):
        yield
        return
    before = {name: tensor.clone() for name, tensor in state.to_tensors().items()}
    try:
        yield
        if not bool(torch.isfinite(state.model).all()):
            raise RuleError(f"{type(algorithm).__name__}.apply made a model that is not finite")
    except Exception as error:
        copy_into(state.to_tensors(), before)
        state.lengths[:] = lengths
        told = reason(error) if isinstance(error, RuleError) else f"{type(error).__name__}: {error}"
        who = ", ".join(map(str, arrivals.clients)) or "nobody"
        raise RuleError(
            f"{' '.join(told.split())}, in round {arrivals.round} with updates of client {who}"
        ) from error


def _is_ours(algorithm: Any) -> bool:
    inner = getattr(algorithm, "rule", None)  # of a wrapper
    ours = type(algorithm).__module__.startswith("freshband.")
    return ours and (inner is None or _is_ours(inner))


def read_weights(weights: ArrayLike | None, n_clients: int) -> NDArray[np.float64]:
    if weights is None:
        return np.full(n_clients, 1.0 / n_clients)
    zeta = np.asarray(weights, np.float64)
    if zeta.shape != (n_clients,) or not np.isfinite(zeta).all() or (zeta < 0).any():
        raise ParameterError(f"weights must be {n_clients} numbers >= 0, got {weights!r}")
    if not zeta.sum() > 0:
        raise ParameterError("weights must not all be 0")
    return np.asarray(zeta / zeta.sum())
