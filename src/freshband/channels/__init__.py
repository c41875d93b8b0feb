"""Channel models, one per file, by name or by class.

Examples
--------
>>> from freshband.channels import build, open_air
>>> air = open_air(build("piecewise", n_channels=3, n_breakpoints=2), rounds=9, seed=0)
>>> air.block(9).states.shape
(9, 3)
>>> air.breakpoints
array([4, 7])

The page *Add your own scheduler* shows how to write your own channel model, one class in any file.
"""

from freshband.channels.base import (
    Block,
    ChannelModel,
    LinkModel,
    Stream,
    build,
    links_differ,
    open_air,
    register,
    registry,
)
from freshband.channels.besson import Besson1, Besson2, Besson4, BessonRandom
from freshband.channels.correlated import Correlated
from freshband.channels.drifting import Drifting
from freshband.channels.gilbert_elliott import GilbertElliott
from freshband.channels.instances import (
    Fig2,
    Fig3Extreme,
    Fig3Piecewise,
    HardPiecewise,
    HardStationary,
)
from freshband.channels.jammer import Jammer
from freshband.channels.mixed import Mixed
from freshband.channels.periodic import Periodic
from freshband.channels.piecewise import Piecewise
from freshband.channels.reactive import Reactive
from freshband.channels.stationary import Stationary
from freshband.channels.streams import MeansStream, StatesStream, carry_forward, held
from freshband.channels.switching import Switching
from freshband.channels.table import Table
from freshband.channels.trace import Trace

__all__ = [
    "Besson1",
    "Besson2",
    "Besson4",
    "BessonRandom",
    "Block",
    "ChannelModel",
    "Correlated",
    "Drifting",
    "Fig2",
    "Fig3Extreme",
    "Fig3Piecewise",
    "GilbertElliott",
    "HardPiecewise",
    "HardStationary",
    "Jammer",
    "LinkModel",
    "MeansStream",
    "Mixed",
    "Periodic",
    "Piecewise",
    "Reactive",
    "StatesStream",
    "Stationary",
    "Stream",
    "Switching",
    "Table",
    "Trace",
    "build",
    "carry_forward",
    "held",
    "links_differ",
    "open_air",
    "register",
    "registry",
]
