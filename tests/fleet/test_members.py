"""Clients that join and leave, their names, and coordinators saved meanwhile."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband import Coordinator
from freshband.errors import ParameterError
from freshband.schedulers.base import link_mean
from tests.playing import every_learner, interpret_coordinator
from tests.simulation.refusing import refused


@pytest.fixture
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret_coordinator(monkeypatch)


def go_on(this: Coordinator, rounds: int) -> list[Any]:
    """Play with late and lost outcomes; return all plans."""
    plans = []
    for _ in range(rounds):
        worth = np.ones(this.n_clients) if this.policy.needs_contributions else None
        plan = this.plan(worth)
        plans.append(plan.tolist())
        t = this.round + 1
        this.observe(np.where((plan + t) % 3 == 0, -1, fate(this, t)))
        for when in this.open_rounds[:-2]:
            this.observe(fate(this, when), round=when)
    return plans


def fate(this: Coordinator, when: int) -> Any:
    """What becomes of the updates of a round."""
    return (np.arange(this.n_clients) * 5 + when * 3) % 4 > 0


@every_learner
@pytest.mark.usefixtures("_uncompiled")
def test_clients_join_and_leave_in_the_middle_of_a_run(policy: str) -> None:
    """All that was learnt is kept, with room for more than the fleet began with."""
    this = Coordinator(policy, 2, 4, 3, horizon=100, max_delay=5)
    go_on(this, 12)
    means, ages = this.channel_means, this.ages
    grows = this.policy.grows
    if not grows:
        with refused(ParameterError, "chooses sets of a fixed size: start it with the largest"):
            this.join("new")
        assert this.n_clients == 2
        return
    assert this.join("new", weight=2.0) == 2
    np.testing.assert_array_equal(this.channel_means, means)
    np.testing.assert_array_equal(this.ages, [*ages, 1.0])
    plan = go_on(this, 8)[-1]
    assert len(plan) == 3
    assert min(plan) >= 0
    this.leave("new")
    this.leave(0)
    assert np.isnan(this.ages).tolist() == [True, False, True]
    assert all(plan[0] == plan[2] == -1 < plan[1] for plan in go_on(this, 4))
    twin = Coordinator.from_bytes(this.to_bytes())
    assert go_on(twin, 6) == go_on(this, 6)


def test_who_is_fixed_in_size_has_room_up_to_it() -> None:
    this = Coordinator("m-exp3", 3, 2, 0)
    assert this.join() == 3  # two still send
    assert sorted(this.plan().tolist()) == [-1, -1, 0, 1]


def test_numbers_are_used_again_only_when_no_outcome_can_arrive() -> None:
    this = Coordinator("cucb", 2, 4, max_delay=2, client_ids=["a", "b"])
    this.plan()
    this.leave("a")  # its update of round 1 is on its way
    assert this.join("c") == 2
    this.plan()
    this.observe([True, None, None], round=1)
    this.plan()
    assert this.join("d") == 3
    for _ in range(2):
        this.plan()
    assert this.round == 4
    assert this.join("e") == 0
    assert this.ages[0] == 1
    assert this.client_ids == ["e", "b", "c", "d"]
    assert this.alive[0] == 1


def lead(this: Coordinator) -> float:
    """By how much channel 0 is believed to be better than channel 1 for client 0."""
    return float(link_mean(this._scheduler, 0, 0) - link_mean(this._scheduler, 0, 1))


@pytest.mark.usefixtures("_uncompiled")
def test_a_new_client_does_not_inherit_the_links_of_the_one_that_left() -> None:
    this = Coordinator("bayes", 2, 3, links="differ", max_delay=0)
    for _ in range(60):
        this.observe(this.plan() == [0, 1])  # each client has one channel that works
    this.leave(0)
    this.plan()
    this.observe([None, None])
    links = this._scheduler
    twin, others = Coordinator.from_bytes(this.to_bytes()), links.tries[:, 1].copy()
    assert lead(this) > 0.1
    assert twin.join("new") == this.join("new") == 0
    assert not links.tries[:, 0].any()
    assert not links.offset[:, 0].any()
    np.testing.assert_array_equal(links.tries[:, 1], others)
    assert abs(lead(this)) < 0.05  # both channels are known to work for somebody
    assert go_on(twin, 4) == go_on(this, 4)


@pytest.mark.usefixtures("_uncompiled")
def test_a_look_at_the_rates_changes_nothing_for_a_client_that_joins() -> None:
    this = Coordinator("bayes", 2, 3, links="differ")
    for _ in range(20):
        this.observe(this.plan() == [0, 1])
    twin = Coordinator.from_bytes(this.to_bytes())
    assert this.channel_means[0] > 0.5
    assert twin.join("new") == this.join("new") == 2
    assert link_mean(this._scheduler, 2, 0) == link_mean(twin._scheduler, 2, 0) != 0.5
    assert go_on(twin, 4) == go_on(this, 4)


def test_names_in_errors_and_logs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    names = {"client_ids": ["kiln", 7], "channel_ids": ["low", "mid", "high"]}
    this = Coordinator("cucb", 2, 3, log=log, **names)  # type: ignore[arg-type]
    plan = this.plan()
    this.observe([True, None])
    with refused(ParameterError, "the outcome of client 'kiln' in round 1 is known: it was del"):
        this.observe([False, None], round=1)
    entry = json.loads(log.read_text())
    assert entry["assignment"] == plan.tolist()
    assert (entry["clients"], entry["channels"]) == (["kiln", 7], ["low", "mid", "high"])
    with refused(ParameterError, "there is no client 'oven'"):
        this.leave("oven")
    with refused(ParameterError, "there is a client 7 already"):
        this.join(np.int64(7))  # type: ignore[arg-type]
    for bad in (True, 1.5, ["kiln"], None):
        with refused(ParameterError, "(id of a client must be text|there is no client)"):
            this.leave(bad)  # type: ignore[arg-type]
    for weight in (0.0, -1, np.inf, np.nan, "5", True, [1.0], None):
        with refused(ParameterError, "weight must be a finite number > 0, got"):
            this.join("oven", weight=weight)  # type: ignore[arg-type]  # on purpose
    assert this.client_ids == ["kiln", 7]
    this.leave(7)
    assert this.client_ids == ["kiln", None]


def test_without_names_numbers_are_the_names() -> None:
    this = Coordinator("cucb", 3, 4)
    assert this.client_ids == [0, 1, 2]
    this.leave(np.int64(1))  # type: ignore[arg-type]
    with refused(ParameterError, "there is no client 1"):
        this.leave(1)
    assert this.join() == 3
    assert this.client_ids == [0, None, 2, 3]


def test_a_refused_join_changes_nothing() -> None:
    this = Coordinator("cucb", 2, 4, client_ids=["a", "b"])
    before = this.to_bytes()
    for bad in ("a", 1.5, True):
        with pytest.raises(ParameterError):
            this.join(bad)  # type: ignore[arg-type]
    assert this.to_bytes() == before


def test_a_twin_goes_on_identically_from_any_point(tmp_path: Path) -> None:
    """Open rounds, members that left, weights and names are all in the file."""
    this = Coordinator(
        "cucb", 5, 3, 2, weights=[1, 2, 3, 4, 5], client_ids=list("abcde"), max_transmissions=2,
        max_delay=6, proof_of_life="delivery", silence="loss",
    )  # fmt: skip
    for t in range(12):
        if t % 3 == 0:
            this.plan()
        if t == 5:
            this.leave("b")
        if t == 8:
            this.join("f", weight=9)
        this.save(tmp_path / "state")
        twins = [
            Coordinator.load(tmp_path / "state"),
            pickle.loads(pickle.dumps(this)),
            copy.deepcopy(this),
        ]
        expected = go_on(copy.copy(this), 4)
        for twin in twins:
            assert twin.open_rounds == this.open_rounds
            assert twin.client_ids == this.client_ids
            assert twin.fleet_options == this.fleet_options
            assert go_on(twin, 4) == expected
        go_on(this, 1)


def test_masks_and_members_agree() -> None:
    this = Coordinator("cucb", 3, 3)
    this.leave(1)
    assert this.plan(present=[True, True, False]).tolist().count(-1) == 2
    assert (this.plan()[[0, 2]] >= 0).all()
    this.leave(0)
    this.leave(2)
    assert this.plan().tolist() == [-1, -1, -1]  # nobody is left
    assert this.observe([None] * 3) is None
