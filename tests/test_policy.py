"""Policies by name: what is accepted, what it means, and what the errors say."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband import Coordinator, simulate, summarise
from freshband._policy import Policy, has_detector, parse_policy
from freshband.channels import Table
from freshband.errors import ParameterError, UnknownNameError
from freshband.matching.base import registry as matchings
from freshband.parameters import Parameters
from freshband.schedulers._aoi_aware import RULES, AoIAwareState
from freshband.schedulers.base import Matchings, Presets, select
from freshband.schedulers.base import registry as schedulers
from freshband.schedulers.cucb import Cucb
from freshband.schedulers.glr_cucb import GlrCucb
from tests.simulation.refusing import refused

UNUSUAL = {"random": "random", "round-robin": "rotate"}  # matchings of schedulers by default


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        *((name, UNUSUAL.get(name, "age")) for name in schedulers.names()),
        ("glr-cucb:paper", "rotate"),
        ("m-exp3:paper", "rotate"),
        ("glr-cucb:default", "age"),
        ("glr-cucb:corrected", "age"),
        ("oracle:csi", "age"),
        ("oracle:mean", "age"),
        ("oracle:fixed", "age"),
        ("random:default", "random"),
        ("random:corrected", "random"),
        ("glr-cucb:paper+aa", "rotate"),
        ("random+age", "age"),
        ("glr-cucb:paper+aa+random", "random"),
        ("glr-cucb:paper+fixed+aa-sum", "fixed"),
    ],
)
def test_matchings_by_default_and_by_name(text: str, matching: str) -> None:
    policy = parse_policy(text)
    assert policy.matching_name == matching
    assert type(policy.matching) is matchings[matching]
    assert policy.name == text


def test_a_policy_may_have_a_label_and_settings_of_its_own() -> None:
    policy = parse_policy(" fast=cucb:default{mean_window=200, index_c=2}+rotate+aa ")
    assert policy.name == "fast"
    assert policy.text == "fast=cucb:default{mean_window=200, index_c=2}+rotate+aa"
    assert (policy.scheduler.mean_window, policy.aware) == (200, "per_client")  # type: ignore[attr-defined]
    assert policy.matching_name == "rotate"
    assert policy.options == {}  # the text says it all
    assert parse_policy("fast=cucb", {"mean_window": 9}).options == {"mean_window": 9}
    assert parse_policy("cucb{mean_window=200}").name == "cucb{mean_window=200}"
    assert parse_policy("cucb{}").scheduler == parse_policy("cucb").scheduler


def test_policies_are_made_from_objects() -> None:
    policy = parse_policy(Cucb(mean_window=50), name="mine")
    assert parse_policy(policy.text) == policy
    assert parse_policy(policy, name="yours").text == "yours=cucb{mean_window=50}"
    result = simulate(
        "stationary", [policy, Cucb(mean_window=7), "slow=cucb{mean_window=90}"], rounds=20, runs=1
    )
    assert result.policy.values.tolist() == ["mine", "cucb{mean_window=7}", "slow"]
    assert json.loads(result.attrs["config"])["policies"][2] == "slow=cucb{mean_window=90}"
    assert summarise(result)["policies"]["slow"]["alarms"] is None  # it looks for no changes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast=cucb{mean_window=200", "policy must be text like"),
        ("fast=cucb{mean_window=200}}", "policy must be text like"),
        ("a=b=cucb", "policy must be text like"),
        ("cucb{mean_window}", "must hold key=value, each key once, got 'mean_window'"),
        ("cucb{mean_window=1,mean_window=2}", "must hold key=value, each key once"),
        ("cucb{mean_windw=1}", "did you mean 'mean_window'"),
        ("cucb{mean_window=0}", "mean_window must be"),
        ("fast=", "policy must be|unknown scheduler"),
    ],
)
def test_labels_and_braces_that_are_none(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_policy(text)
    with pytest.raises(ParameterError, match="mean_window is given twice"):
        parse_policy("cucb{mean_window=5}", {"mean_window": 6})
    with pytest.raises(ParameterError, match="name must be text without spaces"):
        parse_policy("cucb", name="a b")


def test_every_paper_preset_rotates() -> None:
    papers = [name for name in schedulers if "paper" in schedulers[name].presets]
    assert set(papers) >= {"glr-cucb", "m-exp3"}
    for name in papers:
        assert parse_policy(f"{name}:paper").matching_name == "rotate"


@pytest.mark.parametrize("name", schedulers.names())
def test_no_preset_is_the_default_one_also_by_its_old_name(name: str) -> None:
    assert schedulers[name].presets["default"] == {}
    for preset in ("default", "corrected"):
        written = parse_policy(f"{name}:{preset}")
        assert written.scheduler == parse_policy(name).scheduler
        assert written.matching_name == parse_policy(name).matching_name
        assert written.name == f"{name}:{preset}"


def test_presets_are_what_they_say() -> None:
    paper = parse_policy("glr-cucb:paper").scheduler
    assert (paper.alpha, paper.explore_fill, paper.channel_key) == ("paper", "random", "index")
    assert (paper.delta, paper.threshold, paper.index_c) == (0.001, "paper", 1.5)
    exp3 = parse_policy("m-exp3:paper").scheduler
    assert (exp3.gamma, exp3.reward_scale, exp3.share) == ("paper", "none", 0.0)
    assert exp3.discount is None
    assert parse_policy("oracle:csi").scheduler.selection == "csi"


def test_options_go_beyond_the_preset() -> None:
    policy = parse_policy(" glr-cucb:paper+aa ", {"delta": 0.01, "alpha": 0.2})
    assert policy.name == "glr-cucb:paper+aa"
    assert isinstance(policy.scheduler, GlrCucb)
    assert policy.scheduler.delta == 0.01
    assert policy.scheduler.alpha == 0.2
    assert policy.scheduler.explore_fill == "random"
    assert policy.options == {"delta": 0.01, "alpha": 0.2}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cucb", None),
        ("cucb+aa", "per_client"),
        ("cucb+aa-sum", "sum"),
        ("cucb+aa+fixed", "per_client"),
    ],
)
def test_aoi_aware_tokens_wrap_the_scheduler(text: str, rule: str | None) -> None:
    policy = parse_policy(text)
    assert policy.aware == rule
    state, _ = policy.start(2, 5, np.random.default_rng(0), None)
    assert isinstance(state, AoIAwareState) == (rule is not None)
    if rule is not None:
        assert RULES[state.rule[0]["rule"]] == rule


def test_a_policy_passes_through() -> None:
    policy = parse_policy("cucb")
    assert parse_policy(policy) is policy


def test_options_with_a_policy_object_are_not_dropped_in_silence() -> None:
    policy = parse_policy("glr-cucb")
    assert parse_policy(policy, {}) is policy
    with pytest.raises(ParameterError, match=r"options .*\['delta'\].*'glr-cucb'"):
        parse_policy(policy, {"delta": 0.5})


@pytest.mark.parametrize("text", ["", "   ", None, 3, ["cucb"], b"cucb"])
def test_a_policy_must_be_text(text: Any) -> None:
    with pytest.raises(ParameterError, match="policy must be text like 'glr-cucb:paper"):
        parse_policy(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("glr-cubc", r"unknown scheduler 'glr-cubc'; did you mean 'glr-cucb'\?"),
        ("xyz", r"unknown scheduler 'xyz'; known: .*cucb.*random"),
        (":paper", "unknown scheduler ''"),
        ("+aa", "unknown scheduler ''"),
        ("GLR-CUCB", "unknown scheduler 'GLR-CUCB'"),
        ("glr-cucb:papre", r"glr-cucb has no preset 'papre'; did you mean 'paper'\?"),
        ("random:paper", r"random has no preset 'paper'; known: default"),
        ("glr-cucb:paper:csi", "glr-cucb has no preset 'paper:csi'"),
        ("cucb+rotat", r"unknown token '\+rotat' in policy 'cucb\+rotat'; did you mean 'rotate'\?"),
        ("cucb+aa_sum", r"unknown token '\+aa_sum'.*did you mean 'aa-sum'\?"),
        ("cucb+", r"unknown token '\+' in policy 'cucb\+'"),
        ("cucb++aa", r"unknown token '\+' in policy"),
        (
            "cucb+zzz",
            r"unknown token '\+zzz'.*known: aa, aa-sum, age, fixed, priority, random, rotate",
        ),
    ],
)
def test_unknown_names_get_the_nearest(text: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        parse_policy(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cucb+age+rotate", "names two matchings"),
        ("cucb+age+age", "names two matchings"),
        ("cucb+aa+aa-sum", "names two AoI-aware rules"),
        ("cucb+aa+aa", "names two AoI-aware rules"),
    ],
)
def test_two_of_a_kind_are_refused(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_policy(text)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("glr-cucb", {"delta": 2}, r"delta must be a number in \(0, 1\), got 2"),
        ("glr-cucb", {"dleta": 0.1}, r"no parameter 'dleta'; did you mean 'delta'\?"),
        ("cucb", {"delta": 0.1}, "no parameter 'delta'"),
        ("glr-cucb", {"index": "ucb1"}, r"index must be the name .* did you mean 'ucb'\?"),
        ("m-exp3+aa", {"aa_update": "propensity"}, "aa_update='propensity' is exact with"),
    ],
)
def test_bad_options_name_the_parameter(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_policy(text, options)


def test_a_policy_cannot_be_changed() -> None:
    policy = parse_policy("cucb")
    assert isinstance(policy, Policy)
    with pytest.raises(AttributeError):
        policy.name = "other"  # type: ignore[misc]


class Older(Parameters):
    """Declares its presets as the first version asked for."""

    presets: ClassVar[Presets] = {"corrected": {}, "hasty": {"patience": 3}}
    matchings: ClassVar[Matchings] = {"corrected": "rotate"}

    patience: int = 1

    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> Any: ...


def test_a_class_may_still_call_the_default_preset_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedulers, "_things", dict(schedulers._things))
    schedulers.register("older")(Older)
    for text in ("older", "older:default", "older:corrected"):
        policy = parse_policy(text)
        assert (policy.name, policy.matching_name) == (text, "rotate")
        assert policy.scheduler == Older()
    assert parse_policy("older:hasty").scheduler == Older(patience=3)
    assert list(Older.presets) == ["default", "hasty"]


class MeanlessState(NamedTuple):
    """Of a scheduler that takes the first channels and tells nothing of them."""

    counts: NDArray[np.int64]


@select.register(MeanlessState)
def _select(scheduler: MeanlessState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    for j in range(len(chosen)):
        chosen[j] = j


class Meanless(Parameters):
    presets: ClassVar[Presets] = {"corrected": {}}
    matchings: ClassVar[Matchings] = {}

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> MeanlessState:
        return MeanlessState(np.zeros(n_channels, np.int64))


@pytest.mark.parametrize("token", ["aa", "aa-sum"])
def test_an_aware_policy_needs_the_scheduler_to_tell_means(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "_things", dict(schedulers._things))
    schedulers.register("meanless")(Meanless)
    Coordinator("meanless", n_clients=2, n_channels=3).plan()
    message = f"policy 'meanless\\+{token}' needs its scheduler's means for \\+aa, but "
    with refused(ParameterError, message + "MeanlessState registers no version of 'means'"):
        Coordinator(f"meanless+{token}", n_clients=2, n_channels=3)
    with refused(ParameterError, message):
        simulate("stationary", f"meanless+{token}", rounds=9, runs=1, progress=False)


def test_every_scheduler_of_ours_can_be_made_aware() -> None:
    for name in set(schedulers) - {"aoi-thompson"}:  # which is aware by itself
        state, _ = parse_policy(f"{name}+aa").start(2, 5, np.random.default_rng(0), 100)
        assert isinstance(state, AoIAwareState)


@pytest.mark.parametrize("policy", ["oracle:csi+aa", "oracle:fixed+aa-sum"])
def test_an_aware_oracle_needs_channels_with_means(policy: str) -> None:
    recorded = Table(states=[[1, 0, 1], [0, 1, 1]], wrap=True)
    with refused(ParameterError, f"policy '{re.escape(policy)}' needs channel means, which these"):
        simulate(recorded, policy, rounds=20, runs=1, progress=False)
    simulate(recorded, policy.partition("+")[0], rounds=20, runs=1, progress=False)


def test_who_looks_for_changes() -> None:
    assert has_detector("glr-cucb+aa@eager", None, 0)
    assert has_detector("bayes", None, 0)
    assert not has_detector("thompson", None, 0)
    assert not has_detector("of-my-own", None, 0)
    assert has_detector("of-my-own", None, 3)
