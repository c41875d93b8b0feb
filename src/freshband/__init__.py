"""freshband: fresh updates over channels nobody can trust.

>>> import freshband
>>> coordinator = freshband.Coordinator("glr-cucb", n_clients=2, n_channels=5, seed=0)
>>> plan = coordinator.plan()
>>> coordinator.observe([True, False])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Coordinator", "__version__", "load_result", "save_result", "simulate", "summarise"]

if TYPE_CHECKING:
    from freshband.coordinator import Coordinator
    from freshband.simulation import load_result, save_result, simulate, summarise

_HOMES = {
    "Coordinator": "freshband.coordinator",
    "load_result": "freshband.simulation",
    "save_result": "freshband.simulation",
    "simulate": "freshband.simulation",
    "summarise": "freshband.simulation",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that ``import freshband`` is instant."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'freshband' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
