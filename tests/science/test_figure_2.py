"""Fig. 2: who is better, by how much, and what breakpoints and channels cost (T8)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from freshband.simulation import simulate
from tests.theory.margins import needs_compiler, standard_error

pytestmark = needs_compiler

#   regret against mean+rotate with its standard error, against mean+age; a prototype (40 instances)
TARGETS = {
    "random": (25_402, 688, 26_415),
    "m-exp3:paper": (19_086, 632, 20_099),
    "cucb+rotate": (9_310, 993, None),
    "glr-cucb:paper": (1_452, 74, 2_464),
    "glr-cucb:paper+aa-sum": (1_238, 62, 2_251),
    "glr-cucb:paper+aa": (210, 70, 1_223),
}


def play(channels: str, policies: list[str], runs: int, seed: int, **options: Any) -> Any:
    return simulate(
        channels, policies, clients=2, rounds=20_000, runs=runs, seed=seed, points=1, threads=1,
        progress=False, **options,
    )  # fmt: skip


def assert_larger(a: Any, b: Any) -> None:
    """Hold that a exceeds b in the mean by 5 standard errors of their paired difference."""
    difference = a.values - b.values
    assert difference.mean() > 5 * standard_error(difference)


def test_figure_2a() -> None:
    result = play("fig2", list(TARGETS), runs=100, seed=0)
    for against in ("regret_rotate", "regret"):
        regret = result[against]
        for worse, better in pairwise(TARGETS):
            if "aa-sum" not in better:  # that rule barely helps
                assert_larger(regret.sel(policy=worse), regret.sel(policy=better))
        assert_larger(regret.sel(policy="glr-cucb:paper"), regret.sel(policy="glr-cucb:paper+aa"))
    for policy, (rotate, error, age) in TARGETS.items():
        row = result.sel(policy=policy)
        margin = 5 * math.hypot(error, standard_error(row.regret_rotate))
        assert abs(float(row.regret_rotate.mean()) - rotate) <= margin, policy
        if age is not None:
            margin = 5 * math.hypot(error, standard_error(row.regret))
            assert abs(float(row.regret.mean()) - age) <= margin, policy
    alarms = result.alarms.sel(policy=["glr-cucb:paper", "glr-cucb:paper+aa"])
    # two played channels may draw all but their old means; then nothing can be noticed
    assert float((abs(alarms - 5) <= 1).mean()) >= 0.97
    assert float(alarms.mean()) == pytest.approx(5, abs=0.2)
    assert float(result.false_alarms.sel(policy="glr-cucb:paper").mean()) < 0.1


def test_figure_2b_more_breakpoints_more_regret() -> None:
    targets = {0: (441, 57), 5: (1_501, 78), 12: (2_325, 76)}
    regret = {}
    for n, (figure, error) in targets.items():
        result = play(
            "fig2", ["glr-cucb:paper"], runs=60, seed=1, channel_options={"n_breakpoints": n}
        )
        regret[n] = result.regret_rotate.values.ravel()
        margin = 5 * math.hypot(error, standard_error(regret[n]))
        assert abs(regret[n].mean() - figure) <= margin
        assert abs(float(result.alarms.mean()) - n) <= 1
    for fewer, more in [(0, 5), (5, 12)]:
        margin = 5 * math.hypot(standard_error(regret[fewer]), standard_error(regret[more]))
        assert regret[more].mean() - regret[fewer].mean() > margin


def test_figure_2c_more_channels_more_regret_then_hardly() -> None:
    targets = {3: 5_617, 5: 10_484, 8: 11_780}
    runs = 120
    mean, error = {}, {}
    for n, figure in targets.items():
        result = play(
            "stationary", ["m-exp3:paper"], runs=runs, seed=2, channel_options={"n_channels": n}
        )
        regret = result.regret_rotate.values.ravel()
        mean[n], error[n] = float(regret.mean()), standard_error(regret)
        # the prototype gave no error, and 40 instances
        assert abs(mean[n] - figure) <= 5 * error[n] * math.sqrt(1 + runs / 40)
    assert mean[5] - mean[3] > 5 * math.hypot(error[3], error[5])
    assert (mean[8] - mean[5]) / 3 < (mean[5] - mean[3]) / 2  # for each further channel
