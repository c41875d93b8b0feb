"""What scheduling does for training: digits, fixed seeds, paired runs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband.federated import Federation, Training, load_dataset
from freshband.simulation import simulate
from tests.theory.margins import standard_error

CLIENTS, ROUNDS, RUNS = 10, 60, 20


@cache
def trained(policy: str, runs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cumulative age variance and last accuracy of every run."""
    digits = load_dataset("digits")
    variance, accuracy = [], []
    for number in range(runs):
        settings = Training(
            scheduler=policy, clients=CLIENTS, rounds=ROUNDS, run=number, eval_every=ROUNDS,
            model="mlp", model_options={"hidden": [32]}, device="cpu",
        )  # fmt: skip
        with Federation(settings, dataset=digits) as run:
            records = list(run)
        variance.append(sum(record.variance for record in records))
        accuracy.append(records[-1].accuracy)
    return np.array(variance), np.array(accuracy)


@pytest.mark.slow
def test_adaptive_matching_evens_out_ages() -> None:
    by_lot, ours = trained("random", RUNS)[0], trained("glr-cucb+priority", RUNS)[0]
    spared = by_lot - ours
    assert spared.mean() > 5 * standard_error(spared)
    share = 1 - ours / by_lot
    assert share.mean() - 5 * standard_error(share) > 0.4  # 0.60 when this was written


@pytest.mark.slow
def test_adaptive_matching_does_not_lose_accuracy() -> None:
    by_lot, ours = trained("random", RUNS)[1], trained("glr-cucb+priority", RUNS)[1]
    gained = ours - by_lot
    assert gained.mean() - 5 * standard_error(gained) > -0.01  # less than a point, by five sigmas
    assert min(by_lot.min(), ours.min()) > 0.8  # ten classes: both did learn


@pytest.mark.slow  # to compile, where nobody did before
def test_training_meets_the_air_of_the_simulation() -> None:
    """The same seed: the very ages that a simulation without any training gives."""
    policies = ["random", "glr-cucb"]
    result = simulate(
        "fig3-piecewise", policies, clients=CLIENTS, rounds=ROUNDS, runs=2, seed=0, threads=1,
        progress=False, channel_options={"n_channels": 15},
    )  # fmt: skip
    for policy in policies:
        simulated = result.cumulative_variance.sel(policy=policy).values
        np.testing.assert_allclose(trained(policy, 2)[0], simulated, rtol=1e-12)
