"""The contest: paired, resumable, honest about what was not run; and what is made of it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from freshband import simulate
from freshband.arena import (
    FAMILIES,
    Family,
    compete,
    count_wins,
    every_policy,
    load_arena,
    rank_policies,
    save_arena,
    summarise_arena,
)
from freshband.arena import contest as contests
from freshband.arena.pieces import Piece
from freshband.arena.result import _ranks, behind_best
from freshband.errors import FileError, ParameterError
from freshband.reporting import arena as tables
from freshband.reporting.report import write_report

SMALL: dict[str, Any] = {"runs": 3, "rounds": 300, "progress": False}
POLICIES = "random,cucb,slow=cucb{mean_window=3000}"


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return compete(POLICIES, ["stationary", "bursts"], **SMALL)


def test_the_numbers_are_those_of_simulate(result: xr.Dataset) -> None:
    alone = simulate("stationary", POLICIES, rounds=300, runs=3)
    mine = result.sel(family="stationary")
    assert mine.policy.values.tolist() == ["random", "cucb", "slow"]
    np.testing.assert_allclose(mine.mean_age.values, alone.mean_age.values)
    np.testing.assert_allclose(mine.regret.values, alone.regret.values)
    np.testing.assert_allclose(mine.regret_curve.values[:, -1], alone.regret.mean("run").values)
    np.testing.assert_allclose(mine.age_curve.values[:, -1], alone.mean_age.mean("run").values)


def test_the_summary_has_its_schema(result: xr.Dataset) -> None:
    summary = json.loads(json.dumps(summarise_arena(result), allow_nan=False))
    assert set(summary) == {"schema", "families", "ranking"}
    assert summary["schema"] == 1
    assert sorted(summary["ranking"]) == ["cucb", "random", "slow"]
    for name in ("stationary", "bursts"):
        found = summary["families"][name]
        assert set(found) == {"policies", "best"}
        ages = {policy: row["mean_age"]["mean"] for policy, row in found["policies"].items()}
        assert found["best"] == min(ages, key=lambda policy: ages[policy])
        for row in found["policies"].values():
            assert set(row) == {"mean_age", "regret", "ns_per_round"}
            assert set(row["mean_age"]) == set(row["regret"]) == {"mean", "se"}
            assert row["ns_per_round"] > 0


def test_what_is_kept_is_not_computed_again(tmp_path: Path, monkeypatch: Any) -> None:
    played: list[Piece] = []
    play = contests.play_piece

    def note(contest: Any, piece: Piece) -> Any:
        played.append(piece)
        return play(contest, piece)

    monkeypatch.setattr(contests, "play_piece", note)
    first = compete("random", "stationary", keep=tmp_path, **SMALL)
    assert [piece.policy for piece in played] == [None, "random"]
    both = compete("random,cucb", "stationary", keep=tmp_path, **SMALL)
    assert [piece.policy for piece in played[2:]] == ["cucb"]
    assert both.mean_age.sel(policy=["random"]).equals(first.mean_age)
    compete("random", "stationary", keep=tmp_path, **{**SMALL, "runs": 2})
    assert len(played) == 5  # other instances: all over again


def test_a_policy_that_is_too_slow_is_listed_with_its_time(tmp_path: Path) -> None:
    slow = compete("random,cucb", "stationary", limit=1e-9, keep=tmp_path, **SMALL)
    row = summarise_arena(slow)["families"]["stationary"]
    assert row["best"] is None
    assert row["policies"]["cucb"]["mean_age"] is None
    assert row["policies"]["cucb"]["ns_per_round"] > 0
    assert len(tables.not_run(slow)) == 2
    assert "cucb was not run on stationary: " in tables.not_run(slow)[1]
    assert tables.ages(slow).rows[0][1].startswith("not run, ")
    again = compete("random,cucb", "stationary", limit=100, keep=tmp_path, **SMALL)
    assert not bool(again.mean_age.isnull().any())  # with time enough it is run


def made_up(ages: Any) -> xr.Dataset:
    """A result of one family with these mean ages over (policy, run)."""
    ages = np.array(ages, np.float64)[None]
    over = ("family", "policy")
    return xr.Dataset(
        {
            "mean_age": ((*over, "run"), ages),
            "regret": ((*over, "run"), np.full(ages.shape, np.nan)),
            "ns_per_round": (over, np.ones(ages.shape[:2])),
        },
        coords={"family": ["one"], "policy": list("abc")[: ages.shape[1]]},
        attrs={"format": "freshband arena 1", "config": "{}"},
    )


def test_a_win_needs_a_paired_interval_below_zero() -> None:
    noisy = [1.0, 9.0, 5.0, 3.0]
    better = [age - 0.1 - 0.001 * at for at, age in enumerate(noisy)]  # small, but every time
    unsure = [age - 0.1 * (-1) ** at for at, age in enumerate(noisy)]
    result = made_up([noisy, better, unsure])
    assert count_wins(result).tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert list(rank_policies(result)) == ["b", "a", "c"]
    middle, half = behind_best(result, "one", "a")
    assert middle == pytest.approx(0.1015)
    assert 0 < half < 0.01


def test_ranks_are_shared() -> None:
    assert _ranks(np.array([3.0, 1.0, 1.0])).tolist() == [3.0, 1.5, 1.5]
    result = made_up([[1.0, 1.0], [np.nan, np.nan], [np.nan, np.nan]])
    assert rank_policies(result) == {"a": 1.0, "b": 2.5, "c": 2.5}
    assert summarise_arena(result)["families"]["one"]["policies"]["a"]["regret"] is None


def test_tables_for_papers_and_programs(result: xr.Dataset) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(result))))
    assert len(rows) == 6
    assert float(rows[0]["mean_age"]) == pytest.approx(float(result.mean_age[0, 0].mean()))
    latex = tables.as_latex(result)
    assert latex.count(r"\textbf{") == 2
    assert r"\begin{tabular}{lrrr}" in latex
    markdown = tables.as_markdown(tables.wins(result))
    assert markdown.count("\n") == 5
    figure = tables.draw_arena(result, "age")
    assert [axis.get_title() for axis in figure.axes] == ["stationary", "bursts"]


def test_a_saved_contest_becomes_a_page(result: xr.Dataset, tmp_path: Path) -> None:
    save_arena(result, tmp_path / "arena.nc")
    assert load_arena(tmp_path / "arena.nc").mean_age.equals(result.mean_age)
    written = write_report(tmp_path)
    text = written.path.read_text()
    assert written.shown == [tmp_path / "arena.nc"]
    for told in ("3 policies on 2 families", "Families won and lost", "slow", "bursts"):
        assert told in text
    (tmp_path / "arena.nc").write_bytes(b"nothing")
    with pytest.raises(FileError):
        load_arena(tmp_path / "arena.nc")


def test_whoever_learns_takes_part() -> None:
    assert {"random", "bayes", "cucb", "m-exp3"} <= set(every_policy())
    assert not {"oracle", "told"} & set(every_policy())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"policies": "bays"}, "unknown scheduler 'bays'; did you mean 'bayes'"),
        ({"policies": "cucb,cucb"}, "policies must differ"),
        ({"policies": "bayes+priority"}, "needs contributions"),
        ({"families": "stationry"}, "unknown family 'stationry'; did you mean 'stationary'"),
        ({"limit": 0}, "limit must be a number of seconds > 0, got 0"),
        ({"runs": 0}, "runs must be a whole number >= 1"),
        ({"families": []}, "at least one family"),
        ({"families": [FAMILIES["short"], replace(FAMILIES["short"], clients=1)]}, "two families"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        compete(**{"policies": "random", "families": "stationary", **SMALL, **given})


def test_a_family_of_ones_own_takes_part() -> None:
    mine = Family("mine", "three good channels", "stationary", {"means": [1, 1, 1]})
    result = compete("random", [mine], **SMALL)
    assert result.mean_age.values.tolist() == [[[1.0, 1.0, 1.0]]]
