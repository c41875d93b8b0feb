"""Comparisons: the same conditions for all, and differences that are paired."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from freshband import simulate
from freshband._policy import parse_policy
from freshband.errors import FileError, ParameterError, UnknownNameError
from freshband.federated import comparison
from freshband.federated.comparison import (
    _read_comparison,
    compare,
    load_comparison,
    measure_comparison,
    save_comparison,
    settings_of,
    summarise_comparison,
)
from freshband.federated.engine import Federation
from freshband.federated.result import collect_records
from freshband.federated.settings import Training
from tests.simulation.refusing import refused

SETTINGS = Training(model="mlp", clients=3, rounds=6, seed=2, eval_every=2, device="cpu")
POLICIES = ["random", "glr-cucb+priority", "random+age@fedavg"]


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    options = {"glr-cucb+priority": {"delta": 0.2}}
    return compare(SETTINGS, POLICIES, runs=2, policy_options=options, progress=False)


def test_everything_of_a_run_by_policy_and_run(result: xr.Dataset) -> None:
    assert result.policy.values.tolist() == POLICIES
    assert result.accuracy.dims == result.regret.dims == ("policy", "run", "round")
    assert result.ages.dims == result.delivered.dims == ("policy", "run", "round", "client")
    assert result.participation.dims == ("policy", "run", "client")
    assert dict(result.sizes) == {"policy": 3, "run": 2, "round": 6, "client": 3, "channel": 5}


@pytest.mark.parametrize("run", [0, 1])
@pytest.mark.parametrize("policy", POLICIES)
def test_each_trains_as_it_would_alone(result: xr.Dataset, policy: str, run: int) -> None:
    options = {"delta": 0.2} if policy.startswith("glr") else {}
    settings = settings_of(SETTINGS, policy, options, run)
    with Federation(settings) as federation:
        alone = collect_records(list(federation), settings)
    together = result.sel(policy=policy, run=run, drop=True).drop_vars(["regret", "regret_fixed"])
    xr.testing.assert_equal(together.drop_vars("seconds"), alone.drop_vars("seconds"))


def test_policies_share_the_air(result: xr.Dataset) -> None:
    """Where two policies use the same channel in the same round, both or neither get through."""
    outcome: dict[tuple[int, int, int], set[bool]] = {}
    for run in range(2):
        for policy in POLICIES:
            one = result.sel(policy=policy, run=run)
            for t in range(6):
                through = one.delivered.values[t] | one.refused.values[t]
                for channel, got in zip(one.assignment.values[t], through, strict=True):
                    outcome.setdefault((run, t, int(channel)), set()).add(bool(got))
    assert all(len(seen) == 1 for seen in outcome.values())
    assert len(outcome) > 2 * 6 * 3  # they do not all use the same ones


def test_regret_is_the_simulations(result: xr.Dataset) -> None:
    found = simulate(
        SETTINGS.build_channels(), ["random"], clients=3, rounds=6, runs=2, seed=2, points=6
    )
    np.testing.assert_array_equal(
        result.regret.sel(policy="random").values,
        found.regret_curve.sel(policy="random").values,
    )
    assert bool(result.regret_fixed.isnull().all())


def test_without_means_regret_is_against_the_best_fixed_set() -> None:
    states = np.random.default_rng(0).integers(0, 2, (6, 4)).tolist()
    air = {"channels": "table", "channel_options": {"states": states}}
    settings = Training(**{**SETTINGS.model_dump(), **air})
    found = compare(settings, "random", progress=False)
    assert bool(found.regret.isnull().all())
    expected = simulate(settings.build_channels(), "random", clients=3, rounds=6, runs=1, seed=2)
    assert found.regret_fixed.values[0, 0, -1] == expected.regret_fixed.item()


def test_runs_in_step_compute_what_they_would_alone(
    result: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_groups", lambda asked, runs: [[0, 1]])
    again = compare(**_read_comparison(result), progress=False)
    xr.testing.assert_equal(again.drop_vars("seconds"), result.drop_vars("seconds"))


def test_settings_of_a_policy() -> None:
    base = Training(policy="m-exp3", matching="rotate", policy_options={"gamma": 0.1}, seed=9)
    plain = settings_of(base, " random ")
    assert (plain.policy, plain.matching, plain.policy_options) == ("random", None, {})
    assert (plain.algorithm, plain.seed, plain.run) == ("renorm", 9, 0)
    assert settings_of(base, "random@fedbuff", run=4).algorithm == "fedbuff"
    for text, algorithm in (
        ("random@fixed", "fixed"),
        ("random@async", "renorm"),
        ("random+age@average", "renorm+average"),
        ("random@fixed+average", "fixed+average"),
        ("random@average+fedavg", "fedavg+average"),
        ("random@eager+average", "renorm+eager+average"),
    ):
        found = settings_of(base, text)
        assert (found.algorithm, found.algorithm_options) == (algorithm, {})
        assert found.policy == text.partition("@")[0]
    with pytest.raises(ParameterError, match="'fedav'"):
        settings_of(base, "random@fixed+fedav")
    ready = parse_policy("glr-cucb+priority", {"delta": 0.01, "beta": 0.5})
    assert settings_of(base, ready).build_policy() == ready


@pytest.mark.parametrize(
    ("settings", "text", "algorithm", "options"),
    [
        ({"algorithm": "fixed"}, "random@async", "fixed", {}),
        ({"algorithm": "fixed"}, "random@fedavg", "fedavg", {"weighting": "fixed"}),
        ({"algorithm": "fixed"}, "random@average", "fixed+average", {}),
        (
            {"algorithm": "fedavg", "algorithm_options": {"weighting": "fixed"}},
            "random@async",
            "fixed",
            {},
        ),
        ({"algorithm": "fixed+average"}, "random@fedbuff", "fedbuff+average", {}),
        (
            {"algorithm": "renorm+eager", "algorithm_options": {"local_rounds": 3}},
            "random@fixed",
            "fixed+eager",
            {"local_rounds": 3},
        ),
        (
            {"algorithm": "renorm+eager", "algorithm_options": {"local_rounds": 3}},
            "random@eager",
            "renorm+eager",
            {},
        ),
        (
            {"algorithm": "renorm+eager", "algorithm_options": {"local_rounds": 3}},
            "random@fedavg",
            "fedavg",
            {},
        ),
    ],
)
def test_a_policy_changes_the_algorithm_of_the_settings(
    settings: dict[str, Any], text: str, algorithm: str, options: dict[str, Any]
) -> None:
    found = settings_of(Training(**settings), text)
    assert (found.algorithm, found.algorithm_options) == (algorithm, options)


# ---------------------------------------------------------------------------------------- summary


def test_everything_as_printed_is_one_policy() -> None:
    shared = Training(algorithm="fixed+average", weights="size")
    printed = settings_of(shared, "glr-cucb:paper+priority:paper@paper")
    assert (printed.algorithm, printed.weights) == ("renorm+average", "contribution")
    assert printed.build_policy().name == "glr-cucb:paper+priority:paper"
    eager = settings_of(Training(), "random@paper+eager")
    assert (eager.algorithm, eager.weights) == ("renorm+eager", "contribution")
    with pytest.raises(ParameterError, match="names two rules"):
        settings_of(Training(), "random@paper+fedavg")


def test_differences_are_paired(result: xr.Dataset) -> None:
    summary = json.loads(json.dumps(summarise_comparison(result), allow_nan=False))
    measures = measure_comparison(result)
    assert summary["policies"]["random"]["versus_first"] == {}
    for name in POLICIES[1:]:
        row = summary["policies"][name]
        for measure in ("final_accuracy", "regret", "mean_age", "cumulative_variance", "jain"):
            own = measures[measure].sel(policy=name).values
            base = measures[measure].sel(policy="random").values
            assert row[measure]["mean"] == pytest.approx(own.mean())
            assert row[measure]["se"] == pytest.approx(abs(own[0] - own[1]) / 2)
            difference = own - base
            assert row["versus_first"][measure]["mean"] == pytest.approx(difference.mean())
            error = abs(difference[0] - difference[1]) / 2
            assert row["versus_first"][measure]["se"] == pytest.approx(error)
        assert row["regret_fixed"] is None
    assert summary["runs"] == 2
    assert summary["policy_options"] == {"glr-cucb+priority": {"delta": 0.2}}
    last = result.regret.isel(round=-1).sel(policy="random").mean()
    assert summary["policies"]["random"]["regret"]["mean"] == pytest.approx(float(last))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("random@fedavg+fedbuff", "names two rules, 'fedavg' and 'fedbuff': an algorithm is one"),
        ("random@fixed+renorm", "names two rules, 'fixed' and 'renorm'"),
        ("random@fedbuff+async", "names two rules, 'renorm' and 'fedbuff'"),
        ("random@fixed+average+fedavg", "names two rules, 'fixed' and 'fedavg'"),
        ("random@average+average", "names 'average' twice"),
        ("random@eager+fixed+eager", "names 'eager' twice"),
        ("random@fedavg+fedavg", "names 'fedavg' twice"),
    ],
)
def test_a_rule_names_one_of_a_kind(text: str, message: str) -> None:
    with refused(ParameterError, f"policy '{re.escape(text)}': .*{message}"):
        settings_of(Training(), text)


def test_a_rule_that_has_no_use_for_a_token_says_so() -> None:
    with refused(
        ParameterError, "eager belongs to a rule whose clients send again .*, got local_rounds 4"
    ):
        settings_of(Training(), "random@fedavg+eager")
    both = settings_of(Training(), "random@async+fixed")
    assert both.algorithm == "fixed"


def test_policies_take_of_the_settings_what_their_rule_has() -> None:
    shared = Training.as_stored({"mixing": 0.3, "buffer_size": 5, "aggregation": "fixed"})
    found = {
        rule: settings_of(shared, f"random@{rule}") for rule in ("fedasync", "fedbuff", "async")
    }
    assert found["async"].algorithm == "fixed"
    assert found["async"].algorithm_options == {}
    assert found["fedasync"].algorithm_options == {"mixing": 0.3}
    assert found["fedbuff"].algorithm_options == {"buffer_size": 5}


def test_settings_that_no_policy_uses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(comparison, "train_together", never)
    shared = Training(**{**SETTINGS.model_dump(), "aggregation": "fixed"})
    message = "algorithm 'fixed' is replaced by that of every policy: no policy compared uses it"
    with refused(ParameterError, message):
        compare(shared, "random@fedbuff,random@fedasync", progress=False)
    with pytest.raises(AssertionError, match="training began"):
        compare(shared, "random@fedbuff,random", progress=False)
    with refused(
        ParameterError, "gpus is the share of a GPU per run on Ray: use it with backend='ray'"
    ):
        compare(SETTINGS, "random", gpus=0.5, progress=False)


def test_a_comparison_with_settings_that_no_policy_used_can_be_repeated(
    result: xr.Dataset,
) -> None:
    """Earlier versions let them through, and kept them with the result."""
    config = json.loads(result.attrs["config"])
    config["settings"] |= {"mixing": 0.1, "buffer_size": 3}
    old = result.assign_attrs(config=json.dumps(config))
    notes: list[str] = []
    saved = _read_comparison(old, notes=notes)
    assert notes == [
        "left out: mixing belongs to algorithm 'fedasync', not to 'renorm', got 0.1: no policy "
        "compared uses it",
        "left out: buffer_size belongs to algorithm 'fedbuff', not to 'renorm', got 3: no policy "
        "compared uses it",
    ]
    assert saved == _read_comparison(result)
    config["policies"].append("cucb@fedbuff")
    used = _read_comparison(result.assign_attrs(config=json.dumps(config)))["settings"]
    assert used.algorithm_options == {"buffer_size": 3}
    config["policies"].append("not-known-here")  # without its import a summary is still made
    summary = summarise_comparison(result.assign_attrs(config=json.dumps(config)))
    assert summary["config"]["algorithm_options"]["mixing"] == 0.1


# ------------------------------------------------------------------------------------------ files


def test_a_comparison_survives_its_file_and_can_be_repeated(
    result: xr.Dataset, tmp_path: Path
) -> None:
    save_comparison(result, tmp_path / "comparison.nc")
    loaded = load_comparison(tmp_path / "comparison.nc")
    xr.testing.assert_identical(loaded, result)
    again = compare(**_read_comparison(loaded), progress=False)
    xr.testing.assert_equal(again.drop_vars("seconds"), result.drop_vars("seconds"))
    assert again.attrs["config"] == result.attrs["config"]


def test_other_things_are_refused(result: xr.Dataset, tmp_path: Path) -> None:
    other: Any = result.assign_attrs(format="freshband training 1")
    with refused(ParameterError, "result must come from compare or load_comparison, got "):
        save_comparison(other, tmp_path / "x.nc")
    (tmp_path / "x.nc").write_text("nothing")
    with refused(FileError, "x.nc is damaged or not a result"):
        load_comparison(tmp_path / "x.nc")


# ------------------------------------------------------------------------------------------ input


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"policies": []}, "policies must name at least one policy, got none"),
        ({"policies": "random,random"}, "policies must differ, got 'random' twic"),
        ({"policies": 3}, "policies must be a list of policies, got 3"),
        ({"policies": "rndom"}, "unknown scheduler 'rndom'; did you mean"),
        ({"policies": "random@fedprox+average"}, "unknown algorithm 'fedprox'; known: average, "),
        ({"policies": "oracle"}, "policy must learn from acknowledgements"),
        ({"runs": 0}, "runs must be a whole number >= 1, got 0"),
        (
            {"policy_options": {"rando": {}}},
            "options are given for policy 'rando', which is not compared; did you mean 'random'",
        ),
        ({"policy_options": 3}, "policy_options must map names to values, got 3"),
    ],
)
def test_bad_input(
    asked: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(comparison, "train_together", never)
    kind = UnknownNameError if message.startswith("unknown algorithm") else ParameterError
    with refused(kind, message):
        compare(SETTINGS, **{"policies": "random", "progress": False, **asked})


def test_a_gpu_plays_many_runs_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {name: [SETTINGS] * 50 for name in "abc"}
    assert comparison._groups(asked, range(50))[:2] == [[0], [1]]
    monkeypatch.setattr(
        comparison, "pick_device", lambda name: type("Device", (), {"type": "cuda"})
    )
    groups = comparison._groups(asked, range(50))
    assert [run for group in groups for run in group] == list(range(50))
    assert len(groups[0]) == 256 // 9
    drawn = {"a": [Training(dataset="synthetic")] * 3}  # other data in every run
    assert comparison._groups(drawn, range(3)) == [[0], [1], [2]]
