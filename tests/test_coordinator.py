"""The coordinator: what it promises, and that misuse gets a clear error and changes nothing."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband import Coordinator
from freshband.errors import ParameterError, SequenceError
from tests.coordinating import content, started, watch_changes
from tests.simulation.refusing import refused

POLICIES = ["cucb", "m-exp3"]  # one that ignores single unknown outcomes, one that skips the round

unchanged = pytest.fixture(watch_changes)


# ------------------------------------------------------------------------------------- the round


def test_a_round() -> None:
    coordinator = Coordinator("cucb", n_clients=2, n_channels=4, seed=0)
    assert coordinator.round == 0
    assert coordinator.pending is None
    assert coordinator.ages.tolist() == [1, 1]
    plan = coordinator.plan()
    assert plan.dtype == np.int64
    assert plan.shape == (2,)
    assert coordinator.pending is not None
    np.testing.assert_array_equal(coordinator.pending, plan)
    assert coordinator.round == 0
    assert coordinator.observe([True, False]) is None
    assert coordinator.round == 1
    assert coordinator.pending is None
    assert coordinator.ages.tolist() == [1, 2]


def test_what_it_hands_out_are_copies(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started()
    coordinator.plan()
    unchanged(coordinator)
    assert coordinator.pending is not None
    coordinator.pending[:] = 99
    coordinator.ages[:] = 99


def test_plans_are_copies(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started()
    plan = coordinator.plan()
    unchanged(coordinator)
    plan[:] = 99


@pytest.mark.parametrize(
    "delivered",
    [
        [True, False],
        (1, 0),
        [1.0, 0.0],
        [np.True_, np.int64(0)],
        np.array([True, False]),
        np.array([1, 0], np.uint8),
        np.array([1.0, 0.0]),
        np.array([True, False], object),
        iter([True, False]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_outcomes_come_in_many_forms(delivered: Any) -> None:
    coordinator = started()
    before = coordinator.ages
    coordinator.plan()
    coordinator.observe(delivered)
    assert coordinator.ages.tolist() == [1, before[1] + 1]


def test_alarms_name_the_channel() -> None:
    coordinator = Coordinator("glr-cucb", n_clients=2, n_channels=3, seed=0)
    alarms = []
    for t in range(600):
        good = 2 if t < 300 else 0
        alarms.append(coordinator.observe(coordinator.plan() == good))
    found = [(t, channel) for t, channel in enumerate(alarms) if channel is not None]
    assert found
    assert all(t >= 300 and channel in (0, 2) for t, channel in found)


@pytest.mark.parametrize(("clients", "channels"), [(1, 1), (1, 4), (3, 3), (20, 20)])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_client_and_as_many_clients_as_channels(
    policy: str, clients: int, channels: int
) -> None:
    coordinator = Coordinator(policy, clients, channels, seed=0)
    for t in range(60):
        plan = coordinator.plan()
        assert len(set(plan.tolist())) == clients
        assert set(plan.tolist()) <= set(range(channels))
        coordinator.observe((plan + t) % 3 == 0)
    assert coordinator.round == 60


# ---------------------------------------------------------------------------- unknown outcomes


@pytest.mark.parametrize("unknown", [None, -1, -1.0, np.int8(-1)])
@pytest.mark.parametrize("policy", POLICIES)
def test_with_an_unknown_outcome_the_age_is_the_expected_one(policy: str, unknown: Any) -> None:
    coordinator = started(policy)
    before = coordinator.ages
    plan = coordinator.plan()
    chance = np.clip(coordinator.channel_means[plan[0]], 0.05, 0.95)
    coordinator.observe([unknown, True])
    expected = chance + (1 - chance) * (before[0] + 1)
    assert coordinator.ages.tolist() == pytest.approx([expected, 1])
    assert coordinator.open_rounds == [21]


def learnt(coordinator: Coordinator, folder: Path) -> dict[str, Any]:
    held = content(coordinator, folder)
    return {k: v for k, v in held.items() if k.startswith("scheduler.")}


def test_the_learner_ignores_unknown_outcomes(tmp_path: Path) -> None:
    coordinator = started("cucb")
    plan = coordinator.plan()
    before = learnt(coordinator, tmp_path)
    coordinator.observe([None, None])
    assert learnt(coordinator, tmp_path) == before
    plan = coordinator.plan()
    coordinator.observe([None, True])
    pulls = np.array(learnt(coordinator, tmp_path)["scheduler.counts.pulls"])
    heard = pulls - before["scheduler.counts.pulls"]
    assert heard[plan[1]] == 1
    assert heard.sum() == 1


def test_exp3_skips_a_round_it_knows_only_in_part(tmp_path: Path) -> None:
    coordinator = started("m-exp3")
    coordinator.plan()
    weights = ("excess", "tree", "level", "members")
    before = learnt(coordinator, tmp_path)
    coordinator.observe([True, None])
    after = learnt(coordinator, tmp_path)
    for name in weights:
        assert after[f"scheduler.{name}"] == before[f"scheduler.{name}"]
    assert after["scheduler.counts.pulls"] != before["scheduler.counts.pulls"]


# --------------------------------------------------------------------------------- out of order


def test_observing_before_planning(unchanged: Callable[[Coordinator], None]) -> None:
    fresh = Coordinator("cucb", 2, 4)
    unchanged(fresh)
    with refused(SequenceError, r"nothing to observe: call plan\(\) for round 1"):
        fresh.observe([True, True])


def test_observing_twice(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started(rounds=3)
    unchanged(coordinator)
    with refused(SequenceError, r"nothing to observe: call plan\(\) for round 4"):
        coordinator.observe([True, True])


def test_planning_twice_leaves_the_first_plan_open() -> None:
    coordinator, twin = started(rounds=3), started(rounds=3)
    plan = coordinator.plan()
    assert (coordinator.round, coordinator.open_rounds) == (3, [4])
    second = coordinator.plan()
    assert (coordinator.round, coordinator.open_rounds) == (4, [4, 5])
    assert coordinator.pending is not None
    np.testing.assert_array_equal(coordinator.pending, second)
    coordinator.observe(plan < 2, round=4)
    coordinator.observe([True, False])
    for outcome in (twin.plan() < 2, [True, False]):
        if twin.pending is None:
            twin.plan()
        twin.observe(outcome)
    assert coordinator.ages.tolist() == twin.ages.tolist()
    assert coordinator.open_rounds == []


# -------------------------------------------------------------------------------- bad outcomes

WRONG_LENGTH: list[Any] = [[], [True], [True, False, True], np.array([]), np.array([1, 0, 1])]
WRONG_VALUE: list[Any] = [
    [True, 2],
    [True, -2],
    [0.5, 1],
    [math.nan, 1],
    np.array([math.nan, 1.0]),
    [math.inf, 0],
    ["yes", "no"],
    ["1", "0"],
    "10",
    b"\x01\x00",
    {0: True, 1: False},
    {True, False},
    True,
    None,
    3,
    np.array(True),
    [[True, False]],
    np.array([[True, False], [True, False]]),
    np.zeros((50, 50)),
    [[], []],
    [object(), object()],
]


@pytest.mark.parametrize("policy", POLICIES)
def test_wrong_lengths(policy: str, unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started(policy)
    coordinator.plan()
    unchanged(coordinator)
    for delivered in WRONG_LENGTH:
        with refused(
            ParameterError,
            f"delivered must have one entry per client, 2, got {len(delivered)}",
        ):
            coordinator.observe(delivered)


@pytest.mark.parametrize("policy", POLICIES)
def test_wrong_values(policy: str, unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started(policy)
    coordinator.plan()
    unchanged(coordinator)
    for delivered in WRONG_VALUE:
        with refused(
            ParameterError,
            r"delivered must hold True, False or None \(unknown\) per client, got ",
        ):
            coordinator.observe(delivered)


# ---------------------------------------------------------------------------------------- threads


def test_several_threads_plan_observe_and_save(tmp_path: Path) -> None:
    """No call fails, no round is lost, and what is saved meanwhile is whole."""
    each = 60
    coordinator = Coordinator("glr-cucb", n_clients=3, n_channels=8, seed=0, max_delay=4 * each)
    stop, loaded = threading.Event(), []

    def play() -> None:
        for _ in range(2):
            for _ in range(each // 2):
                coordinator.plan()
                with contextlib.suppress(SequenceError):  # another thread knows all of that plan
                    coordinator.observe([True, False, None])
            enough = len(loaded) + 3  # one of these saves began after this line
            while len(loaded) < enough and not any(other.done() for other in others):
                time.sleep(0.001)

    def hear_late() -> None:
        while not stop.is_set():
            for when in coordinator.open_rounds:
                coordinator.observe([True, False, False], round=when)
            time.sleep(0.001)  # the lock is not fair

    def save(path: Path) -> None:
        while not stop.is_set():
            coordinator.save(path)
            again = Coordinator.load(path)
            assert again.round + (again.pending is not None) >= max(again.open_rounds, default=0)
            loaded.append(again.round)
            time.sleep(0.001)

    coordinator.observe(coordinator.plan() >= 0)
    with ThreadPoolExecutor(7) as pool:
        others = [pool.submit(save, tmp_path / f"{number}.npz") for number in range(2)]
        others.append(pool.submit(hear_late))
        players = [pool.submit(play) for _ in range(4)]
        try:
            for player in players:
                player.result()
        finally:
            stop.set()
        for other in others:
            other.result()
    assert coordinator.round + (coordinator.pending is not None) == 1 + 4 * each
    assert len(set(loaded)) > 1
    assert np.isfinite(coordinator.ages).all()


@pytest.mark.parametrize("name", ["n_clients", "n_channels", "seed", "run", "horizon", "policy"])
def test_sizes_are_read_only(name: str) -> None:
    coordinator = Coordinator("cucb", n_clients=2, n_channels=5)
    with pytest.raises(AttributeError):
        setattr(coordinator, name, 3)
    coordinator.plan()
    coordinator.observe([True, False])


def test_a_copy_goes_on_by_itself() -> None:
    coordinator = Coordinator("thompson", n_clients=2, n_channels=5, seed=4)
    coordinator.plan()
    for twin in (copy.deepcopy(coordinator), pickle.loads(pickle.dumps(coordinator))):
        assert twin.pending.tolist() == coordinator.pending.tolist()
        twin.observe([True, True])
        assert twin.round == 1
    assert coordinator.round == 0
