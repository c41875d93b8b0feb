"""freshband: fresh updates over unreliable channels.

Examples
--------
>>> import freshband
>>> coordinator = freshband.Coordinator(n_clients=2, n_channels=5, seed=0)
>>> plan = coordinator.plan()
>>> coordinator.observe([True, False])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freshband._lazy import import_on_use

__version__ = "0.1.0"

__all__ = [
    "Coordinator",
    "__version__",
    "load_result",
    "parse_policy",
    "save_result",
    "simulate",
    "summarise",
    "warm_up",
]

if TYPE_CHECKING:
    from freshband._policy import parse_policy
    from freshband.coordinator import Coordinator
    from freshband.simulation import load_result, save_result, simulate, summarise
    from freshband.warming import warm_up

__getattr__, __dir__ = import_on_use(  # so that ``import freshband`` is instant
    __name__,
    {
        "._policy": ["parse_policy"],
        ".coordinator": ["Coordinator"],
        ".simulation": ["load_result", "save_result", "simulate", "summarise"],
        ".warming": ["warm_up"],
    },
)
