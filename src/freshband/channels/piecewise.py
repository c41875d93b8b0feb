"""Channels whose success rates are constant between breakpoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import ClassVar, Literal, final

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from freshband.channels._fields import (
    Count,
    LinkBand,
    Matrix,
    Natural,
    Places,
    Probability,
    forbid,
)
from freshband.channels.base import _Floats, _Rng, register
from freshband.channels.streams import carry_forward, held
from freshband.errors import ParameterError


@final
@register("piecewise")
class Piecewise(LinkBand):
    """Success rates that jump at breakpoints and are constant in between.

    With breakpoints `1 < b_1 < … < b_C ≤ T`, channel k is Good in a round of segment s with
    probability `μ_k(s)`, independently of everything else: the piecewise-stationary regime of
    Sec. II-B. At a breakpoint every channel, with probability ``p_change``, takes a new mean from
    U[mean_low, mean_high] and otherwise keeps the old one.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; follows from ``means`` where those are given.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means are drawn from U[mean_low, mean_high].
    means : list of lists of float in [0, 1], optional
        The means themselves, a row for each segment and a column for each channel; with
        ``per_client`` a matrix for each segment, with a row for each client.
    n_breakpoints : int >= 0, optional
        Number of breakpoints, at most rounds - 1; 5 unless another parameter determines it.
    n_segments : int >= 1, optional
        Number of segments, one more than breakpoints, instead of ``n_breakpoints``.
    breakpoints : list of int >= 2, optional
        The rounds, counted from 1, at which a new segment begins, in increasing order; instead of
        ``n_breakpoints``, ``spacing`` and ``min_gap``.
    spacing : {"equal", "random"}, default "equal"
        Equal: segment s begins after round `⌊sT/(C+1)⌋`. Random: all placements that keep
        ``min_gap`` are equally likely.
    min_gap : int >= 1, default 1
        Shortest segment allowed, the first and the last included.
    p_change : float in [0, 1], default 1
        Probability that a channel changes at a breakpoint, independently of others. Where no
        channel changes, the stream reports no breakpoint: the expected number is `C (1 − (1−p)^N)`.
        Links that differ change independently of each other.
    per_client : bool, default False
        Whether links differ per client; `Stationary` explains this and the next two.
    p_differ : float in [0, 1], default 1
        Probability that a link has means of its own.
    offset_sd : float in [0, 10], default 0
        Standard deviation of the clients' offsets, instead of ``p_differ``.

    Notes
    -----
    **Deviations.** The paper's `C_T` counts intervals in Lemma 4 and Theorem 5 and breakpoints
    in Sec. VI (E14); here each has its own name, and the default is 5 breakpoints. The paper does
    not state the means, the places of the breakpoints, or which channels change.

    Examples
    --------
    >>> from freshband.channels import Piecewise, open_air
    >>> model = Piecewise(means=[[0.9, 0.1], [0.2, 0.1]])
    >>> air = open_air(model, rounds=10, seed=0)
    >>> air.block(10).means[:, 0].tolist()
    [0.9, 0.9, 0.9, 0.9, 0.9, 0.2, 0.2, 0.2, 0.2, 0.2]
    >>> air.breakpoints, air.changed
    (array([6]), array([[ True, False]]))

    References
    ----------
    L. Besson, E. Kaufmann, O.-A. Maillard, J. Seznec, "Efficient change-point detection for
    tackling piecewise-stationary bandits", JMLR 23, 2022.
    """

    _lists: ClassVar[tuple[str, ...]] = ("means",)

    means: Matrix | None = None
    n_breakpoints: Natural | None = None
    n_segments: Count | None = None
    breakpoints: Places | None = None
    spacing: Literal["equal", "random"] = "equal"
    min_gap: Count = 1
    p_change: Probability = 1.0

    @model_validator(mode="after")
    def _agree(self) -> Piecewise:
        if self.breakpoints is not None:
            forbid(
                self, "breakpoints is given", "n_breakpoints", "n_segments", "spacing", "min_gap"
            )
            if any(b <= a for a, b in itertools.pairwise(self.breakpoints)):
                raise ParameterError(
                    f"breakpoints must be increasing, got {list(self.breakpoints)}"
                )
        if self.n_breakpoints is not None:
            forbid(self, "n_breakpoints is given", "n_segments")
        if self.means is not None:
            forbid(self, "means is given", "mean_low", "mean_high", "p_change")
            if self._segments() != len(self.means):
                raise ParameterError(
                    f"means must have a row for each of {self._segments()} segments, "
                    f"got {len(self.means)}"
                )
        return self

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        lengths = self._lengths(rounds, structure)
        if self.means is not None:
            return held(np.reshape(self.means, (len(lengths), -1)), lengths)
        means = self._draw(structure, len(lengths))
        if self.p_change < 1:
            change = structure.random((len(lengths) - 1, self.n_channels)) < self.p_change
            means[1:] = carry_forward(means[0], means[1:], change)
        return held(means, lengths)

    def _segments(self) -> int:
        if self.breakpoints is not None:
            return len(self.breakpoints) + 1
        if self.n_segments is not None:
            return self.n_segments
        if self.n_breakpoints is None and self.means is not None:
            return len(self.means)
        return 1 + (5 if self.n_breakpoints is None else self.n_breakpoints)

    def _lengths(self, rounds: int, structure: _Rng) -> npt.NDArray[np.int64]:
        if self.breakpoints is None:
            random = structure if self.spacing == "random" else None
            return _segment_lengths(rounds, self._segments(), self.min_gap, random)
        if self.breakpoints and self.breakpoints[-1] > rounds:
            raise ParameterError(
                f"breakpoints must be at most rounds = {rounds}, got {self.breakpoints[-1]}"
            )
        return np.diff(np.array([1, *self.breakpoints, rounds + 1])).astype(np.int64)


def _segment_lengths(
    rounds: int, n_segments: int, min_gap: int, random: _Rng | None
) -> npt.NDArray[np.int64]:
    """Cut ``rounds`` into segments of at least ``min_gap`` rounds: equally, or at random.

    With a generator every admissible way to cut is equally likely.

    Examples
    --------
    >>> _segment_lengths(10, 3, 1, None)
    array([3, 3, 4])
    """
    if n_segments > rounds:
        raise ParameterError(
            f"n_breakpoints must be at most rounds - 1 = {rounds - 1}, got {n_segments - 1}: play "
            "more rounds, or take channels that change less often"
        )
    if min_gap * n_segments > rounds:
        raise ParameterError(
            f"min_gap must be at most {rounds // n_segments} for {n_segments} segments in "
            f"{rounds} rounds, got {min_gap}"
        )
    if random is None:
        cuts = np.arange(n_segments + 1, dtype=np.int64) * rounds // n_segments
        return np.diff(cuts)
    # Take min_gap - 1 rounds from every segment, cut the rest into parts of at least one round
    # (a uniform subset of the places to cut), and give the rounds back.
    rest = rounds - n_segments * (min_gap - 1)
    places = random.choice(rest - 1, n_segments - 1, replace=False, shuffle=False)
    cuts = np.concatenate([[0], np.sort(places) + 1, [rest]])
    return np.diff(cuts).astype(np.int64) + (min_gap - 1)
