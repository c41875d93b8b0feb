"""Single-play regrets on Besson's problems, as published and as a prototype had them (T6)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from freshband.simulation import simulate
from tests.theory.margins import needs_compiler

pytestmark = needs_compiler

ROUNDS = 5000
RUNS = {"besson-1": 1000, "besson-2": 1000, "besson-4": 200}  # standard errors about 1 %
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
            assert float(found.sel(policy=policy)) == pytest.approx(regret, rel=0.05)


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
        "glr-klucb:published": {"n_segments": problem_changes + 1},
    }  # fmt: skip


# The rows Exp3.S, SW-klUCB and CUSUM-klUCB; GLR-klUCB with local restarts has 43 and 73 here, less
# than published. DTS (209, 249) and M-klUCB (290, 534) are not reproduced: 422, 437 and 580, 820.
FIELD = {"besson-1": (352, 177, 148, 74), "besson-2": (310, 182, 152, 113)}


@pytest.mark.parametrize("problem", FIELD)
def test_rows_of_the_field(problem: str) -> None:
    options = settings_of()
    found = lost_deliveries(problem, list(options), 100, policy_options=options)
    *equal, most = zip(options, FIELD[problem], strict=True)
    for policy, regret in equal:
        assert float(found.sel(policy=policy)) == pytest.approx(regret, rel=0.1), policy
    assert float(found.sel(policy=most[0])) < most[1]
