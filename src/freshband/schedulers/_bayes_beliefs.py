"""`bayes` explains itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from freshband.schedulers._bayes_channels import BayesState
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
        (alone.sum() * x + together.sum() * y) / filters
        for x, y in zip(of_alone, of_all, strict=True)
    )
    return Beliefs(
        models={
            "channels switch one by one": float(alone.sum()),
            "all channels switch together": float(together.sum()),
            "outcomes depend on those before, in the same way on all channels": float(trust[-2]),
            "outcomes depend on those before, on each channel in its own way": float(trust[-1]),
        },
        hazard=float(((alone + together) * state.hazards).sum() / filters),
        rate=state.mean.copy(),
        spread=state.spread.copy(),
        changed=changed,
        segment_age=age,
    )
