"""AdSwitch and MASTER against slow versions, round by round."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from freshband.schedulers.adswitch import AdSwitch
from freshband.schedulers.base import select, update, update_late
from freshband.schedulers.master import Master
from tests.reference.adswitch import SlowAdSwitch
from tests.reference.master import SlowMaster

NOBODY = np.zeros(2, np.int8)


def air(rounds: int, seed: int) -> Any:
    """Four channels whose order turns around half way."""
    means = np.array([0.95, 0.8, 0.3, 0.05])
    u = np.random.default_rng(seed).random((rounds, 4))
    return u < np.where(np.arange(rounds)[:, None] < rounds // 2, means, means[::-1])


@pytest.mark.parametrize("seed", range(3))
def test_adswitch_tests_every_interval_from_a_mark(seed: int) -> None:
    rounds, rng = 240, np.random.default_rng(seed)
    state = AdSwitch().start(2, 4, rng, rounds)
    slow = SlowAdSwitch(4, 2, 1.0, rounds)
    states, alarms = air(rounds, seed), 0
    for t in range(1, rounds + 1):
        channels = rng.permutation(4)[:2]
        outcomes = states[t - 1, channels].astype(np.int8)
        alarm = update(state, t, channels, outcomes, NOBODY)
        assert alarm == slow.observe(t, channels.tolist(), outcomes.tolist())
        alarms += alarm >= 0
        assert state.good.tolist() == slow.good
        for channel, (mean, gap) in slow.left.items():
            assert (state.mean[channel], state.gap[channel]) == pytest.approx((mean, gap))
    assert alarms >= 1
    assert state.clock[0]["episode"] == alarms + 1


def test_good_channels_take_turns_and_bad_ones_pay_what_they_owe() -> None:
    state, chosen = AdSwitch().start(2, 5, np.random.default_rng(0), 1000), np.zeros(2, np.int64)
    state.good[:] = [1, 1, 1, 0, 0]
    state.gap[3:] = 0.9
    state.owed[3] = 2
    rng = np.random.default_rng(0)
    seen: list[set[int]] = []
    for t in range(1, 9):
        select(state, t, None, rng, chosen)
        seen.append(set(chosen.tolist()))
        state.owed[3] -= 3 in seen[-1]
    assert 3 in seen[0] | seen[1]
    assert sum(3 in each for each in seen) == 2
    assert not any(4 in each for each in seen)
    for before, after in itertools.pairwise(seen[4:]):
        assert before | after == {0, 1, 2}  # nobody waits for two rounds


def test_bad_channels_are_checked_as_often_as_published() -> None:
    state, rng = AdSwitch().start(1, 2, np.random.default_rng(0), 100), np.random.default_rng(3)
    state.good[1], state.gap[1] = 0, 0.9
    chosen, due, draws = np.zeros(1, np.int64), 0, 4000
    for _ in range(draws):
        state.owed[1] = 0
        select(state, 50, None, rng, chosen)
        due += state.owed[1] > 0
    rate = (1 / (2 * 100 * np.log(100))) ** 0.5
    chance = 1 - np.prod([1 - 2.0**-i * rate for i in range(1, 5)])  # down to 16 d >= 0.9
    assert abs(due / draws - chance) <= 5 * (chance * (1 - chance) / draws) ** 0.5


@pytest.mark.parametrize(("scale", "least"), [(0.0005, 3), (1.0, 0)])
def test_master_is_blocks_of_instances(scale: float, least: int) -> None:
    rounds = 300
    state = Master(test_scale=scale).start(2, 4, np.random.default_rng(0), rounds)
    slow = SlowMaster(2, 4, scale, rounds)
    fast_rng, slow_rng = np.random.default_rng(1), np.random.default_rng(1)
    states, chosen, active = air(rounds, 5), np.zeros(2, np.int64), set()
    for t in range(1, rounds + 1):
        select(state, t, None, fast_rng, chosen)
        assert state.values.tolist() == pytest.approx(slow.index(t, slow_rng))
        assert state.block[0]["order"] == slow.order
        active.add(int(state.block[0]["active"]))
        outcomes = states[t - 1, chosen].astype(np.int8)
        update(state, t, chosen, outcomes, NOBODY)
        slow.observe(t, chosen.tolist(), outcomes.tolist(), state.block[0]["hope"])
        assert state.block[0]["restarts"] == slow.restarts
    assert slow.restarts >= least
    assert (slow.restarts == 0) == (least == 0)  # with the published constants it never restarts
    assert len(active) >= 3


def test_late_outcomes_are_those_of_the_episode_or_the_block() -> None:
    switch = AdSwitch().start(2, 4, np.random.default_rng(0), 100)
    switch.clock[0]["start"] = 10
    assert update_late(switch, 20, 10, 0, 2, 1) == -1
    assert not switch.counts.pulls.any()
    update_late(switch, 20, 11, 0, 2, 1)
    assert switch.counts.pulls.tolist() == [0, 0, 1, 0]
    master, chosen = Master().start(2, 4, np.random.default_rng(0), 100), np.zeros(2, np.int64)
    for t in range(1, 5):
        select(master, t, None, np.random.default_rng(t), chosen)
    order, start = (int(master.block[0][name]) for name in ("order", "start"))
    update_late(master, 4, start, 0, 3, 1)
    update_late(master, 4, start - 1, 0, 3, 1)
    assert master.pulls[order, 3] == 1
