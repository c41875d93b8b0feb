"""Claims of the simulated figures are judged as stated; see `test_claims`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

from freshband.experiments.fig2a import Fig2a
from freshband.experiments.fig2b import Fig2b
from freshband.experiments.fig2c import Fig2c
from tests.experiments.claiming import (
    check,
    mean,
    simulated,
)


def test_fig2a() -> None:
    experiment = Fig2a(runs=3, points=4)
    piece, still = experiment.pieces()
    policies: list[str] = piece.config["policies"]
    assert still.config["policies"] == ["m-exp3:paper"]
    assert still.config["channel_options"] == {"n_breakpoints": 0}
    ends = {name: [100.0 * (9 - place) + 2 * run for run in range(3)]
            for place, name in enumerate(policies)}  # fmt: skip
    ends["m-exp3:paper+aa"] = [750.0, 800.0, 650.0]  # below M-Exp3 by less than its interval
    curves = {name: [[0.2 * end, 0.5 * end, 0.7 * end, end] for end in rows]
              for name, rows in ends.items()}  # fmt: skip
    result = xr.Dataset(
        {
            "regret_rotate": (("policy", "run"), np.array([*ends.values()])),
            "regret": (("policy", "run"), np.array([*ends.values()]) / 4),
            "regret_rotate_curve": (("policy", "run", "round"), np.array([*curves.values()])),
        },
        coords={"policy": policies, "round": [5, 10, 15, 20]},
    )
    rest = [[0.0, 50.0, 70.0, 80.0], [0.0, 50.0, 71.0, 80.0], [0.0, 50.0, 70.5, 80.0]]
    flat = xr.Dataset(
        {"regret_rotate_curve": (("policy", "run", "round"), np.array([rest]))},
        coords={"policy": ["m-exp3:paper"], "round": [5, 10, 15, 20]},
    )
    found = experiment.claims({piece.key: result, still.key: flat})
    pairs = [
        ("m-exp3:paper", "random", "reproduced"),
        ("glr-cucb:paper", "m-exp3:paper", "reproduced"),
        ("glr-cucb:paper+aa", "glr-cucb:paper", "reproduced"),
        ("m-exp3:paper+aa", "m-exp3:paper", "not reproduced"),
    ]
    for claim, (better, worse, verdict) in zip(found[:4], pairs, strict=True):
        assert (claim.what, claim.paper) == (f"{better} below {worse}", "below")
        gains = [w - b for w, b in zip(ends[worse], ends[better], strict=True)]
        assert claim.ours == pytest.approx(mean(gains))
        assert claim.verdict == verdict
    # 0.2 of the end is gained in the third quarter and 0.3 in the fourth.
    third, fourth = (mean([share * end for end in ends["m-exp3:paper"]]) for share in (0.2, 0.3))
    lost = [-0.1 * each for each in ends["m-exp3:paper"]]
    check(found[4], lost, "not reproduced", f"{third:,.0f} against {fourth:,.0f}")
    check(found[5], [10.0, 12.0, 11.0], "reproduced", "20 against 10")
    assert {claim.paper for claim in found[4:6]} == {"positive"}
    for claim, (ours, printed) in zip(
        found[6:],
        [("glr-cucb", "glr-cucb:paper"), ("glr-cucb:fresh", "glr-cucb:paper+aa"),
         ("bayes", "glr-cucb:paper+aa"), ("bayes", "glr-cucb:fresh")],
        strict=True,
    ):  # fmt: skip
        assert claim.what == f"ours, {ours}, below {printed} against the mean + age oracle"
        assert claim.ours == pytest.approx((mean(ends[printed]) - mean(ends[ours])) / 4)
        ratio = mean(ends[printed]) / mean(ends[ours])
        assert (claim.verdict, claim.why) == ("holds", f"{ratio:.1f} times less")


def test_fig2b() -> None:
    """Regret is 100 + 10 per breakpoint and run; knowing their number costs 5, or gains 8."""
    experiment = Fig2b(runs=3, counts=(0, 2, 4))
    slopes = (10.0, 11.0, 12.0)
    unknown = {count: [100 + slope * count for slope in slopes] for count in (0, 2, 4)}
    explored = {count: [105 + slope * count + run for run, slope in enumerate(slopes)]
                for count in (0, 2, 4)}  # fmt: skip
    detected = {count: [92 + slope * count - run for run, slope in enumerate(slopes)]
                for count in (0, 2, 4)}  # fmt: skip
    told = ("glr-cucb:paper", "glr-cucb:fresh")
    all_three = (*told, "bayes")
    values = []
    for count in (0, 2, 4):
        values.append({name: unknown[count] for name in all_three})
        values.append({name: explored[count] for name in told})
        values.append({name: detected[count] for name in told})
    by_key = {piece.key: piece.config["policy_options"] for piece in experiment.pieces()}
    assert by_key["breakpoints-full-02-unknown"] == {}
    explores = {"alpha": "besson", "n_segments": 3}
    assert by_key["breakpoints-full-02-exploration"] == dict.fromkeys(told, explores)
    detects = {"delta": pytest.approx(1 / math.sqrt(3 * 20_000))}
    assert by_key["breakpoints-full-02-detector"] == dict.fromkeys(told, detects)
    found = experiment.claims(simulated(experiment, "regret_rotate", *values))
    grows, helps = [found[0], found[3], found[6]], [found[1:3], found[4:6]]
    for claim, policy in zip(grows, all_three, strict=True):
        assert claim.what == f"{policy}: regret grows with each breakpoint"
        check(claim, slopes, "reproduced", "100 at 0, 144 at 4")
    why = "mean over all numbers of breakpoints"
    for (exploration, detector), policy in zip(helps, told, strict=True):
        what = f"{policy}: knowing the number of breakpoints helps the"
        assert (exploration.what, detector.what) == (f"{what} exploration", f"{what} detector")
        check(exploration, [-5, -6, -7], "not reproduced", why)
        check(detector, [8, 9, 10], "reproduced", why)


def test_fig2c() -> None:
    """Regret is a line in the logarithm of the number of sets: 3 of 3 channels, 28 of 8."""
    experiment = Fig2c(runs=3, channels=(3, 5, 8))
    slopes = (10.0, 14.0, 30.0)
    regret = [[50 + slope * math.log(sets) for slope in slopes] for sets in (3, 10, 28)]
    values = [{"m-exp3:paper": row, "m-exp3": [-value for value in row]} for row in regret]
    printed, ours = experiment.claims(simulated(experiment, "regret_rotate", *values))
    low, high = mean(regret[0]), mean(regret[2])
    told = f"{low:,.0f} at N = 3, {high:,.0f} at N = 8"
    check(printed, slopes, "not reproduced", told)  # t = 2.9 with three runs: p is 0.1
    why = f"{-low:,.0f} at N = 3, {-high:,.0f} at N = 8"
    check(ours, [-slope for slope in slopes], "not reproduced", why)
    assert {printed.unit, ours.unit} == {"regret per factor e"}
