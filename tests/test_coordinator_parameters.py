"""What a coordinator is made of: sizes, seeds, policies and options, and what is refused."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from freshband import Coordinator
from freshband._policy import parse_policy
from freshband.errors import ParameterError, UnknownNameError
from tests.simulation.refusing import refused

# ------------------------------------------------------------------------------ bad parameters

NOT_A_COUNT: list[Any] = [0, -1, 1.5, math.nan, math.inf, True, np.True_, "2", None, [2], 1j]


@pytest.mark.parametrize("name", ["n_clients", "n_channels", "horizon"])
def test_counts_must_be_whole_and_positive(name: str) -> None:
    for value in NOT_A_COUNT:
        if name == "horizon" and value is None:
            continue  # no horizon
        settings: dict[str, Any] = {"n_clients": 1, "n_channels": 5, name: value}
        with refused(ParameterError, rf"{name} must be a whole number >= 1, got "):
            Coordinator("cucb", **settings)
    with refused(ParameterError, rf"{name} must be a whole number in \[1, 1000000000000\], got"):
        Coordinator("cucb", **{"n_clients": 1, "n_channels": 5, name: 10**20})


def test_counts_may_be_numpys() -> None:
    coordinator = Coordinator("cucb", np.int64(2), np.uint8(4), np.int32(3), horizon=np.int64(9))
    assert (coordinator.n_clients, coordinator.n_channels) == (2, 4)
    assert (coordinator.seed, coordinator.horizon) == (3, 9)


def test_more_clients_than_channels() -> None:
    coordinator = Coordinator("cucb", n_clients=4, n_channels=3)
    for _ in range(10):
        plan = coordinator.plan()
        assert sorted(plan.tolist()) == [-1, 0, 1, 2]
        coordinator.observe(plan >= 0)
    assert coordinator.ages.max() == 2  # the oldest go first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": [1, 2, 3]}, "weights must be 2 finite numbers > 0, one per client, got"),
        ({"weights": [1, 0]}, "weights must be 2 finite numbers > 0"),
        ({"weights": [1, math.nan]}, "weights must be 2 finite numbers > 0"),
        ({"weights": "12"}, "weights must be 2 finite numbers > 0"),
        ({"weights": ["1", "2"]}, "weights must be 2 finite numbers > 0"),
        ({"weights": [True, True]}, "weights must be 2 finite numbers > 0"),
        ({"weights": [1, 1e200]}, r"weights must be from 1e-150 to 1e\+150, got"),
        ({"client_ids": 5}, "client_ids must hold one name per client, 2, in order, got 5"),
        ({"channel_ids": {1, 2}}, "channel_ids must hold one name per channel"),
        ({"max_transmissions": 0}, "max_transmissions must be a whole number >= 1 or None, got 0"),
        ({"max_transmissions": 1.5}, "max_transmissions must be a whole number"),
        ({"max_delay": -1}, "max_delay must be a whole number"),
        ({"max_delay": 10**9}, "max_delay must be a whole number"),
        ({"links": "other"}, "links must be"),
        ({"silence": "golden"}, "silence must be"),
        ({"proof_of_life": "pulse"}, "proof_of_life must be"),
        ({"client_ids": ["a"]}, "client_ids must hold one name per client, 2, got 1"),
        ({"client_ids": ["a", "a"]}, "there is a client 'a' already"),
        ({"client_ids": ["a", 1.5]}, "the id of a client must be text or a whole number, got 1.5"),
        ({"client_ids": ["a", True]}, "the id of a client must be text or a whole number"),
        ({"client_ids": [None, "a"]}, "the id of a client must be text or a whole number, got N"),
        ({"channel_ids": "abcd"}, "channel_ids must hold one name per channel, 4, got 1"),
        ({"channel_ids": [1, 2, 3, [4]]}, "the id of a channel must be text or a whole number"),
    ],
)
def test_fleets_that_cannot_be(settings: Any, message: str) -> None:
    with refused(ParameterError, message):
        Coordinator("cucb", 2, 4, **settings)


def test_seeds_must_be_whole_numbers() -> None:
    bad: list[Any] = [-1, 1.0, 0.5, math.nan, True, "0", None, [1], -(10**5000)]
    for seed in bad:
        with refused(ParameterError, "seed must be an integer >= 0, got "):
            Coordinator("cucb", 2, 4, seed=seed)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("glr-cubc", "unknown scheduler 'glr-cubc'; did you mean 'glr-cucb'"),
        ("nonsense", "unknown scheduler 'nonsense'; known: adswitch, aoi-thompson, bayes, "),
        ("glr-cucb:papr", "glr-cucb has no preset 'papr'; did you mean 'paper'"),
        ("cucb+agee", r"unknown token '\+agee' in policy 'cucb\+agee'; did you mean 'age'"),
    ],
)
def test_unknown_names(policy: str, message: str) -> None:
    with refused(UnknownNameError, message):
        Coordinator(policy, 2, 4)


@pytest.mark.parametrize("policy", ["", " ", None, 3, ["cucb"], b"cucb"])
def test_a_policy_must_be_text(policy: Any) -> None:
    with refused(ParameterError, "policy must be text like 'glr-cucb:paper"):
        Coordinator(policy, 2, 4)


def test_the_policy_may_be_given_by_its_old_keyword() -> None:
    assert Coordinator(scheduler="cucb+rotate").policy.name == "cucb+rotate"
    assert Coordinator(policy="cucb+rotate").policy.matching_name == "rotate"
    with refused(ParameterError, "scheduler is the old name of policy"):
        Coordinator("cucb", scheduler="random")


@pytest.mark.parametrize("policy", ["oracle", "oracle:csi", "oracle:fixed+aa", "told"])
def test_oracles_are_refused(policy: str) -> None:
    reason = f"policy must learn from acknowledgements; {policy!r} sees"
    with refused(ParameterError, re.escape(reason)):
        Coordinator(policy, 2, 4)


def test_paper_settings_ask_for_the_horizon() -> None:
    message = r"glr-cucb with alpha='paper' needs the number of rounds in advance: pass horizon=T"
    with refused(ParameterError, message):
        Coordinator("glr-cucb:paper", 2, 4)
    assert Coordinator("glr-cucb:paper", 2, 4, horizon=100).horizon == 100


@pytest.mark.parametrize("options", [3, "delta=1", [("delta", 0.1)], {3: 0.1}])
def test_options_must_be_a_mapping(options: Any) -> None:
    with refused(ParameterError, "options must map names to values, got "):
        Coordinator("glr-cucb", 2, 4, options=options)


def test_options_are_checked() -> None:
    with refused(ParameterError, r"delta must be a number in \(0, 1\), got 2"):
        Coordinator("glr-cucb", 2, 4, options={"delta": 2})
    with refused(UnknownNameError, "GlrCucb has no parameter 'dleta'; did you mean 'delta'"):
        Coordinator("glr-cucb", 2, 4, options={"dleta": 0.1})


def test_options_next_to_a_ready_policy_are_not_dropped() -> None:
    ready = parse_policy("glr-cucb", {"delta": 0.01})
    assert Coordinator(ready, 2, 4).policy is ready
    with refused(ParameterError, r"options need a policy given by name, got \['delta'\] with"):
        Coordinator(ready, 2, 4, options={"delta": 0.1})
