"""Channels whose success rates never change."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from pydantic import model_validator

from freshband.channels.base import Stream, register
from freshband.channels.fields import Band, Row, columns_of, forbid
from freshband.channels.streams import MeansStream
from freshband.parameters import whole_number

__all__ = ["Stationary"]


@final
@register("stationary")
class Stationary(Band):
    """Constant success rates, independent rounds.

    Channel k is Good in round t with probability `μ_k`, independently of everything else:
    the stationary regime of Sec. II-B.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; follows from ``means`` where those are given.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        Where the means are drawn from, uniformly and once per run.
    means : list of float in [0, 1], optional
        The means `μ_k` themselves, one for each channel.

    Notes
    -----
    **Deviations.** The paper gives no means; U[.1, .9] is what our reproduction of Fig. 2 uses.

    Examples
    --------
    >>> from freshband.channels import Stationary, open_air
    >>> model = Stationary(means=[0.9, 0.5, 0.0])
    >>> block = open_air(model, rounds=10_000, seed=0).block(10_000)
    >>> block.states.mean(axis=0).round(1).tolist()
    [0.9, 0.5, 0.0]
    """

    has_means: ClassVar[bool] = True

    means: Row | None = None

    @model_validator(mode="before")
    @classmethod
    def _fit(cls, values: dict[str, Any]) -> dict[str, Any]:
        return columns_of(values, "means")

    @model_validator(mode="after")
    def _agree(self) -> Stationary:
        if self.means is not None:
            forbid(self, "means", "mean_low", "mean_high")
            self._check_columns("means", len(self.means))
        return self

    def start(
        self, rounds: int, structure: np.random.Generator, states: np.random.Generator
    ) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)
        means = self._draw(structure) if self.means is None else np.array(self.means)
        pieces = [np.broadcast_to(means, (rounds, self.n_channels))]
        return MeansStream(rounds, self.n_channels, pieces, states)
