"""The round with real clients: the paper's asynchronous round as a Flower ServerApp.

`AsyncRounds` is the loop a ServerApp runs; `channel_mod` is what its ClientApp needs; an `Uplink`
says what "delivered" means; a `StrategyAggregation` uses a Flower strategy in place of freshband's
own rules. `build_rounds` puts them together from the same settings as ``freshband train``, and
`Scheduled` puts a scheduler around the strategy of an app one already has.

Needs the extra ``flower``: ``pip install 'freshband[flower]'``.
"""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from freshband._lazy import import_on_use
from freshband.errors import FreshbandError

__all__ = [
    "AsyncRounds",
    "DeadlineUplink",
    "Scheduled",
    "SimulatedUplink",
    "StrategyAggregation",
    "Uplink",
    "build_rounds",
    "channel_mod",
    "read_training",
]

if importlib.util.find_spec("flwr") is None:
    raise FreshbandError("Flower is missing; install it with: pip install 'freshband[flower]'")

# Nothing is reported to anybody, unless the user has set these otherwise.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

if TYPE_CHECKING:
    from freshband.federated.uplink import DeadlineUplink, SimulatedUplink, Uplink
    from freshband.flower.aggregation import StrategyAggregation
    from freshband.flower.building import build_rounds, read_training
    from freshband.flower.mod import channel_mod
    from freshband.flower.scheduled import Scheduled
    from freshband.flower.server import AsyncRounds

__getattr__, __dir__ = import_on_use(  # a client needs no PyTorch, and the command line no Flower
    __name__,
    {
        "..federated.uplink": ["DeadlineUplink", "SimulatedUplink", "Uplink"],
        ".aggregation": ["StrategyAggregation"],
        ".building": ["build_rounds", "read_training"],
        ".mod": ["channel_mod"],
        ".scheduled": ["Scheduled"],
        ".server": ["AsyncRounds"],
    },
)
