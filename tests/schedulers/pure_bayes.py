"""`bayes` reduced to what Bayes' rule is about: uniform priors, no contexts and no periods."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshband.schedulers._bayes_state import SHARED_CONTEXT
from freshband.schedulers.bayes import Bayes


def start_pure(n_clients: int, n_channels: int, **options: Any) -> Any:
    state = Bayes(**options).start(n_clients, n_channels, np.random.default_rng(0), None)
    state.priors.betas[:] = (1.0, 2.0)
    state.priors.pooled[:] = (1.0, 2.0)
    for trust in (state.trust.now, state.trust.first):
        trust[SHARED_CONTEXT:] = 0.0
        trust /= trust.sum()
    for segments in (state.alone, state.together):
        segments.rate[:], segments.square[:] = 1 / 2, 1 / 3
    state.first[:], state.second[:], state.spread[:] = 1 / 2, 1 / 3, (1 / 12) ** 0.5
    return state
