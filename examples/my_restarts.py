"""Any index with any change detector: Thompson sampling that restarts on a CUSUM alarm.

freshband --import examples/my_restarts.py simulate --policies thompson,cusum-thompson,cusum-ucb
"""

from typing import Any, ClassVar, final

import numpy as np
from pydantic import Field

from freshband.detectors.cusum import Cusum
from freshband.parameters import Parameters
from freshband.schedulers.base import Presets, register
from freshband.schedulers.restarting import restart_on_change
from freshband.schedulers.thompson import Thompson

__all__ = ["CusumThompson"]


@register("cusum-thompson")
@final
class CusumThompson(Parameters):
    """Thompson sampling; a CUSUM alarm restarts it, and what came after the change still counts.

    Parameters
    ----------
    threshold : float > 0, default 8.0
        The threshold h of the detector.
    alpha : float in [0, 1], default 0.01
        The share of rounds in which all channels are swept.

    Notes
    -----
    **Deviations.** Not in the paper.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["thompson", "cusum-thompson"], rounds=2000, runs=2, progress=False
    ... )
    >>> never, restarts = result.regret.mean("run").values
    >>> bool(restarts < never)
    True
    """

    presets: ClassVar[Presets] = {"wary": {"alpha": 0.05}}

    threshold: float = Field(default=8.0, gt=0)
    alpha: float = Field(default=0.01, ge=0, le=1)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> Any:
        return restart_on_change(
            Thompson().start(n_clients, n_channels, rng, horizon),
            Cusum(threshold=self.threshold).start(n_channels),
            alpha=self.alpha,
            restart="localised",
        )
