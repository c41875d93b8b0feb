"""Public names that are imported on first use, so that importing a package is instant."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def import_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package; ``homes`` names the module of each public name."""

    def find(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
