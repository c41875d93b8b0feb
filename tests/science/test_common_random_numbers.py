"""Every policy meets the same air, whoever else is simulated (erratum E5, T17)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from freshband.simulation import simulate

ORACLES = ["oracle:mean+age", "oracle:mean+rotate"]
TIMING = ["seconds"]  # all else is reproducible


def play(policies: list[str], **options: Any) -> xr.Dataset:
    settings = {"clients": 2, "rounds": 200, "runs": 3, "seed": 7, "threads": 1, "progress": False}
    return simulate("piecewise", policies, **{**settings, **options}).drop_vars(TIMING)


def assert_same(a: xr.Dataset, b: xr.Dataset) -> None:
    xr.testing.assert_identical(a.drop_attrs(), b.drop_attrs())


def test_company_changes_nothing() -> None:
    alone = play(["cucb"])
    crowd = play(["random", *ORACLES, "cucb"])
    assert_same(crowd.sel(policy=["cucb"]), alone)
    assert_same(play(["cucb", "random"]).sel(policy=["random"]), crowd.sel(policy=["random"]))


def test_an_oracle_has_no_regret_against_itself() -> None:
    result = play(ORACLES)
    assert (result.regret_curve.sel(policy="oracle:mean+age") == 0).all()
    assert (result.regret_rotate_curve.sel(policy="oracle:mean+rotate") == 0).all()
    # and the two are told apart
    difference = result.regret - result.regret_rotate
    own = result.regret.sel(policy="oracle:mean+rotate")
    assert (difference == own).all()
    assert (own != 0).any()


def test_regret_is_the_difference_of_the_age_curves() -> None:
    result = play(["random", *ORACLES])
    for measure, oracle in zip(["regret_curve", "regret_rotate_curve"], ORACLES, strict=True):
        ages = result.age_curve
        np.testing.assert_array_equal(result[measure], ages - ages.sel(policy=oracle))


def test_more_runs_and_more_threads_leave_the_first_ones_alone() -> None:
    few = play(["random", "cucb"])
    assert_same(play(["random", "cucb"], runs=5).isel(run=slice(3)), few)
    assert_same(play(["random", "cucb"], threads=3), few)


def test_the_seed_is_everything() -> None:
    first = play(["random", "cucb"])
    assert_same(play(["random", "cucb"]), first)
    other = play(["random", "cucb"], seed=8)
    for policy in ("random", "cucb"):
        for run in range(3):
            row = {"policy": policy, "run": run}
            assert (first.age_curve.sel(row) != other.age_curve.sel(row)).any()


@pytest.mark.parametrize("policy", ["random", "cucb"])
def test_runs_differ(policy: str) -> None:
    curves = play([policy]).age_curve.sel(policy=policy).values
    assert len({tuple(curve) for curve in curves}) == 3
