"""Compile policies before they are needed: the first call of each takes seconds otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from freshband.coordinator import Coordinator

__all__ = ["warm_up"]


def warm_up(*policies: str, **settings: Any) -> None:
    """Compile all that coordinators with these policies call, or load it from the disk.

    Call it where an application starts, or once when a machine image is built: compiled code is
    stored, and later processes load it. ``Coordinator(..., warm_up=True)`` does the same for one
    coordinator.

    Parameters
    ----------
    *policies : str
        Policies such as ``"bayes"``; by default the default policy.
    **settings
        Further arguments of `Coordinator` that choose code, such as ``links="differ"``.

    Examples
    --------
    >>> import freshband
    >>> freshband.warm_up("cucb", "bayes")
    """
    from freshband._default import DEFAULT_POLICY
    from freshband.coordinator import Coordinator

    for policy in policies or (DEFAULT_POLICY,):
        Coordinator(policy, **{"n_clients": 2, "n_channels": 3, **settings}, warm_up=True)


def compile_for(coordinator: Coordinator) -> None:
    """Play rounds with a copy of a coordinator: all clients there or not, outcomes late or not."""
    copy = type(coordinator).from_bytes(coordinator.to_bytes())
    n_clients, wanted = copy.n_clients, copy.policy.needs_contributions
    worth = np.ones(n_clients) if wanted else None
    for here in (None, np.arange(n_clients) > 0):  # compiled apart
        copy.plan(worth, present=here)
        copy.observe(np.full(n_clients, -1))
        copy.observe(np.ones(n_clients, np.int8), round=copy.round)
    _ = copy.channel_means, copy.beliefs
