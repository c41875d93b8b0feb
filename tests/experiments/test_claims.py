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

from freshband.experiments.base import Claim, Experiment, registry
from freshband.experiments.fig2a import Fig2a
from freshband.experiments.fig2b import Fig2b
from freshband.experiments.fig2c import Fig2c
from freshband.experiments.fig3 import Fig3
from freshband.experiments.fig4 import Fig4
from freshband.experiments.parts import Parts
from freshband.experiments.rules import Rules
from freshband.experiments.training import Trained, needed_rounds

ROUNDS = 250
LOOKS = range(5, ROUNDS + 1, 5)  # rounds in which the test set is looked at
PLACE = ("cifar10", "extreme")

Curve = Callable[[int, int], float]  # of a run and a round


def mean(values: Sequence[float]) -> float:
    return statistics.mean(map(float, values))


def error(values: Sequence[float]) -> float:
    return statistics.stdev(map(float, values)) / math.sqrt(len(values))


def check(claim: Claim, values: Sequence[float], verdict: str, why: str = "") -> None:
    """The claim is about these values, one per run."""
    assert claim.ours == pytest.approx(mean(values), rel=1e-5), claim.what
    assert claim.error == pytest.approx(error(values), rel=1e-4), claim.what
    assert (claim.verdict, claim.why) == (verdict, why), claim.what


def check_ratio(claim: Claim, above: Sequence[float], below: Sequence[float], scale: float) -> None:
    """The claim is about a ratio of means, whose error is that of a linearised ratio."""
    ratio = mean(above) / mean(below)
    rest = [a - ratio * b for a, b in zip(above, below, strict=True)]
    assert claim.ours == pytest.approx(scale * ratio, rel=1e-5), claim.what
    assert claim.error == pytest.approx(scale * error(rest) / mean(below), rel=1e-4), claim.what


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
                    over_rounds(by_role[role], experiment.runs, looked.get(name, 1)),
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
    (piece,) = experiment.pieces()
    policies: list[str] = piece.config["policies"]
    ends = {name: [100.0 * (9 - place) + run**2 for run in range(3)]
            for place, name in enumerate(policies)}  # fmt: skip
    ends["m-exp3:paper+aa"] = [950.0, 800.0, 900.0]  # not clearly below M-Exp3
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
    found = experiment.claims({piece.key: result})
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
    check(found[4], [-0.1 * end for end in ends["m-exp3:paper"]], "not reproduced")
    assert found[4].paper == "positive"
    for claim, (ours, printed) in zip(
        found[5:],
        [("glr-cucb", "glr-cucb:paper"), ("glr-cucb:fresh", "glr-cucb:paper+aa"),
         ("bayes", "glr-cucb:paper+aa")],
        strict=True,
    ):  # fmt: skip
        assert claim.what == f"ours, {ours}, below {printed} against the mean + age oracle"
        assert claim.ours == pytest.approx((mean(ends[printed]) - mean(ends[ours])) / 4)
        ratio = mean(ends[printed]) / mean(ends[ours])
        assert (claim.verdict, claim.why) == ("holds", f"{ratio:.1f} times less")


def test_fig2b() -> None:
    """Regret is 100 + 10 per breakpoint and run, and knowing their number costs 5."""
    experiment = Fig2b(runs=3, counts=(0, 2, 4))
    slopes = (10.0, 11.0, 12.0)
    unknown = {count: [100 + slope * count for slope in slopes] for count in (0, 2, 4)}
    known = {count: [105 + slope * count + run for run, slope in enumerate(slopes)]
             for count in (0, 2, 4)}  # fmt: skip
    told = ("glr-cucb:paper", "glr-cucb:fresh")
    all_three = (*told, "bayes")
    values = []
    for count in (0, 2, 4):
        values.append({name: unknown[count] for name in all_three})
        values.append({name: known[count] for name in told})
    found = experiment.claims(simulated(experiment, "regret_rotate", *values))
    grows, helps = [found[0], found[2], found[4]], [found[1], found[3]]
    for claim, policy in zip(grows, all_three, strict=True):
        assert claim.what == f"{policy}: regret grows with each breakpoint"
        check(claim, slopes, "reproduced", "100 at 0, 144 at 4")
    for claim, policy in zip(helps, told, strict=True):
        assert claim.what == f"{policy}: knowing the number of breakpoints helps"
        check(claim, [-5, -6, -7], "not reproduced", "mean over all numbers of breakpoints")


def test_fig2c() -> None:
    """Regret is a line in the logarithm of the number of sets: 3 of 3 channels, 28 of 8."""
    experiment = Fig2c(runs=3, channels=(3, 5, 8))
    slopes = (10.0, 14.0, 30.0)
    regret = [[50 + slope * math.log(sets) for slope in slopes] for sets in (3, 10, 28)]
    values = [{"m-exp3:paper": row, "m-exp3": [-value for value in row]} for row in regret]
    printed, ours = experiment.claims(simulated(experiment, "regret_rotate", *values))
    low, high = mean(regret[0]), mean(regret[2])
    check(printed, slopes, "reproduced", f"{low:,.0f} at N = 3, {high:,.0f} at N = 8")
    why = f"{-low:,.0f} at N = 3, {-high:,.0f} at N = 8"
    check(ours, [-slope for slope in slopes], "not reproduced", why)
    assert {printed.unit, ours.unit} == {"regret per factor e"}


# ---------------------------------------------------------------------------------------- trained


def test_rounds_that_are_needed() -> None:
    slow = np.arange(1.0, 101.0)[None]
    assert needed_rounds(np.minimum(2 * slow, 150), slow) == [0.51]
    assert needed_rounds(0.5 * slow, slow) == [1.0]  # never gets there: the last round counts


def test_fig3() -> None:
    """The paper has 58 % on this air: the learner stays below, ours is clearly above."""
    experiment = Fig3(places=[PLACE], runs=3)
    accuracy = {
        "random": line(0.5),
        "learner, random matching": line(0.4),
        "learner, adaptive matching": line(0.55, (0.02, 0.0, 0.03)),
        "ours": lambda run, t: min(2 * 0.5 * t / ROUNDS, 0.6) + (0.0, 0.01, 0.02)[run],
    }
    heard = dict(zip(accuracy, map(steady, (2.0, 2.1, 2.5, 3.0)), strict=True))
    found = experiment.claims(trained(experiment, accuracy=accuracy, n_delivered=heard))
    assert [claim.paper for claim in found] == ["58 %", "higher", "2/3"] * 2
    verdicts = {
        "learner, adaptive matching": ("not reproduced", "reproduced", "not reproduced"),
        "ours": ("exceeded", "reproduced", "exceeded"),
    }
    runs = range(3)
    random = accuracy["random"]
    random_late = mean([late(random, run, 100) for run in runs])
    for role, claims in zip(verdicts, (found[:3], found[3:]), strict=True):
        curve = accuracy[role]
        final = [100 * curve(run, ROUNDS) for run in runs]
        gains = [100 * (curve(run, ROUNDS) - random(run, ROUNDS)) for run in runs]
        role_late = mean([late(curve, run, 100) for run in runs])
        best = mean([100 * max(looks_of(curve, run)) for run in runs])
        share = heard["random"](0, 1) / heard[role](0, 1)
        whys = (
            f"{role_late:.1f} % over the last 100 rounds, {best:.1f} % at best",
            f"{random_late:.1f} -> {role_late:.1f} % over the last 100 rounds",
            f"random gets {share:.2f} times as many updates, 2.0 against "
            f"{heard[role](0, 1):.1f} per round",
        )
        needed = [rounds_needed(curve, random, run) for run in runs]
        for claim, values, verdict, why in zip(
            claims, (final, gains, needed), verdicts[role], whys, strict=True
        ):
            assert role in claim.what
            check(claim, values, verdict, why)


def test_fig4_of_what_is_trained() -> None:
    experiment = Fig4(places=[PLACE, ("cifar100", "extreme")], runs=3)
    ends = {
        "random": (400.0, 500.0, 450.0),
        "learner, random matching": (300.0, 310.0, 320.0),
        "learner, adaptive matching": (200.0, 220.0, 180.0),
        "ours": (100.0, 120.0, 95.0),
    }
    # All of it grows evenly, but ours hardly grows after round 150.
    total = {role: up_to(end) for role, end in ends.items()}
    total["ours"] = lambda run, t: ends["ours"][run] * (0.9 * min(t / 150, 1) + 0.1 * t / ROUNDS)
    spread = {role: steady(0.3 - 0.05 * place, 0.01) for place, role in enumerate(ends)}
    spread["ours"] = lambda run, t: 0.3 + 0.02 * run
    results = trained(experiment, cumulative_variance=total, accuracy_spread=spread)
    found = [claim for place in experiment.places for claim in experiment.claims_at(results, place)]
    assert len(found) == 6  # ages do not depend on the data set
    base = ends["random"]
    for role, (cut, slope, even) in zip(
        ("learner, adaptive matching", "ours"), (found[:3], found[3:]), strict=True
    ):
        last = ends[role]
        assert cut.what == f"extreme: cut of the cumulative variance against random, {role}"
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
    assert verdicts[:2] == ["not reproduced", "not reproduced"]  # 56 % of 71, a slope of 0.44
    assert verdicts[3:5] == ["exceeded", "exceeded"]  # 77 %, 0.02 of 2 / 15


def test_fig4_of_ages_alone() -> None:
    """Random scheduling has 100 on all airs; how far the others get differs."""
    experiment = Fig4(places=[], simulated_runs=3)
    pieces = experiment.pieces()
    base = [90.0, 100.0, 110.0]

    def values(piece: Any, learned: float) -> dict[str, Sequence[float]]:
        random, _, oldest, corrected, fresh, ours, oracle = piece.config["policies"]
        return {
            random: base,
            piece.config["policies"][1]: base,
            oldest: [b - 0.5 * learned * (b + 3) for b in base],
            corrected: base,
            fresh: base,
            ours: [b - 0.9 * learned * (b - 3) for b in base],
            oracle: [b - learned * b for b in base],
        }

    learned = [0.9, 0.9, 0.8, 0.8, 0.7, 0.05, 0.8, 0.8]  # on the sixth air nothing can be learned
    made = [values(piece, share) for piece, share in zip(pieces, learned, strict=True)]
    found = experiment.claims(simulated(experiment, "cumulative_variance", *made))
    assert len(found) == 8 * 3 - 2 * 2 - 1  # no paper on jammers, no gap on the sixth air
    printed, ours, gap = found[:3]
    assert printed.what == "piecewise, ages alone: cut by glr-cucb:paper, oldest first"
    check_ratio(printed, [0.45 * (b + 3) for b in base], base, 100)
    assert (printed.paper, printed.verdict) == ("73 to 78 %", "not reproduced")
    check_ratio(ours, [0.81 * (b - 3) for b in base], base, 100)
    assert ours.verdict == "exceeded"
    assert ours.why == "the oracle that knows the means cuts 90 %"
    check_ratio(gap, [0.81 * (b - 3) for b in base], [0.9 * b for b in base], 100)
    assert (gap.paper, gap.verdict) == ("-", "holds")
    assert gap.why == f"glr-cucb:paper, oldest first: {100 * 0.45 * 103 / 90:.0f} %"
    by_what = {claim.what: claim for claim in found}
    assert by_what["still, ages alone: cut by m-exp3:paper, oldest first"].paper == "71 to 75 %"
    closes = "ours closes at least half of the gap, random to oracle"
    assert f"hazard 0.04, ages alone: {closes}" in by_what
    assert f"hazard 0.2, ages alone: {closes}" not in by_what


def test_parts() -> None:
    """The rule gives 5 points, each scheduler one more, and with the rule nothing more."""
    experiment = Parts(places=[PLACE], runs=3)
    plain = ["random", "m-exp3:paper+priority", "bayes+priority"]
    rule = [f"{policy}@eager+average" for policy in plain]
    assert list(experiment.roles(PLACE)) == plain + rule
    accuracy = {policy: line(0.5 + 0.01 * place) for place, policy in enumerate(plain)}
    accuracy |= {
        policy: line(0.55, (0.01, 0.02 + 0.001 * place, 0.0)) for place, policy in enumerate(rule)
    }
    found = experiment.claims(trained(experiment, accuracy=accuracy))
    pairs = [
        *zip(rule, plain, strict=True),
        *((policy, plain[0]) for policy in plain[1:]),
        *((policy, rule[0]) for policy in rule[1:]),
    ]
    spans = {"all rounds": ROUNDS, "the last 100": 100}
    asked = [(better, worse, span) for better, worse in pairs for span in spans]
    for claim, (better, worse, span) in zip(found, asked, strict=True):
        assert claim.what == f"cifar10, extreme: {better} above {worse}, accuracy over {span}"
        values = {
            policy: [late(accuracy[policy], run, spans[span]) for run in range(3)]
            for policy in (better, worse)
        }
        gains = [b - w for b, w in zip(values[better], values[worse], strict=True)]
        assert claim.ours == pytest.approx(mean(gains), abs=1e-4)
        assert claim.error == pytest.approx(error(gains), abs=1e-4)
        clear = better in plain or (worse in plain and mean(gains) > 2 * error(gains))
        assert claim.verdict == ("holds" if clear else "does not hold")
        assert claim.why == f"{mean(values[worse]):.1f} -> {mean(values[better]):.1f} %"


def test_rules() -> None:
    experiment = Rules(places=[PLACE], runs=3, rules=("", "fixed", "eager+average"),
                       rivals=("fedavg", "longer+average"))  # fmt: skip
    accuracy = {
        "": line(0.5),
        "fixed": line(0.45),
        "eager+average": line(0.6, (0.0, 0.02, 0.04)),
        "fedavg": line(0.58),
        "longer+average": line(0.61, (0.02, 0.0, 0.03)),
    }
    work = {"": 2.0, "fixed": 2.0, "eager+average": 3.8, "fedavg": 4.0, "longer+average": 2.0}
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
        assert claim.ours == pytest.approx(mean(gains), abs=1e-4)
        assert claim.error == pytest.approx(error(gains), abs=1e-4)
        assert (claim.verdict, claim.why) == (verdict, why)


def test_claims_of_every_experiment_are_checked_by_value() -> None:
    checked = {name.split("_")[1] for name in globals() if name.startswith("test_")}
    assert set(registry) <= checked
