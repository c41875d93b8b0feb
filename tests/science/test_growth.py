"""On channels that never change, regret grows far slower than time (T20)."""

from __future__ import annotations

import numpy as np

from freshband.aoi import growth_exponent
from freshband.simulation import simulate
from tests.theory.margins import needs_compiler

pytestmark = needs_compiler

HORIZONS = [2_500, 5_000, 10_000, 20_000, 40_000]
MEANS = [0.9, 0.8, 0.5, 0.4, 0.3]
LEARNERS = ["cucb", "kl-ucb", "thompson", "glr-cucb", "m-exp3"]


def test_growth_of_regret() -> None:
    policies = [*LEARNERS, "m-exp3:paper", "random"]
    result = simulate(
        "stationary", policies, clients=2, rounds=40_000, runs=30, seed=0, points=16, threads=1,
        progress=False, channel_options={"means": MEANS},
    )  # fmt: skip
    # the default policies know no horizon: a run cut short is a shorter run (see below)
    curves = result.regret_curve.sel(round=HORIZONS)

    def exponents(policy: str) -> np.ndarray:
        """Leave one run out at a time, for the error of the exponent."""
        runs = curves.sel(policy=policy).values
        left_out = (runs.sum(axis=0) - runs) / (len(runs) - 1)
        return np.array([growth_exponent(HORIZONS, row) for row in left_out])

    def with_error(policy: str) -> tuple[float, float]:
        values = exponents(policy)
        n = len(values)
        return float(values.mean()), float(np.sqrt((n - 1) * values.var()))

    for policy in LEARNERS:
        exponent, error = with_error(policy)
        assert exponent + 5 * error < 0.75, (policy, exponent, error)
        if policy != "m-exp3":  # logarithmic: over these horizons far below a root
            assert exponent + 5 * error < 0.35, (policy, exponent, error)
    for policy in ("random", "m-exp3:paper"):  # the measure tells linear from sub-linear
        exponent, error = with_error(policy)
        assert exponent - 5 * error > 0.85, (policy, exponent, error)


def test_a_shorter_run_is_the_beginning_of_a_longer_one() -> None:
    curves = [
        simulate(
            "stationary", LEARNERS, clients=2, rounds=rounds, runs=2, seed=0, points=rounds // 500,
            threads=1, progress=False, channel_options={"means": MEANS},
        ).regret_curve.sel(round=[500, 1000])
        for rounds in (1000, 4000)
    ]  # fmt: skip
    assert (curves[0].values == curves[1].values).all()
    assert np.isfinite(curves[0].values).all()
