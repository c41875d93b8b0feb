"""Simulation: what a result holds, and that it adds up."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

import freshband
from freshband import simulate, summarise
from freshband._lending import Caller
from freshband._policy import parse_policy
from freshband._rounds import open_desk
from freshband._seeding import Role, generator
from freshband.aoi import ages_of, growth_exponent, match_alarms
from freshband.channels import Piecewise, Stationary, open_air
from freshband.channels.adversary import start_reacting
from freshband.errors import ParameterError
from freshband.fleet.conditions import Conditions, ConditionStream
from freshband.simulation import monte_carlo
from freshband.simulation._loop import open_tally, run_block
from freshband.states import reserve
from tests.simulation.comparing import assert_same
from tests.simulation.refusing import refused

AIR = Piecewise(means=[[0.95, 0.8, 0.1, 0.05], [0.05, 0.1, 0.8, 0.95]])
POLICIES = ["random", "cucb", "glr-cucb", "oracle"]
TOTALS = {
    "regret",
    "regret_rotate",
    "regret_fixed",
    "mean_age",
    "cumulative_variance",
    "max_age",
    "delivered",
    "jain",
    "alarms",
    "detected",
    "missed",
    "false_alarms",
    "delay",
    "seconds",
}
CURVES = {f"{name}_curve" for name in ("age", "variance", "delivered")} | {
    f"{name}_curve" for name in ("regret", "regret_rotate", "regret_fixed")
}


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return simulate(AIR, POLICIES, clients=2, rounds=600, runs=4, seed=5, points=7)


def logged(policy: str, run: int, *, rounds: int = 600, air: Any = AIR) -> tuple[Any, Any]:
    """Play one run again round by round: what was delivered, and the alarms."""
    seed = 5
    air = open_air(air, rounds, seed, run).block(rounds)
    rng = generator(seed, Role.POLICY, run)
    scheduler, matching = parse_policy(policy).start(2, 4, rng, rounds)
    tally = open_tally(2, np.array([rounds]), logged=rounds)
    scheduler = reserve(scheduler, rounds)
    parts = scheduler, matching, open_desk(2, 4), tally, start_reacting(AIR), rng
    Caller(run_block)((*parts, *air), 0)
    return tally.outcome_log, tally.alarm[: tally.mark[0]["alarms"]]


# ---------------------------------------------------------------------------- what a result holds


def test_names_dimensions_and_coordinates(result: xr.Dataset) -> None:
    assert {name for name, array in result.items() if array.dims == ("policy", "run")} == TOTALS
    curves = {name for name, array in result.items() if array.dims == ("policy", "run", "round")}
    assert curves == CURVES
    assert result.participation.dims == ("policy", "run", "client")
    assert set(result) == TOTALS | CURVES | {"participation"}
    assert result.policy.values.tolist() == POLICIES
    assert result.run.values.tolist() == [0, 1, 2, 3]
    assert result.client.values.tolist() == [0, 1]
    assert result["round"].values.tolist() == [86, 171, 257, 343, 429, 514, 600]


def test_attributes_tell_how_to_make_it_again(result: xr.Dataset) -> None:
    config = json.loads(result.attrs["config"])
    assert config == {
        "channels": "piecewise",
        "channel_options": {"n_channels": 4, "means": [list(row) for row in AIR.means or ()]},
        "policies": POLICIES,
        "policy_options": {},
        "clients": 2,
        "rounds": 600,
        "runs": 4,
        "seed": 5,
        "points": 7,
    }
    assert result.attrs["format"] == "freshband simulation 1"
    assert result.attrs["freshband"] == freshband.__version__
    assert {"python", "numpy", "numba", "xarray"} <= set(json.loads(result.attrs["versions"]))
    assert result.attrs["seconds"] > 0
    assert_same(simulate(**config), result)


def test_curves_and_totals_are_those_of_the_rounds(result: xr.Dataset) -> None:
    checkpoints = result["round"].values - 1
    for policy in POLICIES:
        for run in range(4):
            delivered, _ = logged(policy, run)
            ages = ages_of(delivered)
            cumulative = ages.sum(axis=1).cumsum()
            row = result.sel(policy=policy, run=run)
            np.testing.assert_array_equal(row.age_curve, cumulative[checkpoints])
            spread = ages.var(axis=1).cumsum()  # per client, erratum E18
            np.testing.assert_allclose(row.variance_curve, spread[checkpoints], rtol=1e-12)
            np.testing.assert_array_equal(
                row.delivered_curve, delivered.sum(axis=1).cumsum()[checkpoints]
            )
            assert row.mean_age == ages.mean()
            assert row.cumulative_variance == pytest.approx(spread[-1], rel=1e-12)
            assert row.max_age == ages.max()
            assert row.delivered == delivered.sum()
            np.testing.assert_array_equal(row.participation, delivered.mean(axis=0))
            shares = delivered.sum(axis=0)
            assert row.jain == pytest.approx(shares.sum() ** 2 / (2 * (shares**2).sum()))


def test_curves_end_in_the_totals(result: xr.Dataset) -> None:
    last = result.isel(round=-1)
    np.testing.assert_array_equal(last.age_curve / (600 * 2), result.mean_age)
    np.testing.assert_array_equal(last.variance_curve, result.cumulative_variance)
    np.testing.assert_array_equal(last.delivered_curve, result.delivered)
    np.testing.assert_array_equal(last.regret_curve, result.regret)
    np.testing.assert_array_equal(last.regret_rotate_curve, result.regret_rotate)


def test_thinning_changes_no_total(result: xr.Dataset) -> None:
    config = json.loads(result.attrs["config"])
    for points in (1, 600, 1000):
        other = simulate(**{**config, "points": points})
        assert other.sizes["round"] == min(points, 600)
        for name in TOTALS - {"seconds"}:
            np.testing.assert_array_equal(other[name], result[name], err_msg=name)
    np.testing.assert_array_equal(  # the last one keeps every round
        other.age_curve.sel(round=result["round"]), result.age_curve
    )


def test_regret_is_the_age_beyond_the_oracles() -> None:
    policies = ["random", "oracle:mean+age", "oracle:mean+rotate", "oracle", "oracle:fixed"]
    result = simulate(AIR, policies, rounds=500, runs=3, seed=2)
    ages = result.age_curve
    for name, oracle in {"regret": policies[1], "regret_rotate": policies[2]}.items():
        expected = ages - ages.sel(policy=oracle, drop=True)
        np.testing.assert_array_equal(result[f"{name}_curve"], expected)
        assert (result[name].sel(policy=oracle) == 0).all()
    np.testing.assert_array_equal(result.regret.sel(policy="oracle"), np.zeros(3))
    assert (result.regret.sel(policy="random") > 0).all()
    assert result.regret_fixed.isnull().all()
    assert (result.regret.sel(policy="oracle:fixed") > 0).all()


def test_regret_adds_up_over_clients_and_rounds() -> None:
    result = simulate(Stationary(means=[1.0, 0.0, 0.0]), "random", clients=1, rounds=50, runs=2)
    ages = result.mean_age * 50
    np.testing.assert_allclose(result.regret, ages - 50)  # the oracle delivers in every round


def test_alarms_against_true_changes(result: xr.Dataset) -> None:
    seen = 0
    for run in range(4):
        _, alarms = logged("glr-cucb", run)
        row = result.sel(policy="glr-cucb", run=run)
        expected = match_alarms(alarms[:, 0], [301])
        assert row.alarms == len(alarms)
        assert (row.detected, row.missed, row.false_alarms) == expected[:3]
        np.testing.assert_equal(float(row.delay), expected.delay)
        seen += len(alarms)
    assert seen > 0
    others = result.sel(policy=["random", "cucb", "oracle"])
    assert (others.alarms == 0).all()
    assert (others.missed == 1).all()
    assert others.delay.isnull().all()


def test_several_alarms_against_several_changes() -> None:
    back_and_forth = Piecewise(means=list(AIR.means or ()) * 3)
    result = simulate(back_and_forth, "glr-cucb", rounds=1800, runs=3, seed=5)
    for run in range(3):
        _, alarms = logged("glr-cucb", run, rounds=1800, air=back_and_forth)
        assert len(alarms) > 2
        row = result.isel(policy=0, run=run)
        expected = match_alarms(alarms[:, 0], [301, 601, 901, 1201, 1501])
        assert row.alarms == len(alarms)
        assert (row.detected, row.missed, row.false_alarms) == expected[:3]
        assert row.delay == expected.delay


# ------------------------------------------------------------------------------------ determinism


def test_threads_change_no_bit() -> None:
    config: dict[str, Any] = {"policies": POLICIES, "rounds": 400, "runs": 6, "seed": 9}
    one, two = (simulate(AIR, **config, threads=threads) for threads in (1, 2))
    assert_same(one, two)


def test_the_order_of_policies_changes_nothing() -> None:
    forward = simulate(AIR, POLICIES, rounds=300, runs=2)
    backward = simulate(AIR, POLICIES[::-1], rounds=300, runs=2)
    alone = simulate(AIR, "cucb", rounds=300, runs=2)
    assert backward.policy.values.tolist() == POLICIES[::-1]
    assert_same(backward.sel(policy=POLICIES), forward)
    assert_same(alone, forward.sel(policy=["cucb"]))


def test_more_runs_begin_with_the_same_ones() -> None:
    few, many = (simulate(AIR, "random,cucb", rounds=200, runs=runs) for runs in (2, 5))
    assert_same(many.isel(run=slice(2)), few)


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulate(AIR, POLICIES, rounds=700, runs=2)
    monkeypatch.setattr(monte_carlo, "_CELLS", 100)
    parts = simulate(AIR, POLICIES, rounds=700, runs=2)  # blocks of 64 rounds
    assert_same(parts, whole)


def test_many_clients_are_drawn_in_short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd: dict[str, Any] = {"clients": 40, "rounds": 200, "runs": 2}
    crowd["fleet"] = {"churn": 20, "ack_delay": 2, "ack_loss": 0.2}
    whole = simulate(AIR, "cucb,random", **crowd)
    monkeypatch.setattr(monte_carlo, "_FATES", 360)  # nine rounds
    drawn, block = [], ConditionStream.block

    def count(stream: ConditionStream, n: int) -> Conditions:
        drawn.append(n)
        return block(stream, n)

    monkeypatch.setattr(ConditionStream, "block", count)
    assert_same(simulate(AIR, "cucb,random", **crowd), whole)
    assert max(drawn) == 9


def test_runs_and_seeds_differ() -> None:
    result = simulate(AIR, "random,glr-cucb", rounds=300, runs=5, seed=0)
    other = simulate(AIR, "random,glr-cucb", rounds=300, runs=5, seed=1)
    for policy in ("random", "glr-cucb"):
        curves = [*result.age_curve.sel(policy=policy), *other.age_curve.sel(policy=policy)]
        assert len({tuple(curve.values.tolist()) for curve in curves}) == 10


def test_policies_may_be_given_in_many_forms() -> None:
    expected = simulate(AIR, ["random", "cucb"], rounds=100, runs=1)
    ready = [parse_policy("random"), "cucb"]
    for policies in ("random,cucb", " random , cucb ", ("random", "cucb"), ready,
                     np.array(["random", "cucb"]), iter(["random", "cucb"])):  # fmt: skip
        assert_same(simulate(AIR, policies, rounds=100, runs=1), expected)  # type: ignore[arg-type]


def test_options_reach_their_policy() -> None:
    options = {"glr-cucb": {"delta": np.float64(0.5), "n_segments": np.int64(2)}}
    result = simulate(
        AIR, ["glr-cucb", "glr-cucb:corrected"], rounds=400, runs=3, policy_options=options
    )
    config = json.loads(result.attrs["config"])
    assert config["policy_options"] == {"glr-cucb": {"delta": 0.5, "n_segments": 2}}
    eager, default = result.delay.mean("run").values
    assert eager < default
    assert_same(simulate(**config), result)


# ----------------------------------------------------------------------------------- small runs


def test_a_single_round() -> None:
    result = simulate(Stationary(n_channels=3), POLICIES, clients=3, rounds=1, runs=2)
    assert result["round"].values.tolist() == [1]
    assert ((result.mean_age >= 1) & (result.mean_age <= 2)).all()
    np.testing.assert_allclose(result.delivered, 3 * (2 - result.mean_age))


def test_fewer_rounds_than_points() -> None:
    result = simulate(Stationary(), "random", rounds=5, runs=1, points=200)
    assert result["round"].values.tolist() == [1, 2, 3, 4, 5]


def test_a_single_run_has_no_standard_error() -> None:
    result = simulate(Stationary(), "random", rounds=50, runs=1)
    row = summarise(result)["policies"]["random"]
    assert row["mean_age"]["se"] is None
    assert row["mean_age"]["mean"] == float(result.mean_age[0, 0])


def test_one_client_and_one_channel() -> None:
    result = simulate(Stationary(means=[0.5]), "random,glr-cucb", clients=1, rounds=200, runs=2)
    assert (result.regret == 0).all()
    assert (result.cumulative_variance == 0).all()
    assert (result.jain == 1).all()


def test_where_nothing_gets_through() -> None:
    result = simulate(Stationary(means=[0.0, 0.0]), "random,cucb", rounds=40, runs=2)
    assert (result.mean_age == np.arange(2, 42).mean()).all()
    assert (result.max_age == 41).all()
    assert (result.delivered == 0).all()
    assert (result.jain == 1).all()


# -------------------------------------------------------------------------------------- summaries


def test_a_summary_is_plain_json(result: xr.Dataset) -> None:
    summary = summarise(result)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    for name in ("channels", "clients", "rounds", "runs", "seed", "freshband", "versions"):
        assert name in summary
    assert list(summary["policies"]) == POLICIES
    for row in summary["policies"].values():
        assert set(row) == (TOTALS - {"seconds"}) | {"growth_exponent", "rounds_per_second"}
        assert row["regret_fixed"] is None
        assert row["rounds_per_second"] > 0


def test_a_summary_is_mean_and_standard_error(result: xr.Dataset) -> None:
    rows = summarise(result)["policies"]
    for policy in POLICIES:
        for name in ("regret", "regret_rotate", "mean_age", "cumulative_variance"):
            sample = result[name].sel(policy=policy).values
            assert rows[policy][name]["mean"] == pytest.approx(sample.mean())
            assert rows[policy][name]["se"] == pytest.approx(sample.std(ddof=1) / 2)


def test_growth_is_that_of_the_mean_regret_after_the_start() -> None:
    result = simulate("stationary", "random,oracle", rounds=1000, runs=4, points=50)
    rows = summarise(result)["policies"]
    curve = result.regret_curve.sel(policy="random").mean("run").sel(round=slice(100, None))
    assert rows["random"]["growth_exponent"] == growth_exponent(curve["round"], curve)
    assert rows["oracle"]["growth_exponent"] is None


def test_delays_average_over_runs_that_have_one(result: xr.Dataset) -> None:
    delays = result.delay.sel(policy="glr-cucb").values
    known = delays[~np.isnan(delays)]
    assert summarise(result)["policies"]["glr-cucb"]["delay"]["mean"] == known.mean()


@pytest.mark.parametrize("other", [None, 3, "result.nc", {}, xr.Dataset()])
def test_only_results_can_be_summarised(other: Any) -> None:
    with refused(ParameterError, "result must come from simulate or load_result, got "):
        summarise(other)
