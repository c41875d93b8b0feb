"""What the air does: channel models, one a file, by name or by class.

Examples
--------
>>> from freshband.channels import build, open_air
>>> air = open_air(build("piecewise", n_channels=3, n_breakpoints=2), rounds=9, seed=0)
>>> air.block(9).states.shape
(9, 3)
>>> air.breakpoints
array([4, 7])

A model of your own is one class, in any file. Decorate it with ``@register("even-odd")`` and it
has a name like the others:

>>> from typing import ClassVar
>>> import numpy as np
>>> from freshband.channels import MeansStream
>>> from freshband.parameters import Parameters
>>> class EvenOdd(Parameters):
...     has_means: ClassVar[bool] = True
...     n_channels: int = 2
...
...     def start(self, rounds, structure, states):
...         means = (np.arange(rounds)[:, None] + np.arange(self.n_channels)) % 2.0
...         return MeansStream(rounds, self.n_channels, [means], states)
>>> open_air(EvenOdd(), rounds=3, seed=0).block(3).states.tolist()
[[0, 1], [1, 0], [0, 1]]
"""

from freshband.channels.base import (
    Block,
    ChannelModel,
    Stream,
    build,
    open_air,
    register,
    registry,
)
from freshband.channels.besson import Besson1, Besson2, Besson4, BessonRandom
from freshband.channels.gilbert_elliott import GilbertElliott
from freshband.channels.instances import (
    Fig2,
    Fig3Extreme,
    Fig3Piecewise,
    HardPiecewise,
    HardStationary,
)
from freshband.channels.jammer import Jammer
from freshband.channels.piecewise import Piecewise
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
    "Fig2",
    "Fig3Extreme",
    "Fig3Piecewise",
    "GilbertElliott",
    "HardPiecewise",
    "HardStationary",
    "Jammer",
    "MeansStream",
    "Piecewise",
    "StatesStream",
    "Stationary",
    "Stream",
    "Switching",
    "Table",
    "Trace",
    "build",
    "carry_forward",
    "held",
    "open_air",
    "register",
    "registry",
]
