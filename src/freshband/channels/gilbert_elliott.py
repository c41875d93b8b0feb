"""Channels with memory: the two-state chain of Gilbert and Elliott, also called telegraph."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple, final

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from freshband.channels.base import Block, Stream, register
from freshband.channels.fields import Band, Probability, Row, columns_of, forbid
from freshband.channels.streams import fill, slices, take
from freshband.errors import ParameterError
from freshband.parameters import whole_number

__all__ = ["GilbertElliott"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class _Chain(NamedTuple):
    """Two-state chains, one for each channel: arrays of shape (n_channels,)."""

    leave: Floats  # P(good -> bad)
    enter: Floats  # P(bad -> good)

    @property
    def share(self) -> Floats:
        """The long-run share of rounds in the good state."""
        return self.enter / (self.leave + self.enter)


@final
@register("gilbert-elliott")
class GilbertElliott(Band):
    """Bursty channels: a hidden good/bad chain with success rates of its own in each state.

    Each channel has a hidden chain `H_k(t) ∈ {0, 1}` with `P(1 → 0) = p_bad` and
    `P(0 → 1) = p_good`, started from its long-run law; it is Good with probability
    ``good_success`` where `H_k(t) = 1` and ``bad_success`` where it is 0. The hidden state is the
    good one for a share `π_k = p_good / (p_bad + p_good)` of the time, and

    - `μ_k = π_k good_success + (1 − π_k) bad_success`,
    - `corr(H_k(t), H_k(t+h)) = (1 − p_bad − p_good)^h`.

    The chain is given by `μ_k` and ``dwell``, or by the two probabilities. The means of a stream
    are `μ_k`, and it has no breakpoints: the hidden state is nothing a scheduler could be told.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; follows from ``means``, ``p_bad`` or ``p_good`` where a list is
        given.
    mean_low, mean_high : float, bad_success <= low <= high <= good_success, default 0.1 and 0.9
        Where the long-run success rates are drawn from, once per run.
    means : list of float in [bad_success, good_success], optional
        The long-run success rates `μ_k` themselves.
    dwell : float >= 1, default 10
        Correlation time in rounds: in every round the hidden state is redrawn from its long-run
        law with probability 1/dwell, and kept otherwise. 1 gives independent rounds.
    p_bad, p_good : float or list of float in [0, 1], optional
        Probabilities to leave the good and the bad state, instead of means and ``dwell``; not
        both 0. A sum above 1 makes channels that alternate (negative correlation).
    good_success : float in [0, 1], default 1
        Success rate in the hidden good state, above ``bad_success``.
    bad_success : float in [0, 1], default 0
        Success rate in the hidden bad state.

    Notes
    -----
    **Deviations.** Not in the paper, whose channels have no memory within a regime. Ranking by
    long-run means is not optimal here.

    Examples
    --------
    >>> from freshband.channels import GilbertElliott, open_air
    >>> model = GilbertElliott(means=[0.8, 0.2], dwell=5)
    >>> block = open_air(model, rounds=20, seed=1).block(20)
    >>> "".join(map(str, block.states[:, 0])), block.means[0].tolist()
    ('00001111111111111111', [0.8, 0.2])

    References
    ----------
    E. N. Gilbert, "Capacity of a burst-noise channel", Bell System Technical Journal 39, 1960.

    E. O. Elliott, "Estimates of error rates for codes on burst-noise channels", Bell System
    Technical Journal 42, 1963.
    """

    has_means: ClassVar[bool] = True

    means: Row | None = None
    dwell: Annotated[float, Field(ge=1)] = 10.0
    p_bad: Probability | Row | None = None
    p_good: Probability | Row | None = None
    good_success: Probability = 1.0
    bad_success: Probability = 0.0

    @model_validator(mode="before")
    @classmethod
    def _fit(cls, values: dict[str, Any]) -> dict[str, Any]:
        return columns_of(values, "means", "p_bad", "p_good")

    @model_validator(mode="after")
    def _agree(self) -> GilbertElliott:
        for name in ("means", "p_bad", "p_good"):
            value = getattr(self, name)
            if isinstance(value, tuple):
                self._check_columns(name, len(value))
        if self.bad_success >= self.good_success:
            raise ParameterError(
                f"bad_success must be below good_success = {self.good_success}, "
                f"got {self.bad_success}"
            )
        if (self.p_bad is None) != (self.p_good is None):
            missing = "p_bad" if self.p_bad is None else "p_good"
            raise ParameterError(f"{missing} must be given too: p_bad and p_good go together")
        if self.means is not None:
            forbid(self, "means", "mean_low", "mean_high")
        if self.p_bad is None:
            self._check_reach()
        else:
            forbid(self, "p_bad", "means", "mean_low", "mean_high", "dwell")
            if np.any(np.asarray(self.p_bad) + np.asarray(self.p_good) == 0):
                raise ParameterError("p_bad and p_good must not both be 0, got 0 and 0")
        return self

    def _check_reach(self) -> None:
        """Raise if a long-run rate lies outside what the two states can mix."""
        named = [("means", value) for value in self.means or ()]
        if self.means is None:
            named = [("mean_low", self.mean_low), ("mean_high", self.mean_high)]
        for name, value in named:
            if not self.bad_success <= value <= self.good_success:
                raise ParameterError(
                    f"{name} must be in [bad_success, good_success] = "
                    f"[{self.bad_success}, {self.good_success}], got {value}"
                )

    def start(
        self, rounds: int, structure: np.random.Generator, states: np.random.Generator
    ) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)
        if self.p_bad is not None:
            leave = np.broadcast_to(np.asarray(self.p_bad, float), self.n_channels)
            enter = np.broadcast_to(np.asarray(self.p_good, float), self.n_channels)
            chain = _Chain(leave, enter)
            means = self.bad_success + (self.good_success - self.bad_success) * chain.share
        else:
            means = self._draw(structure) if self.means is None else np.array(self.means)
            share = (means - self.bad_success) / (self.good_success - self.bad_success)
            chain = _Chain((1 - share) / self.dwell, share / self.dwell)
        return _HiddenStream(rounds, chain, means, self.good_success, self.bad_success, states)


class _HiddenStream:
    """Draws the chains of all channels at once, carrying the hidden state between blocks."""

    def __init__(
        self,
        rounds: int,
        chain: _Chain,
        means: Floats,
        good_success: float,
        bad_success: float,
        states: np.random.Generator,
    ) -> None:
        self._left = rounds
        self._chain = chain
        self._means = means
        self._success = (good_success, bad_success)
        self._noisy = good_success < 1 or bad_success > 0
        self._states = states
        self._hidden = states.random(len(means)) < chain.share

    def block(self, n: int) -> Block:
        """Draw the next ``n`` rounds."""
        n = take(n, self._left)
        self._left -= n
        n_channels = len(self._means)
        good = np.empty((n, n_channels), np.bool_)
        # Round by round, first the chains' draws and then the successes': so blocks never matter.
        width = 2 * n_channels if self._noisy else n_channels
        for part in slices(n, width):
            drawn = self._states.random((part.stop - part.start, width))
            hidden = _advance(self._hidden, self._chain, drawn[:, :n_channels])
            self._hidden = hidden[-1]
            if self._noisy:
                hidden = drawn[:, n_channels:] < np.where(hidden, *self._success)
            good[part] = hidden
        means = np.empty((n, n_channels))
        fill(means, self._means)
        return Block(good.view(np.uint8), means)

    @property
    def breakpoints(self) -> npt.NDArray[np.int64]:
        """Always empty: the long-run success rates never change."""
        return np.empty(0, np.int64)

    @property
    def changed(self) -> Flags:
        """Always empty."""
        return np.empty((0, len(self._means)), np.bool_)


def _advance(hidden: Flags, chain: _Chain, drawn: Floats) -> Flags:
    """Return the hidden states that follow ``hidden``, without a loop over rounds.

    A chain is in its good state after a uniform draw u if u < 1 - leave (from good) or u < enter
    (from bad). Below both bounds the state becomes good and above both bad, whatever it was; in
    between it is kept, or flipped where the bounds are the other way round. So each state is the
    outcome of the last decisive draw, and for flipping chains the parity of the draws since.
    """
    u = np.ascontiguousarray(drawn.T)  # channels are rows: bounds and running maxima are faster
    stay = 1 - chain.leave
    becomes_good = u < np.minimum(stay, chain.enter)[:, None]
    decisive = becomes_good | (u >= np.maximum(stay, chain.enter)[:, None])
    # Round and outcome of a decisive draw in one number, so that the running maximum is the last
    # of them; before the first the outcome is what was carried in.
    rounds = np.arange(1, len(drawn) + 1, dtype=np.int32)
    last = (2 * rounds + becomes_good) * decisive
    last[:, 0] = np.maximum(last[:, 0], hidden)
    np.maximum.accumulate(last, axis=1, out=last)
    states = last & 1
    flips = stay < chain.enter
    if flips.any():
        states ^= flips[:, None] & (rounds - (last >> 1))
    return states.T.astype(np.bool_, order="C")
