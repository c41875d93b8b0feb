"""The models that only the arena's families need: drift, regular blocking, two kinds, one fate."""

from __future__ import annotations

import numpy as np
import pytest

from freshband.channels import Correlated, Drifting, Mixed, Periodic, open_air
from freshband.channels.base import Block
from freshband.errors import ParameterError


def draw(model: object, rounds: int = 20_000, run: int = 0) -> Block:
    return open_air(model, rounds, seed=3, run=run).block(rounds)  # type: ignore[arg-type]


def test_a_walk_stays_in_its_band_and_forgets_where_it_began() -> None:
    means = draw(Drifting(pattern="walk", step=0.05, mean_low=0.2, mean_high=0.7)).means
    assert means.min() >= 0.2
    assert means.max() <= 0.7
    steps = np.abs(np.diff(means, axis=0))
    assert steps.max() < 6 * 0.05
    assert np.abs(means.mean(axis=0) - 0.45).max() < 0.05  # uniform in the long run


def test_a_smooth_drift_comes_back_within_twice_its_period() -> None:
    means = draw(Drifting(period=500)).means
    spread = means[:1000].max(axis=0) - means[:1000].min(axis=0)
    assert (spread > 0.79).all()


def test_blocking_is_regular_and_always_of_the_same_channels() -> None:
    means = draw(Periodic(width=2, period=50, blocked=20)).means
    blocked = (means == 0).any(axis=0)
    assert blocked.sum() == 2
    times = (means[:, blocked] == 0).all(axis=1)
    assert times[50:].tolist() == times[:-50].tolist()
    assert times[:50].sum() == 20


def test_correlated_channels_have_the_rates_they_would_have_alone() -> None:
    block = draw(Correlated(n_breakpoints=0, together=0.5, mean_low=0.5, mean_high=0.5))
    assert np.abs(block.states.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(20_000)
    correlation = np.corrcoef(block.states.T)[np.triu_indices(5, 1)]
    assert np.abs(correlation - 0.5).max() < 5 / np.sqrt(20_000)


def test_half_of_mixed_channels_are_good() -> None:
    means = np.concatenate([draw(Mixed(), 6, run=run).means for run in range(300)])
    assert abs((means > 0.5).mean() - 0.5) < 5 * 0.5 / np.sqrt(means.size)


def test_settings_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ParameterError, match="period must be left out when pattern='walk'"):
        Drifting(pattern="walk", period=5)
    with pytest.raises(ParameterError, match="blocked must be at most period"):
        Periodic(period=5, blocked=6)
