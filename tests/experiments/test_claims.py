"""Claims are judged as stated: made-up results of known values, with the arithmetic done again.

Neither these tests nor `claiming` use the functions that experiments use: means, standard errors,
slopes and rounds are computed from plain numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband.experiments.airs import _AIRS, Airs
from freshband.experiments.base import Claim, registry
from freshband.experiments.fig3 import Fig3
from freshband.experiments.fig4 import Fig4
from freshband.experiments.parts import Parts
from freshband.experiments.rules import Rules
from freshband.experiments.training import accuracy_within, needed_rounds
from tests.experiments.claiming import (
    LOOKS,
    PLACE,
    ROUNDS,
    THREE,
    Curve,
    check,
    check_ratio,
    late,
    line,
    looks_of,
    mean,
    rounds_needed,
    simulated,
    steady,
    told,
    trained,
    up_to,
)


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
    "learner, everything as printed", "learner, matching corrected", "random with our rule",
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
        assert (claim.what, claim.paper) == (f"cifar10, extreme: {role}: final accuracy", "58 %")
        reached = [
            mean([within(accuracy[role], run, spent[role](0, 1), spent["random"](0, 1))
                  for run in runs])
            for spent in (work, heard)
        ]  # fmt: skip
        why = (
            f"random {mean(final['random']):.1f} %; with random's local work {reached[0]:.1f}, its "
            f"uploads {reached[1]:.1f} %"
        )
        check(claim, final[role], verdict, why)
    pairs = [
        (PRINTED, "random", PRINTED, "higher", "not reproduced", "not reproduced"),
        (CORRECTED, "random", CORRECTED, "higher", "reproduced", "not reproduced"),
        ("ours", RULED, "scheduling's part of ours", "higher", "reproduced", "exceeded"),
        (RULED, "random", "the rule's part of ours", "-", "holds", "holds"),
    ]
    for (better, worse, name, said, higher, faster), gain, speed in zip(
        pairs, found[3::2], found[4::2], strict=True
    ):
        what = f"cifar10, extreme: {name}: "
        assert gain.what == f"{what}final accuracy beyond that of {worse}"
        assert speed.what == f"{what}rounds to the final accuracy of {worse}, over its own"
        assert (gain.paper, speed.paper) == (said, "2/3" if said == "higher" else "-")
        gains = [b - w for b, w in zip(final[better], final[worse], strict=True)]
        why = f"{mean(final[worse]):.1f} -> {mean(final[better]):.1f} %; at equal local work "
        check(
            gain,
            gains,
            higher,
            f"{why}{told(ahead_at_equal(accuracy, work, better, worse))} points",
        )
        needed = [rounds_needed(accuracy[better], accuracy[worse], run) for run in runs]
        uploads = f"{heard[worse](0, 1):.1f} against {heard[better](0, 1):.1f} uploads per round"
        check(speed, needed, faster, uploads)


def ahead_at_equal(
    accuracy: dict[str, Curve], spent: dict[str, Curve], better: str, worse: str
) -> list[float]:
    """Points by which a policy is ahead once it has spent what the other spends in all rounds."""
    budget = spent[worse](0, 1)
    return [
        within(accuracy[better], run, spent[better](0, 1), budget)
        - within(accuracy[worse], run, budget, budget)
        for run in range(3)
    ]


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
    schedulers = [(ours, random), (ours_ruled, random_ruled)]
    pairs = [(random_ruled, random, "holds"), (ours_ruled, ours, "holds")]
    pairs += [(*schedulers[0], "holds"), (*schedulers[1], "does not hold")]
    for claim, (better, worse, verdict) in zip(found[:4], pairs, strict=True):
        assert claim.what == f"cifar10, extreme: {better} above {worse}, final accuracy"
        values = {
            each: [late(accuracy[each], run, 25) for run in range(3)] for each in (better, worse)
        }
        gains = [b - w for b, w in zip(values[better], values[worse], strict=True)]
        check(claim, gains, verdict, f"{mean(values[worse]):.1f} -> {mean(values[better]):.1f} %")
    for claim, (better, worse) in zip(found[4:], schedulers, strict=True):
        what = f"{better} needs fewer rounds to {worse}'s final accuracy"
        assert claim.what == f"cifar10, extreme: {what}"
        saved = [1 - rounds_needed(accuracy[better], accuracy[worse], run) for run in range(3)]
        last = [  # 2 of 2.5 uploads per round: the other's last fifth is worth as much
            within(accuracy[worse], run, 2.0, 2.0) - within(accuracy[worse], run, 2.0, 1.6)
            for run in range(3)
        ]
        same = told(ahead_at_equal(accuracy, heard, better, worse))
        why = (
            f"1.25 times the uploads; at equal uploads {same} points; the other's last 20% of "
            f"uploads gave it {told(last)}"
        )
        check(claim, saved, "does not hold", why)


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
    here = Path(__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in here.glob("test_claims*.py"))
    assert set(registry) <= set(re.findall(r"^def test_(\w+)\(", text, re.MULTILINE))
