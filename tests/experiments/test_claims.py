"""Claims are judged as stated: made-up results of known values, and the arithmetic done again here.

Nothing below uses the functions that experiments use: means, standard errors, slopes and rounds are
computed from plain numbers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from freshband.experiments.airs import _AIRS, Airs
from freshband.experiments.base import Claim, Experiment, registry
from freshband.experiments.fig2a import Fig2a
from freshband.experiments.fig2b import Fig2b
from freshband.experiments.fig2c import Fig2c
from freshband.experiments.fig3 import Fig3
from freshband.experiments.fig4 import Fig4
from freshband.experiments.parts import Parts
from freshband.experiments.rules import Rules
from freshband.experiments.training import Trained, accuracy_within, needed_rounds

ROUNDS = 250
LOOKS = range(5, ROUNDS + 1, 5)  # rounds in which the test set is looked at
PLACE = ("cifar10", "extreme")
THREE = {"cifar10": 3, "cifar100": 3}  # runs
T = {1: 12.7062047, 2: 4.3026527, 3: 3.1824463}  # the 97.5 % points of Student's t, from a table

Curve = Callable[[int, int], float]  # of a run and a round


def mean(values: Sequence[float]) -> float:
    return statistics.mean(map(float, values))


def error(values: Sequence[float]) -> float:
    return statistics.stdev(map(float, values)) / math.sqrt(len(values))


def check(claim: Claim, values: Sequence[float], verdict: str, why: str = "") -> None:
    """The claim is about these values, one per run."""
    check_interval(claim, mean(values), error(values), len(values))
    assert (claim.verdict, claim.why) == (verdict, why), claim.what


def check_interval(claim: Claim, middle: float, spread: float, runs: int) -> None:
    """The claim has this mean, and Student's interval of this standard error."""
    half = T[runs - 1] * spread
    assert claim.ours == pytest.approx(middle, rel=1e-4, abs=1e-4), claim.what
    assert claim.high - claim.ours == pytest.approx(half, rel=1e-3, abs=1e-4), claim.what
    assert claim.ours - claim.low == pytest.approx(half, rel=1e-3, abs=1e-4), claim.what


def check_ratio(claim: Claim, above: Sequence[float], below: Sequence[float], scale: float) -> None:
    """The claim is about a ratio of means, whose error is that of a linearised ratio."""
    ratio = mean(above) / mean(below)
    rest = [a - ratio * b for a, b in zip(above, below, strict=True)]
    check_interval(claim, scale * ratio, scale * error(rest) / mean(below), len(rest))


# -------------------------------------------------------------------------------- results made up


def simulated(experiment: Experiment, measure: str, *values: dict[str, Sequence[float]]) -> Any:
    """Pieces with a measure by policy, run by run."""
    return {
        piece.key: xr.Dataset(
            {measure: (("policy", "run"), np.array([*by_policy.values()], dtype=float))},
            coords={"policy": list(by_policy)},
        )
        for piece, by_policy in zip(experiment.pieces(), values, strict=True)
    }


def over_rounds(curve: Curve, runs: int, every: int = 1) -> NDArray[np.float32]:
    """All runs of a curve, shape (1, runs, rounds), as files have it: NaN where nobody looked."""
    rows = [
        [curve(run, t) if t % every == 0 else math.nan for t in range(1, ROUNDS + 1)]
        for run in range(runs)
    ]
    return np.array([rows], dtype=np.float32)


def trained(experiment: Trained, **measures: dict[str, Curve]) -> dict[str, xr.Dataset]:
    """Pieces with measures that are the same at all places, by role."""
    found = {}
    pieces = (piece for piece in experiment.pieces() if "policy" in piece.config)
    for place in experiment.places:
        for role in experiment.roles(place):
            looked = {"accuracy": 5}
            arrays = {
                name: (
                    ("policy", "run", "round"),
                    over_rounds(by_role[role], experiment.runs[place[0]], looked.get(name, 1)),
                )
                for name, by_role in measures.items()
            }
            found[next(pieces).key] = xr.Dataset(arrays)
    return found


def line(end: float, by_run: Sequence[float] = (0.0, 0.01, 0.03)) -> Curve:
    """A curve that grows evenly up to the last round; runs differ by a constant."""
    return lambda run, t: end * t / ROUNDS + by_run[run]


def steady(value: float, more: float = 0.0) -> Curve:
    """A curve that stays where it is; runs differ by squares."""
    return lambda run, t: value + more * run**2


def up_to(ends: Sequence[float]) -> Curve:
    """A curve that grows evenly from 0 to a value per run."""
    return lambda run, t: ends[run] * t / ROUNDS


def looks_of(curve: Curve, run: int) -> list[float]:
    return [float(np.float32(curve(run, t))) for t in LOOKS]


def rounds_needed(curve: Curve, base: Curve, run: int) -> float:
    """Rounds until the mean of five looks reaches the base's last one, over the base's own."""

    def first(values: list[float], level: float) -> int:
        for place in range(5, len(values) + 1):
            if mean(values[place - 5 : place]) >= level:
                return LOOKS[place - 1]
        return LOOKS[-1]

    ours, own = looks_of(curve, run), looks_of(base, run)
    level = mean(own[-5:])
    return first(ours, level) / first(own, level)


def late(curve: Curve, run: int, rounds: int) -> float:
    """Mean accuracy over the last rounds, in percent."""
    return 100 * mean([value for t, value in zip(LOOKS, looks_of(curve, run), strict=True)
                       if t > ROUNDS - rounds])  # fmt: skip


# -------------------------------------------------------------------------------------- simulated


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


# ---------------------------------------------------------------------------------------- trained


def test_rounds_that_are_needed() -> None:
    slow = np.arange(1.0, 101.0)[None]
    assert needed_rounds(np.minimum(2 * slow, 150), slow) == [0.51]
    assert needed_rounds(0.5 * slow, slow) == [1.0]  # never gets there: the last round counts


def test_accuracy_within_a_budget() -> None:
    accuracy = np.arange(1.0, 101.0)[None] / 100
    spent = np.full((1, 100), 2.0)
    # 100 trainings are spent after round 50: the mean of rounds 46 to 50.
    assert accuracy_within(accuracy, spent, np.array([100.0])) == pytest.approx([48.0])
    assert accuracy_within(accuracy, spent, np.array([1e9])) == pytest.approx([98.0])
    assert accuracy_within(accuracy, spent, np.array([0.0])) == pytest.approx([3.0])


PRINTED, CORRECTED, RULED = (
    "learner, everything as printed", "learner, matching corrected", "random, our rule",
)  # fmt: skip


def test_fig3() -> None:
    """The paper has 58 % on this air: the printed learner stays below it, ours is above."""
    experiment = Fig3(places=[PLACE], runs=THREE)
    policies = {role: runs.policy for role, runs in experiment.roles(PLACE).items()}
    assert policies == {
        "random": "random",
        PRINTED: "m-exp3:paper+priority:paper@paper",
        CORRECTED: "m-exp3:paper+priority",
        RULED: "random@eager+average",
        "ours": "bayes+priority@eager+average",
    }
    accuracy: dict[str, Curve] = {
        "random": line(0.5),
        PRINTED: line(0.45, (0.0, 0.011, 0.03)),
        CORRECTED: line(0.6, (0.02, 0.0, 0.03)),
        RULED: lambda run, t: min(2 * 0.6 * t / ROUNDS, 0.6) + (0.0, 0.01, 0.02)[run],
        "ours": lambda run, t: min(3 * 0.6 * t / ROUNDS, 0.65) + (0.0, 0.01, 0.02)[run],
    }
    heard = dict(zip(accuracy, map(steady, (2.0, 2.1, 2.5, 2.0, 2.5)), strict=True))
    work = dict(zip(accuracy, map(steady, (2.0, 2.0, 2.0, 4.0, 4.0)), strict=True))
    results = trained(experiment, accuracy=accuracy, n_delivered=heard, trained=work)
    found = experiment.claims(results)
    runs = range(3)
    final = {role: [late(curve, run, 25) for run in runs] for role, curve in accuracy.items()}
    for claim, role, verdict in zip(
        found[:3], (PRINTED, CORRECTED, "ours"), ("not reproduced", "reproduced", "exceeded"),
        strict=True,
    ):  # fmt: skip
        assert (claim.what, claim.paper) == (f"cifar10, extreme: final accuracy, {role}", "58 %")
        told = [
            mean([within(accuracy[role], run, spent[role](0, 1), spent["random"](0, 1))
                  for run in runs])
            for spent in (work, heard)
        ]  # fmt: skip
        why = (
            f"random {mean(final['random']):.1f} %; with random's local work {told[0]:.1f}, its "
            f"uploads {told[1]:.1f} %"
        )
        check(claim, final[role], verdict, why)
    pairs = [
        (PRINTED, "random", PRINTED, "higher", "not reproduced", "not reproduced"),
        (CORRECTED, "random", CORRECTED, "higher", "reproduced", "not reproduced"),
        ("ours", RULED, "ours: scheduling's part", "higher", "reproduced", "exceeded"),
        (RULED, "random", "ours: the rule's part", "-", "holds", "holds"),
    ]
    for (better, worse, name, said, higher, faster), gain, speed in zip(
        pairs, found[3::2], found[4::2], strict=True
    ):
        assert gain.what == f"cifar10, extreme: final accuracy, {name}, {better} beyond {worse}"
        assert (gain.paper, speed.paper) == (said, "2/3" if said == "higher" else "-")
        gains = [b - w for b, w in zip(final[better], final[worse], strict=True)]
        check(gain, gains, higher, f"{mean(final[worse]):.1f} -> {mean(final[better]):.1f} %")
        needed = [rounds_needed(accuracy[better], accuracy[worse], run) for run in runs]
        uploads = f"{heard[worse](0, 1):.1f} against {heard[better](0, 1):.1f} uploads per round"
        check(speed, needed, faster, uploads)


def within(curve: Curve, run: int, spent: float, budget: float) -> float:
    """The mean of five looks, in percent, when the budget of all rounds is spent."""
    seen = [value for t, value in zip(LOOKS, looks_of(curve, run), strict=True)
            if spent * t <= budget * ROUNDS + 1e-9]  # fmt: skip
    return 100 * mean(seen[-5:])


def test_an_accuracy_that_random_exceeds_is_no_success() -> None:
    experiment = Fig3(places=[PLACE], runs=THREE)
    roles = list(experiment.roles(PLACE))
    accuracy = {role: line(0.65 + 0.01 * place) for place, role in enumerate(roles)}
    same = {role: steady(2.0) for role in roles}
    found = experiment.claims(
        trained(experiment, accuracy=accuracy, n_delivered=same, trained=same)
    )
    assert {claim.verdict for claim in found[:3]} == {"reached by random too"}


def test_fig4() -> None:
    experiment = Fig4(places=[PLACE], runs=THREE)
    ends = {
        "random": (400.0, 500.0, 450.0),
        PRINTED: (300.0, 310.0, 320.0),
        CORRECTED: (200.0, 220.0, 180.0),
        RULED: (400.0, 500.0, 450.0),
        "ours": (88.0, 110.0, 99.5),
    }
    # All of it grows evenly, but ours hardly grows after round 150.
    total = {role: up_to(end) for role, end in ends.items()}
    total["ours"] = lambda run, t: ends["ours"][run] * (0.9 * min(t / 150, 1) + 0.1 * t / ROUNDS)
    spread = {role: steady(0.3 - 0.05 * place, 0.01) for place, role in enumerate(ends)}
    spread[CORRECTED] = lambda run, t: 0.2 + 0.01 * run**2 + 0.001 * run
    spread["ours"] = lambda run, t: 0.3 + 0.02 * run
    results = trained(experiment, cumulative_variance=total, accuracy_spread=spread)
    found = experiment.claims(results)
    assert len(found) == 9
    base = ends["random"]
    for role, (cut, slope, even) in zip(
        (PRINTED, CORRECTED, "ours"), (found[:3], found[3:6], found[6:]), strict=True
    ):
        last = ends[role]
        what = f"cifar10, extreme: cut of the cumulative variance against random, {role}"
        assert cut.what == what
        check_ratio(cut, [b - v for b, v in zip(base, last, strict=True)], base, 100)
        assert cut.why == f"450 -> {mean(last):.0f}"
        rises = [[total[each](run, 250) - total[each](run, 150) for run in range(3)]
                 for each in (role, "random")]  # fmt: skip
        check_ratio(slope, *rises, 1)
        ours, random = (mean(rise) / 100 for rise in rises)
        assert slope.why == f"{ours:.2f} against {random:.2f} per round"
        gains = [100 * (spread["random"](run, 1) - spread[role](run, 1)) for run in range(3)]
        check(even, gains, "holds" if role != "ours" else "does not hold")
    verdicts = [claim.verdict for claim in found]
    assert verdicts[3:5] == ["not reproduced", "not reproduced"]  # 56 % of 71, a slope of 0.44
    assert verdicts[6:8] == ["exceeded", "exceeded"]  # 78 %, 0.02 of 2 / 15


def test_airs() -> None:
    """Random scheduling has 100 on all airs; how far the others get differs."""
    experiment = Airs(runs=6, tables=3)
    pieces = experiment.pieces()
    assert [piece.config.get("against") for piece in pieces[-3:]] == [
        "m-exp3:paper+age", "glr-cucb:paper+age", "bayes",
    ]  # fmt: skip
    base = [90.0, 100.0, 110.0, 95.0, 105.0, 100.0]

    def values(piece: Any, learned: float) -> dict[str, Sequence[float]]:
        random, drawn, oldest, corrected, fresh, ours, oracle = piece.config["policies"]
        return {
            random: base,
            drawn: base,
            oldest: [b - 0.5 * learned * (b + 3) for b in base],
            corrected: base,
            fresh: base,
            ours: [b - 0.9 * learned * (b - 3) for b in base],
            oracle: [b - learned * b for b in base],
        }

    # On the sixth air, and on the hard instance, nothing can be learned.
    learned = [0.9, 0.9, 0.8, 0.8, 0.7, 0.05, 0.8, 0.8, 0.05, 0.8, 0.8, 0.8]
    made = [values(piece, share) for piece, share in zip(pieces, learned, strict=True)]
    found = experiment.claims(simulated(experiment, "cumulative_variance", *made))
    assert len(found) == 6 * 2 + len(_AIRS) - 2
    printed, ours, gap = found[:3]
    assert printed.what == "piecewise: cut by glr-cucb:paper, oldest first"
    ratio_of(printed, [0.45 * (b + 3) for b in base], base)
    assert (printed.paper, printed.verdict) == ("73 to 78 %", "not reproduced")
    ratio_of(ours, [0.81 * (b - 3) for b in base], base)
    assert ours.verdict == "exceeded"
    assert ours.why == "the oracle that knows the means cuts 90 %"
    ratio_of(gap, [0.81 * (b - 3) for b in base], [0.9 * b for b in base])
    assert (gap.paper, gap.verdict) == ("-", "holds")
    share = 100 * 0.45 * 103 / 90
    assert gap.why == f"it cuts 90 %; glr-cucb:paper, oldest first: {share:.0f} % of it"
    by_what = {claim.what: claim for claim in found}
    assert by_what["still: cut by m-exp3:paper, oldest first"].paper == "71 to 75 %"
    assert "hazard 0.04: ours cuts at least half of what the oracle reaches" in by_what
    assert "hazard 0.2: ours cuts at least half of what the oracle reaches" not in by_what
    # Two runs of each table count as one.
    table = by_what[
        "table against ours: ours cuts at least half of what the best fixed set reaches"
    ]
    means = [mean(base[2 * place : 2 * place + 2]) for place in range(3)]
    check_ratio(table, [0.72 * (b - 3) for b in means], [0.8 * b for b in means], 100)


def ratio_of(claim: Claim, above: Sequence[float], below: Sequence[float]) -> None:
    assert claim.ours == pytest.approx(100 * mean(above) / mean(below)), claim.what


def test_parts() -> None:
    """The rule gives 5 points, scheduling one more, and with the rule nothing more."""
    experiment = Parts(places=[PLACE], runs=THREE)
    policies = ["random", "bayes+priority"]
    policies += [f"{policy}@eager+average" for policy in policies]
    random, ours, random_ruled, ours_ruled = policies
    assert list(experiment.roles(PLACE)) == policies
    accuracy = {
        random: line(0.5),
        ours: line(0.51, (0.0, 0.011, 0.03)),
        random_ruled: line(0.55, (0.0, 0.012, 0.03)),
        ours_ruled: line(0.55, (0.01, 0.0, 0.03)),
    }
    heard = dict(zip(policies, map(steady, (2.0, 2.5, 2.0, 2.5)), strict=True))
    found = experiment.claims(trained(experiment, accuracy=accuracy, n_delivered=heard))
    pairs = [
        (random_ruled, random, "holds", 1.0), (ours_ruled, ours, "holds", 1.0),
        (ours, random, "holds", 1.25), (ours_ruled, random_ruled, "does not hold", 1.25),
    ]  # fmt: skip
    for claim, (better, worse, verdict, ratio) in zip(found, pairs, strict=True):
        assert claim.what == f"cifar10, extreme: {better} above {worse}, final accuracy"
        values = {
            each: [late(accuracy[each], run, 25) for run in range(3)] for each in (better, worse)
        }
        gains = [b - w for b, w in zip(values[better], values[worse], strict=True)]
        why = f"{mean(values[worse]):.1f} -> {mean(values[better]):.1f} %"
        check(claim, gains, verdict, f"{why}, with {ratio:.2f} times the uploads")


def test_rules() -> None:
    experiment = Rules(places=[PLACE], runs=THREE, rules=("", "fixed", "eager+average"),
                       rivals=("fedavg", "longer+average"), variants=("recency=8",))  # fmt: skip
    accuracy = {
        "": line(0.5),
        "fixed": line(0.45),
        "eager+average": line(0.6, (0.0, 0.02, 0.04)),
        "fedavg": line(0.58),
        "longer+average": line(0.61, (0.02, 0.0, 0.03)),
        "recency=8": line(0.59, (0.0, 0.02, 0.05)),
    }
    work = {"": 2.0, "fixed": 2.0, "eager+average": 3.8, "fedavg": 4.0, "longer+average": 2.0,
            "recency=8": 3.8}  # fmt: skip
    counts = {rule: steady(each) for rule, each in work.items()}
    results = trained(experiment, accuracy=accuracy, trained=counts)
    assert experiment.best_rule(results, PLACE) == "eager+average"  # rivals do not take part
    random, ours = "random", "random@eager+average"
    asked = [
        ("fixed", "", "random@fixed", random, "does not hold", ""),
        ("eager+average", "", ours, random, "holds", ", best"),
        ("eager+average", "fedavg", ours, "random@fedavg", "holds", ""),
        ("eager+average", "longer+average", ours, "random@average, 2 times the local steps,",
         "does not hold", ""),
        ("eager+average", "recency=8", ours, f"{ours}, recency=8,", "does not hold", ""),
    ]  # fmt: skip
    found = experiment.claims(results)
    for claim, (better, worse, better_name, worse_name, verdict, best) in zip(
        found, asked, strict=True
    ):
        what = f"cifar10, extreme: {better_name} above {worse_name} in the last 25 rounds"
        assert claim.what == what
        ends = {
            rule: [late(accuracy[rule], run, 25) for run in range(3)] for rule in (better, worse)
        }
        told = worse or better
        cost = work[told] / work[""] * (2 if "longer" in told else 1)
        needed = mean([rounds_needed(accuracy[told], accuracy[""], run) for run in range(3)])
        why = (
            f"{mean(ends[worse]):.1f} -> {mean(ends[better]):.1f} %{best}; {told} needs "
            f"{needed:.2f} of random's rounds, with {cost:.1f} times the work in each"
        )
        gains = [b - w for b, w in zip(ends[better], ends[worse], strict=True)]
        check(claim, gains, verdict, why)


def test_claims_of_every_experiment_are_checked_by_value() -> None:
    checked = {name.split("_")[1] for name in globals() if name.startswith("test_")}
    assert set(registry) <= checked
