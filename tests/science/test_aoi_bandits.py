"""Age regrets of single-source AoI bandits, against their authors' code (T7)."""

from __future__ import annotations

import math

import pytest

from freshband.simulation import simulate
from tests.theory.margins import needs_compiler, standard_error

pytestmark = needs_compiler

#   regret and its standard error: the authors' code (60 runs), a prototype's (300 runs)
SLOW = {
    "cucb": ((3731, 78), (3819, 44)),
    "cucb+aa": ((1488, 67), (1522, 42)),
    "thompson": ((563, 45), (608, 36)),
    "thompson+aa": ((477, 56), (424, 39)),
}
FAST = {
    "cucb": ((643, 12), (635, 11)),
    "cucb+aa": ((296, 8), (284, 10)),
    "thompson": ((102, 6), (109, 12)),
    "thompson+aa": ((74, 6), (78, 10)),
}
INSTANCES = [((0.067, 0.133, 0.2, 0.267, 0.333), SLOW), ((0.2, 0.6, 0.5, 0.2), FAST)]


@pytest.mark.parametrize(("means", "published"), INSTANCES)
def test_regret(
    means: tuple[float, ...], published: dict[str, tuple[tuple[float, float], ...]]
) -> None:
    width = {"index_c": 2.0}  # sqrt(2 ln t / n)
    result = simulate(
        "stationary", list(published), clients=1, rounds=10_000, runs=400, seed=0, points=1,
        threads=1, progress=False, channel_options={"means": means},
        policy_options={"cucb": width, "cucb+aa": width},
    )  # fmt: skip
    for policy, figures in published.items():
        regret = result.regret.sel(policy=policy).values
        own = standard_error(regret)
        for (figure, error), sigmas in zip(figures, (3, 2), strict=True):
            margin = sigmas * math.hypot(error, own)
            assert abs(regret.mean() - figure) <= margin, (policy, regret.mean(), figure, margin)
    mean = result.regret.mean("run")
    assert float(mean.sel(policy="cucb+aa")) < 0.6 * float(mean.sel(policy="cucb"))
    assert float(mean.sel(policy="thompson+aa")) < 0.9 * float(mean.sel(policy="thompson"))
