"""`bayes` explains itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband.schedulers._bayes_links import BayesLinksState
from freshband.schedulers._bayes_state import OWN_CONTEXT, REPEATED, SHARED_CONTEXT, BayesState
from freshband.schedulers._link_rates import ADDITIVE, APART, CENTRED, SHARED, SPIKED, expected_rate
from freshband.schedulers._periods import believed_periods
from freshband.schedulers._segments import Segments
from freshband.schedulers.beliefs import Beliefs, explain


def _since_when(
    segments: Segments, trust: NDArray[np.float64], anchor: NDArray[np.int64], now: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return P(switched after ``anchor``) and the expected age of the segment, by channel."""
    kept = segments.weight * (segments.scale * segments.stay)[:, :, None]
    kept[np.arange(len(kept)), :, segments.fresh] += 1.0 - segments.stay
    shares = np.einsum("h,ghk->gk", trust / max(trust.sum(), 1e-300), kept)
    shape = (len(anchor), shares.shape[1])
    shares, since = np.broadcast_to(shares, shape), np.broadcast_to(segments.since, shape)
    late = (shares * (since > anchor[:, None])).sum(axis=1)
    return late, (shares * np.maximum(now - since, 0)).sum(axis=1)


@explain.register
def _explain(state: BayesState) -> Beliefs:
    trust, half = state.trust.now, len(state.hazards)
    alone, together = trust[:half], trust[half : 2 * half]
    now = int(state.clock[0])
    of_alone = _since_when(state.alone, alone, state.anchor, now)
    of_all = _since_when(state.together, together, state.anchor, now)
    filters = alone.sum() + together.sum()
    changed, age = (
        alone.sum() * x + together.sum() * y for x, y in zip(of_alone, of_all, strict=True)
    )
    return Beliefs(
        models={
            "channels switch one by one": float(alone.sum()),
            "all channels switch together": float(together.sum()),
            "outcomes depend on those before, in the same way on all channels": float(
                trust[SHARED_CONTEXT]
            ),
            "outcomes depend on those before, on each channel in its own way": float(
                trust[OWN_CONTEXT]
            ),
            "outcomes repeat after 2 to 16 rounds": float(trust[REPEATED]),
        },
        hazard=float(((alone + together) * state.hazards).sum() / filters),
        rate=state.mean.copy(),
        spread=state.spread.copy(),
        changed=changed,
        segment_age=age / filters,
        period=believed_periods(state.periods, float(trust[REPEATED])),
    )


_LINKS = {
    SHARED: "links are the same for all clients",
    APART: "all links differ",
    SPIKED: "a quarter of the links differ from their channel",
    ADDITIVE: "a client adds the same to the logit of every channel",
    CENTRED: "links scatter widely around their channel",
    CENTRED + 1: "links scatter closely around their channel",
}


def _of_links(state: BayesLinksState, way: int) -> tuple[Any, Any]:
    """Return the first two moments of the rates under a forecaster, shape (K, M, N)."""
    if way == ADDITIVE:
        logit = state.level[:, None, :] + state.offset[:, :, None]
        variance = state.level_variance[:, None, :] + state.offset_variance[:, :, None]
        rate = np.vectorize(expected_rate)(logit, variance)
        slope = rate * (1.0 - rate)
        return rate, rate * rate + np.minimum(slope * slope * variance, slope / 3.0)
    own = way in (APART, SPIKED)
    wins = (state.wins if own else state.all_wins[:, None, :]) + 1.0
    tries = (state.tries if own else state.all_tries[:, None, :]) + 2.0
    if way >= CENTRED:
        strength = state.strengths[way - CENTRED]
        wins, tries = strength * wins / tries + state.wins, strength + state.tries
    rate = wins / tries
    square = rate * (wins + 1.0) / (tries + 1.0)
    if way == SPIKED:
        base = ((1.0 + state.base_wins) / (2.0 + state.base_tries))[:, None, :]
        rate = base + state.slab * (rate - base)
        square = base * base + state.slab * (square - base * base)
    return rate, square


@explain.register
def _explain_links(state: BayesLinksState) -> Beliefs:
    shares = np.einsum("fh,fhk->fk", state.trust, state.weight)
    shares /= shares.sum()
    mean, square = np.zeros_like(state.mean), np.zeros_like(state.mean)
    for way, share in enumerate(shares):
        for total, moment in zip((mean, square), _of_links(state, way), strict=True):
            total += np.einsum("k,kmn->mn", share, np.broadcast_to(moment, state.wins.shape))
    began, n_channels = shares.sum(axis=0), state.wins.shape[2]
    now = state.since[state.fresh[0]]
    return Beliefs(
        models={name: float(shares[way].sum()) for way, name in _LINKS.items()},
        hazard=float((state.trust * state.hazards).sum() / state.trust.sum()),
        rate=mean,
        spread=np.sqrt(np.maximum(square - mean * mean, 0.0)),
        changed=np.full(n_channels, began[state.since > state.anchor[0]].sum()),
        segment_age=np.full(n_channels, (began * np.maximum(now - state.since, 0)).sum()),
    )
