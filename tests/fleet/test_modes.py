"""Every scheduler and matching in every mode it claims: what any plan promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshband import Coordinator
from freshband._policy import parse_policy
from freshband.errors import ParameterError
from freshband.matching.base import registry as matchings
from freshband.schedulers._aoi_aware import AoIAwareState
from tests.playing import (
    LEARNERS,
    SCHEDULERS,
    every_learner,
    interpret_coordinator,
    ours,
)

ROUNDS = 14


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play the sources: compiled code is held against them elsewhere."""
    interpret_coordinator(monkeypatch)


def play(policy: str, seed: int, **options: Any) -> Coordinator:
    """Play a fleet of any size with masks, late and lost outcomes; check every plan."""
    rng = np.random.default_rng(seed)
    n_clients, n_channels = (int(size) for size in rng.integers(1, 9, 2))
    cap = None if seed % 2 else int(rng.integers(1, 9))
    this = Coordinator(
        policy,
        n_clients,
        n_channels,
        seed,
        weights=rng.uniform(0.1, 9.0, n_clients),
        max_transmissions=cap,
        max_delay=3,
        horizon=ROUNDS,
        silence="loss" if seed % 3 == 0 else "random",
        **options,
    )
    fate = rng.integers(0, 2, (ROUNDS + 1, n_clients))
    worth = rng.random(n_clients) if this.policy.needs_contributions else None
    for t in range(1, ROUNDS + 1):
        present = rng.random(n_clients) < 0.7 if rng.random() < 0.6 else None
        available = rng.random(n_channels) < 0.7 if rng.random() < 0.6 else None
        plan = this.plan(worth, present=present, available=available)
        sends = plan >= 0
        used = plan[sends].tolist()
        assert plan.max(initial=-1) < n_channels
        assert plan.min(initial=0) >= -1
        assert len(set(used)) == len(used) <= min(n_channels, cap or n_channels)
        assert present is None or present[sends].all()
        assert available is None or available[used].all()
        here = n_clients if present is None else present.sum()
        offered = n_channels if available is None else available.sum()
        if not isinstance(this._scheduler, AoIAwareState):  # it may take what is missing
            assert len(used) == min(here, offered, cap or n_channels)
        if t % 4:  # or nothing is observed before the next plan
            this.observe(np.where(rng.random(n_clients) < 0.3, -1, fate[t]))
        for when in this.open_rounds[:-1]:
            this.observe(fate[when], round=when)
        assert (this.ages >= 1).all()
        assert ((this.alive > 0) & (this.alive <= 1)).all()
    again = Coordinator.from_bytes(this.to_bytes())
    np.testing.assert_array_equal(again.plan(worth), this.plan(worth))
    return this


@every_learner
def test_any_fleet_with_shared_links(policy: str) -> None:
    for seed in range(6):
        play(policy, seed)


CAN_LEARN_LINKS = [name for name in LEARNERS if parse_policy(name).learns_links]
RULES = [f"bayes+{name}" for name in ours(matchings)]


@pytest.mark.parametrize("policy", sorted({*CAN_LEARN_LINKS, *RULES}))
def test_any_fleet_whose_links_differ(policy: str) -> None:
    for seed in range(6):
        play(policy, seed, links="differ")


@pytest.mark.parametrize("policy", [name for name in LEARNERS if name not in CAN_LEARN_LINKS])
def test_those_that_cannot_learn_links_say_so_at_the_start(policy: str) -> None:
    with pytest.raises(ParameterError, match=r"one success rate per channel; .* use 'bayes'"):
        Coordinator(policy, 2, 5, horizon=10, links="differ")


def test_aoi_aware_rules_know_one_rate_per_channel() -> None:
    with pytest.raises(ParameterError, match=r"leave out \+aa where links differ"):
        Coordinator("bayes+aa", 2, 5, links="differ")


def test_who_can_learn_links() -> None:
    assert [name for name in SCHEDULERS if parse_policy(name).learns_links] == ["bayes", "oracle"]


@every_learner
def test_late_outcomes_are_learnt(policy: str) -> None:
    """All outcomes are two rounds late, and the estimates are right all the same."""
    this = Coordinator(policy, 2, 3, 1, horizon=200)
    worth = [0.5, 0.5] if this.policy.needs_contributions else None
    plans = {}
    for t in range(1, 121):
        plans[t] = this.plan(worth)
        if t > 2:
            this.observe(plans[t - 2] != 1, round=t - 2)
    told = this.channel_means
    if policy.startswith("m-exp3"):  # a set's reward is known only if all its outcomes are
        assert told.tolist() == [0.5] * 3
        return
    assert told[1] < 0.34  # after one loss, with a uniform prior, 1/3
    assert (told[[0, 2]] > 0.8).all()
