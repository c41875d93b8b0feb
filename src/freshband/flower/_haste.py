"""Shorter pauses in Flower's own loops, for which Flower 1.41 has no settings."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Final

from flwr.supercore.inflatable.inflatable_utils import (
    pull_and_inflate_object_from_tree,
    pull_objects,
)

# A SuperNode asks for messages, and a ServerApp for answers, every three seconds.
_PAUSING: Final = ("flwr.supernode.start_client_internal", "flwr.superlink.grid.http_grid")
_FIRST: Final = 0.05  # seconds until an array that is still on its way is asked for again, not 1


def hasten(longest: float) -> None:
    """Make no pause between two questions longer than this, in what has been imported of Flower."""

    def sleep(seconds: float) -> None:
        time.sleep(min(seconds, longest))

    for name in _PAUSING:
        if name in sys.modules:
            vars(sys.modules[name])["time"] = SimpleNamespace(**vars(time) | {"sleep": sleep})
    for pull in (pull_objects, pull_and_inflate_object_from_tree):
        (pull.__kwdefaults__ or {})["initial_backoff"] = _FIRST
