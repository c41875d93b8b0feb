"""Channels with memory: the two-state chain of Gilbert and Elliott, also called telegraph."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple, final

import numpy as np
from pydantic import Field, model_validator

from freshband.channels._fields import Probability, RatedBand, Row, forbid
from freshband.channels.base import Stream, _Bits, _Flags, _Floats, _Rng, register
from freshband.channels.streams import MeansStream, _slices
from freshband.errors import ParameterError
from freshband.parameters import whole_number


class _Chain(NamedTuple):
    """Two-state chains, one for each channel: arrays of shape (n_channels,)."""

    leave: _Floats  # P(good -> bad)
    enter: _Floats  # P(bad -> good)

    @property
    def share(self) -> _Floats:
        """The long-run share of rounds in the good state."""
        return self.enter / (self.leave + self.enter)


@final
@register("gilbert-elliott")
class GilbertElliott(RatedBand):
    """Bursty channels: a hidden good/bad chain with a success rate for each state.

    Each channel has a hidden chain `H_k(t) ∈ {0, 1}` with `P(1 → 0) = p_bad` and
    `P(0 → 1) = p_good`, started from its long-run law; it is Good with probability
    ``good_success`` where `H_k(t) = 1` and ``bad_success`` where it is 0. The hidden state is the
    good one for a share `π_k = p_good / (p_bad + p_good)` of the time, and

    - `μ_k = π_k good_success + (1 − π_k) bad_success`,
    - `corr(H_k(t), H_k(t+h)) = (1 − p_bad − p_good)^h`.

    The chain is specified by `μ_k` and ``dwell``, or by the two probabilities. The means of a
    stream are `μ_k`, and it has no breakpoints: schedulers never see the hidden state.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; follows from a list given as ``means``, ``p_bad`` or ``p_good``.
    mean_low, mean_high : float, bad_success <= low <= high <= good_success, default 0.1 and 0.9
        The long-run success rates are drawn from U[mean_low, mean_high], once per run.
    means : list of float in [bad_success, good_success], optional
        The long-run success rates `μ_k` themselves.
    dwell : float >= 1, default 10
        Correlation time in rounds: in every round the hidden state is drawn again from its
        long-run law with probability 1/dwell, and kept otherwise. 1 gives independent rounds.
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

    _lists: ClassVar[tuple[str, ...]] = ("means", "p_bad", "p_good")

    dwell: Annotated[float, Field(ge=1)] = 10.0
    p_bad: Probability | Row | None = None
    p_good: Probability | Row | None = None
    good_success: Probability = 1.0
    bad_success: Probability = 0.0

    @model_validator(mode="after")
    def _agree(self) -> GilbertElliott:
        if self.bad_success >= self.good_success:
            raise ParameterError(
                f"bad_success must be below good_success = {self.good_success}, "
                f"got {self.bad_success}"
            )
        if (self.p_bad is None) != (self.p_good is None):
            missing = "p_bad" if self.p_bad is None else "p_good"
            raise ParameterError(f"{missing} must be given too: p_bad and p_good go together")
        if self.p_bad is None:
            self._check_reach()
        else:
            forbid(self, "p_bad is given", "means", "mean_low", "mean_high", "dwell")
            if np.any(np.asarray(self.p_bad) + np.asarray(self.p_good) == 0):
                raise ParameterError("p_bad and p_good must not both be 0, got 0 and 0")
        return self

    def _check_reach(self) -> None:
        """Raise if a long-run rate is outside the range of the two states' rates."""
        if self.means is None:
            named = [("mean_low", self.mean_low), ("mean_high", self.mean_high)]
        else:
            named = [("means", float(value)) for value in np.ravel(self.means)]
        for name, value in named:
            if not self.bad_success <= value <= self.good_success:
                raise ParameterError(
                    f"{name} must be in [bad_success, good_success] = "
                    f"[{self.bad_success}, {self.good_success}], got {value}"
                )

    def start(self, rounds: int, structure: _Rng, states: _Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)
        if self.p_bad is not None:
            leave = np.broadcast_to(np.asarray(self.p_bad, float), self.n_channels)
            enter = np.broadcast_to(np.asarray(self.p_good, float), self.n_channels)
            chain = _Chain(leave, enter)
            means = self.bad_success + (self.good_success - self.bad_success) * chain.share
        else:
            means = self._rates(structure)
            share = (means - self.bad_success) / (self.good_success - self.bad_success)
            chain = _Chain((1 - share) / self.dwell, share / self.dwell)
        drawn = _HiddenStates(chain, (self.good_success, self.bad_success), states)
        pieces = [np.broadcast_to(means, (rounds, self.n_channels))]
        return MeansStream(rounds, self.n_channels, pieces, states, draw=drawn.block)


class _HiddenStates:
    """Draws the chains of all channels at once, carrying the hidden state between blocks."""

    def __init__(self, chain: _Chain, success: tuple[float, float], states: _Rng) -> None:
        self._chain = chain
        self._success = success
        self._states = states
        self._hidden = states.random(len(chain.share)) < chain.share

    def block(self, means: _Floats) -> _Bits:
        """Draw the states of the next block."""
        good = np.empty(means.shape, np.bool_)
        n, n_channels = means.shape
        noisy = self._success != (1, 0)
        # The draws of each round are one row, first the chains' and then those of success, so that
        # block sizes do not matter.
        width = 2 * n_channels if noisy else n_channels
        for part in _slices(n, width):
            drawn = self._states.random((part.stop - part.start, width))
            hidden = _advance(self._hidden, self._chain, drawn[:, :n_channels])
            self._hidden = hidden[-1]
            if noisy:
                hidden = drawn[:, n_channels:] < np.where(hidden, *self._success)
            good[part] = hidden
        return good.view(np.uint8)


def _advance(hidden: _Flags, chain: _Chain, drawn: _Floats) -> _Flags:
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
