"""Single-play regrets on Besson's problems, as published and as a prototype had them (T6)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from freshband.channels import open_air
from freshband.simulation import simulate
from tests.theory.margins import needs_compiler

pytestmark = needs_compiler

ROUNDS = 5000
RUNS = {"besson-1": 500, "besson-2": 500, "besson-4": 200}  # standard errors about 1.4 %
#            published (1000 runs), and a prototype's (300 runs)
REGRET = {
    "besson-1": {"kl-ucb": (270, 275), "thompson": (493, 504), "m-exp3+rotate": (352, 332)},
    "besson-2": {"kl-ucb": (162, 164), "thompson": (388, 377), "m-exp3+rotate": (310, 300)},
    "besson-4": {"kl-ucb": (615, 617), "thompson": (756, 750)},
}


def lost_deliveries(problem: str, policies: list[str], runs: int, **options: Any) -> Any:
    """Mean deliveries a policy has less than the oracle, over the same air."""
    result = simulate(
        problem, [*policies, "oracle:mean+age"], clients=1, rounds=ROUNDS, runs=runs, seed=0,
        points=1, threads=1, progress=False, **options,
    )  # fmt: skip
    delivered = result.delivered.mean("run")
    return delivered.sel(policy="oracle:mean+age") - delivered


@pytest.mark.parametrize("problem", REGRET)
def test_kl_ucb_and_thompson(problem: str) -> None:
    # ucb with c = 1.5 has 244, 170, 550; Thompson sampling that forgets has 280, 141, 576
    found = lost_deliveries(problem, ["kl-ucb", "thompson"], RUNS[problem])
    for policy in ("kl-ucb", "thompson"):
        for regret in REGRET[problem][policy]:
            assert float(found.sel(policy=policy)) == pytest.approx(regret, rel=0.07)


def exp3_s_gamma(n_channels: int, segments: int) -> float:
    """Return γ of Auer et al., Corollary 8.3, for best channels that change with the segments."""
    hardness = segments * math.log(n_channels * ROUNDS) + math.e
    return min(1.0, math.sqrt(n_channels * hardness / ((math.e - 1) * ROUNDS)))


@pytest.mark.parametrize("problem", ["besson-1", "besson-2"])
def test_exp3_s(problem: str) -> None:
    # without sharing it has 1233, 806; with ten times as much 578, 556
    options = {"gamma": exp3_s_gamma(3, segments=5), "share": 1 / ROUNDS, "discount": None}
    found = lost_deliveries(
        problem, ["m-exp3+rotate"], 100, policy_options={"m-exp3+rotate": options}
    )
    for regret in REGRET[problem]["m-exp3+rotate"]:
        assert float(found.sel(policy="m-exp3+rotate")) == pytest.approx(regret, rel=0.1)


def settings_of(problem_changes: int = 4) -> dict[str, dict[str, Any]]:
    """Return the settings of Besson's table, from T and the number of changes."""
    rate = math.log(ROUNDS / problem_changes)
    return {
        "exp3-s+rotate": {"gamma": "auto", "share": "auto", "n_segments": 5},
        "kl-ucb": {"mean_window": int(2 * math.sqrt(ROUNDS * math.log(ROUNDS) / problem_changes))},
        "cusum-ucb": {
            "index": "kl-ucb", "warm_up": 150, "drift": 0.1, "threshold": rate,
            "alpha": math.sqrt(problem_changes * rate / ROUNDS),
        },
        # as published: the program was not told how many changes there are, and took 1
        "m-ucb:published": {"index": "kl-ucb", "window": 150, "n_segments": 2},
        "glr-klucb:published": {"n_segments": problem_changes + 1},
    }  # fmt: skip


# The rows Exp3.S, SW-klUCB, CUSUM-klUCB and M-klUCB; GLR-klUCB with local restarts has 43 and 73
# here, less than published. With the four changes that there are, M-klUCB has 518 and 776.
FIELD = {"besson-1": (352, 177, 148, 290, 74), "besson-2": (310, 182, 152, 534, 113)}


@pytest.mark.parametrize("problem", FIELD)
def test_rows_of_the_field(problem: str) -> None:
    options = settings_of()
    found = lost_deliveries(problem, list(options), 100, policy_options=options)
    *equal, most = zip(options, FIELD[problem], strict=True)
    for policy, regret in equal:
        assert float(found.sel(policy=policy)) == pytest.approx(regret, rel=0.1), policy
    assert float(found.sel(policy=most[0])) < most[1]


# DTS as published, and as Raj and Kalyani define it
DISCOUNTED = {"besson-1": (209, 422), "besson-2": (249, 437)}


def discounted_thompson(problem: str, runs: int, *, as_published: bool) -> float:
    """Regret of Thompson sampling with γ = 0.95, as defined or as the published program has it.

    The program multiplies the counts of the channel just played by γ once for each channel, and
    those of the others never.
    """
    rng, discount, rows = np.random.default_rng(0), 0.95, np.arange(runs)
    means = open_air(problem, ROUNDS, seed=0).block(ROUNDS).means
    counts = np.zeros((2, runs, 3))  # successes and failures
    regret = np.zeros(runs)
    for now in means:
        played = rng.beta(*(1 + counts)).argmax(axis=1)
        won = rng.random(runs) < now[played]
        regret += now.max() - now[played]
        if not as_published:
            counts *= discount
        counts[:, rows, played] *= discount if as_published else 1
        counts[0, rows, played] += won
        counts[1, rows, played] += ~won
        counts[:, rows, played] *= discount**2 if as_published else 1
    return float(regret.mean())


@pytest.mark.parametrize("problem", DISCOUNTED)
def test_why_discounted_thompson_is_not_as_published(problem: str) -> None:
    published, defined = DISCOUNTED[problem]
    found = discounted_thompson(problem, 100, as_published=True)
    assert found == pytest.approx(published, rel=0.05)
    options = {"d-thompson": {"discount": 0.95}}
    ours = lost_deliveries(problem, ["d-thompson"], 100, policy_options=options)
    for regret in (defined, discounted_thompson(problem, 100, as_published=False)):
        assert float(ours.sel(policy="d-thompson")) == pytest.approx(regret, rel=0.05)
