"""Outcomes that come late, in parts, in any order, or never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband import Coordinator
from freshband.errors import ParameterError, SequenceError
from tests.coordinating import watch_changes
from tests.simulation.refusing import refused

unchanged = pytest.fixture(watch_changes)


def planned(rounds: int, **options: Any) -> tuple[Coordinator, list[Any]]:
    """A coordinator with some plans of which nothing is known."""
    coordinator = Coordinator("cucb", n_clients=2, n_channels=4, seed=1, **options)
    return coordinator, [coordinator.plan() for _ in range(rounds)]


@settings(max_examples=20)
@given(st.permutations(range(1, 9)), st.lists(st.booleans(), min_size=18, max_size=18))
def test_ages_do_not_depend_on_the_order_in_which_outcomes_arrive(
    order: list[int], outcomes: list[bool]
) -> None:
    late, _ = planned(9)
    prompt = Coordinator("cucb", n_clients=2, n_channels=4, seed=1)
    for t in range(9):
        prompt.plan()
        prompt.observe(outcomes[2 * t : 2 * t + 2])
    for when in [*order, 9]:
        late.observe(outcomes[2 * when - 2 : 2 * when], round=when)
    assert late.open_rounds == []
    assert late.ages.tolist() == prompt.ages.tolist()


def test_late_outcomes_teach() -> None:
    coordinator, plans = planned(30)
    for when, plan in enumerate(plans, start=1):
        coordinator.observe(plan != 1, round=when)
    assert coordinator.channel_means[1] == 0
    assert np.delete(coordinator.channel_means, 1).tolist() == [1, 1, 1]


def test_a_look_between_late_outcomes_changes_nothing() -> None:
    this, twin = (Coordinator("bayes", 3, 3) for _ in range(2))
    for t in range(1, 41):
        np.testing.assert_array_equal(this.plan(), twin.plan())
        for each in (this, twin):
            each.observe([None, None, t % 5 > 0])
        for client in range(2 if t > 3 else 0):
            for each in (this, twin):
                each.observe([(client + t) % 3 > 0], round=t - 3, clients=[client])
            assert this.beliefs is not None
            assert this.channel_means.max() > 0.0
    assert this.to_bytes() == twin.to_bytes()


def test_a_round_may_be_observed_in_parts_and_told_twice() -> None:
    coordinator, _ = planned(1)
    assert coordinator.observe([None, True]) is None
    assert coordinator.open_rounds == [1]
    coordinator.observe([False, True])  # the latest plan still has something open
    assert coordinator.open_rounds == []
    assert coordinator.ages.tolist() == [2, 1]
    coordinator.observe([False, True], round=1)  # no news
    assert coordinator.ages.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("delivered", "clients"),
    [
        ([True, False], [1, 0]),
        (np.array([1, 0], np.int8), np.array([1, 0])),
        ((1, 0), np.array([1, 0], np.uint8)),
        ([False, True], range(2)),
    ],
)
def test_outcomes_of_named_clients(delivered: Any, clients: Any) -> None:
    coordinator, _ = planned(1)
    coordinator.observe(delivered, clients=clients)
    assert coordinator.ages.tolist() == [2, 1]


def test_outcomes_of_one_client_leave_the_others_open() -> None:
    coordinator, _ = planned(2)
    coordinator.observe([True], round=1, clients=[1])
    coordinator.observe([False], clients=[0])
    assert coordinator.open_rounds == [1, 2]
    coordinator.observe([], round=1, clients=np.zeros(0, np.int64))
    assert coordinator.open_rounds == [1, 2]


def test_a_loss_may_say_nothing_about_the_channel() -> None:
    coordinator, (plan,) = planned(1)
    coordinator.observe([False, False], teaches=[False, True])
    assert coordinator.ages.tolist() == [2, 2]
    assert coordinator.channel_means[plan].tolist() == [0.5, 0]
    with refused(ParameterError, "in round 1 is known: it was lost, got delivered"):
        coordinator.observe([True, None], round=1)


def test_what_cannot_be_observed(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator, _ = planned(6, max_delay=3)
    coordinator.observe([True, None], round=4)
    unchanged(coordinator)
    with refused(SequenceError, "round 7 is not planned yet; the latest is 6"):
        coordinator.observe([True, True], round=7)
    with refused(SequenceError, "round 2 is over: outcomes may be at most max_delay = 3 rounds "):
        coordinator.observe([True, True], round=2)
    with refused(ParameterError, "client 0 in round 4 is known: it was delivered, got lost"):
        coordinator.observe([False, True], round=4)
    for when in (0, -1, 1.5, "1", True):
        with refused(ParameterError, "round must be a whole number >= 1"):
            coordinator.observe([True, True], round=when)  # type: ignore[arg-type]
    for clients in ([0, 0], [[0, 1]], [[0], [0, 1]], ["a", "b"], [0.0, 1.0], 3):
        with refused(ParameterError, "clients must be different numbers, got"):
            coordinator.observe([True, True], clients=clients)  # type: ignore[arg-type]
    for clients in ([0, 2], [-1, 0]):
        with refused(ParameterError, "clients must be numbers from 0 to 1, got"):
            coordinator.observe([True, True], clients=clients)
    with refused(ParameterError, "delivered must have one entry per client, 1, got 2"):
        coordinator.observe([True, True], clients=[0])
    for teaches in ([True], [1, 2], "yes", [[True, False]], [[True], []]):
        with refused(ParameterError, "teaches must hold True or False per outcome, 2 in all"):
            coordinator.observe([True, True], teaches=teaches)


def test_masks_that_fit_nothing(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator, _ = planned(1)
    unchanged(coordinator)
    for mask in ([True], [1, 2], [0.0, 1.0], "no", [[True, True]], [[0], [0, 1]], [None, True]):
        with refused(ParameterError, "present must hold True or False per client, 2 in all"):
            coordinator.plan(present=mask)
        with refused(ParameterError, "available must hold True or False per channel, 4 in all"):
            coordinator.plan(available=mask)


def test_masks_come_in_many_forms() -> None:
    for mask in ([True, False], (1, 0), np.array([1, 0], np.uint8), np.array([True, False])):
        coordinator, _ = planned(0)
        plan = coordinator.plan(present=mask, available=[0, 0, 1, 0])
        assert plan.tolist() == [2, -1]


def test_silence_is_a_loss_where_it_is_said_to_be() -> None:
    (lost, plans), (unknown, _) = planned(3, max_delay=2, silence="loss"), planned(3, max_delay=2)
    for coordinator in (lost, unknown):
        assert coordinator.channel_means.tolist() == [0.5] * 4
        coordinator.observe([True, None], round=1)
        coordinator.plan()  # of round 4: now nothing of round 1 can arrive any more
        assert coordinator.open_rounds == [2, 3, 4]
    assert lost.channel_means[plans[0]].tolist() == [1, 0]
    assert unknown.channel_means[plans[0]].tolist() == [1, 0.5]
