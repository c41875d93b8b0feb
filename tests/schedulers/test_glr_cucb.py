"""GLR-CUCB: its forced exploration and restarts, and the places where peers went wrong."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband._policy import parse_policy
from freshband.detectors.base import forget_all, push
from freshband.errors import ParameterError
from freshband.schedulers import restarting
from freshband.schedulers.base import select, update
from freshband.schedulers.cucb import Cucb
from freshband.schedulers.glr_cucb import GlrCucb
from freshband.states import reserve

# ------------------------------------------------------------------------------- forced exploration


def start(n_clients: int, n_channels: int, horizon: int | None = None, **options: Any) -> Any:
    scheduler = GlrCucb(**options)
    rng = np.random.default_rng(0)
    return reserve(scheduler.start(n_clients, n_channels, rng, horizon), 1000)


EXPLORERS = {
    "constant": {"alpha": 0.3},
    "permanent": {"alpha": 1.0},
    "paper": {"alpha": "paper"},
    "besson": {"alpha": "besson"},
    "anytime": {"alpha": "anytime"},
    "sqrt_episode": {"alpha": 0.2, "alpha_schedule": "sqrt_episode"},
    "never again": {"alpha": 0.0},
}


@pytest.mark.parametrize("fill", ["index", "random"])
@pytest.mark.parametrize("options", EXPLORERS.values(), ids=EXPLORERS.keys())
def test_every_sweep_reaches_every_channel_also_after_a_restart(
    options: dict[str, Any], fill: str
) -> None:
    """The printed (t-τ) mod ⌊N/α⌋ in [N], read from 0, would never try the last channel."""
    n_channels = 6
    state = start(2, n_channels, 300, explore_fill=fill, **options)
    chosen = np.zeros(2, np.int64)
    rng = np.random.default_rng(0)
    outcome = np.ones(2, np.int8)
    for restart in (0, 40, 95):
        state.clock[:] = (restart, 0, 0, state.clock[0]["episode"] + (restart > 0))
        for position in range(n_channels):
            t = restart + 1 + position
            select(state, t, np.ones(2), rng, chosen)
            assert position in chosen
            assert chosen[0] != chosen[1]
            update(state, t, chosen, outcome, np.zeros(2, np.int8))


def sweeps(state: Any, rounds: int) -> list[int]:
    """Rounds in which some channel is forced."""
    return [
        elapsed
        for elapsed in range(1, rounds + 1)
        if restarting._forced_channel(state, elapsed) >= 0
    ]


def test_a_share_of_alpha_goes_to_forced_rounds() -> None:
    forced = sweeps(start(1, 5, alpha=0.25), 400)
    assert forced == [t for t in range(1, 401) if (t - 1) % 20 < 5]  # ⌊5 / 0.25⌋ = 20


@pytest.mark.parametrize("alpha", [0.9, 1.0])
def test_a_period_no_longer_than_a_sweep_means_always(alpha: float) -> None:
    state = start(1, 5, alpha=alpha)
    visited = [restarting._forced_channel(state, elapsed) for elapsed in range(1, 101)]
    assert visited == [t % 5 for t in range(100)]


def test_no_alpha_no_exploration_after_the_first_sweep() -> None:
    assert sweeps(start(1, 5, alpha=0.0), 5000) == [1, 2, 3, 4, 5]


def test_the_papers_period() -> None:
    """erratum E15b: 4,493 rounds at T = 20000, N = 5."""
    alpha = 0.05 * math.sqrt(math.log(20_000) / 20_000)
    assert math.floor(5 / alpha) == 4493
    forced = sweeps(start(2, 5, 20_000, alpha="paper"), 20_000)
    starts = [t for t in forced if t - 1 not in forced]
    assert starts == [1, 4494, 8987, 13480, 17973]
    assert len(forced) == 25
    assert sweeps(start(20, 30, 250, alpha="paper"), 250) == list(range(1, 31))


def test_bessons_rate_counts_channels_and_segments() -> None:
    state = start(2, 5, 20_000, alpha="besson", n_segments=4)
    assert state.alpha[0] == pytest.approx(0.05 * math.sqrt(5 * 4 * math.log(20_000) / 20_000))


def test_anytime_sweeps_thin_out() -> None:
    forced = sweeps(start(1, 4, alpha="anytime"), 100_000)
    starts = [t for t in forced if t - 1 not in forced]
    assert len(forced) == 4 * len(starts)
    gaps = np.diff(starts)
    assert (np.diff(gaps) > 0).all()
    for begun, gap in zip(starts, gaps, strict=False):
        rate = 0.05 * math.sqrt(math.log(begun + 1) / (begun + 1))
        assert gap == math.floor(4 / rate)


def test_exploration_grows_with_the_episodes_if_asked() -> None:
    state = start(1, 4, alpha=0.1, alpha_schedule="sqrt_episode")
    assert restarting._next_period(state, 1) == 40
    state.clock[0]["episode"] = 4
    assert restarting._next_period(state, 1) == 20


@pytest.mark.parametrize("alpha", [1e-19, 1e-30, 5e-324])
def test_a_tiny_alpha_is_hardly_any_exploration(alpha: float) -> None:
    """N/α beyond int64 used to turn into permanent exploration in compiled code."""
    assert sweeps(start(1, 5, alpha=alpha), 200) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("alpha", ["paper", "besson"])
def test_rates_that_need_the_horizon_ask_for_it(alpha: str) -> None:
    with pytest.raises(ParameterError, match=r"horizon=T.*default"):
        GlrCucb(alpha=alpha).start(2, 5, np.random.default_rng(0), None)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan, math.inf, "papers", True, None])
def test_alpha_out_of_range_is_refused(alpha: Any) -> None:
    with pytest.raises(ParameterError, match="alpha must be"):
        GlrCucb(alpha=alpha)


# ----------------------------------------------------------------------------------- what is learnt


def test_delta_and_threshold_reach_the_detector() -> None:
    policy = parse_policy("glr-cucb:paper", {"delta": 0.0123, "threshold": "kaufmann"})
    state, _ = policy.start(2, 5, np.random.default_rng(0), 100)
    assert state.detector.rule.tolist() == [(0.0123, 2.0)]


def test_the_mean_divides_by_the_new_count() -> None:
    state = start(1, 3)
    for t, x in enumerate([1, 0, 1, 1], start=1):
        update(state, t, np.array([2]), np.array([x], np.int8), np.zeros(1, np.int8))
    counts = state.index.counts
    assert counts.pulls.tolist() == [0, 0, 4]
    assert counts.mean.tolist() == [0.5, 0.5, 0.75]


@pytest.mark.parametrize("index", ["ucb", "kl-ucb"])
def test_channels_never_heard_come_first(index: str) -> None:
    state = start(2, 4, alpha=0.0, index=index)
    state.clock[0]["period"] = 10**9
    for channel in (0, 2):
        for _ in range(3):
            update(state, 1, np.array([channel, -1]), np.array([1, -1], np.int8), np.zeros(2))
    chosen = np.zeros(2, np.int64)
    select(state, 500, np.ones(2), np.random.default_rng(0), chosen)
    assert sorted(chosen.tolist()) == [1, 3]


def fail_over(restart: str) -> tuple[Any, int, int]:
    """Channel 0 works 40 times, then fails till the alarm; channel 1 is heard along with it."""
    state = start(2, 3, restart=restart, delta=0.01)
    both = np.array([0, 1])
    nobody = np.zeros(2, np.int8)
    for t in range(1, 200):
        outcome = np.array([t <= 40, t % 2], np.int8)
        if update(state, t, both, outcome, nobody) >= 0:
            return state, t, t - 40
    raise AssertionError("no alarm")


def test_a_global_restart_leaves_no_sample_behind() -> None:
    """Nor does it count the reward that raised the alarm once more, as peers do."""
    state, t, _ = fail_over("global")
    counts = state.index.counts
    assert counts.pulls.tolist() == [0, 0, 0]
    assert counts.wins.tolist() == [0, 0, 0]
    assert counts.mean.tolist() == [0.5, 0.5, 0.5]
    assert state.detector.book["count"].tolist() == [0, 0, 0]
    assert state.clock.tolist() == [(t, 0, 0, 2)]


def test_a_localised_restart_keeps_exactly_what_came_after_the_change() -> None:
    state, t, failures = fail_over("localised")
    counts = state.index.counts
    assert counts.pulls.tolist() == [failures, 0, 0]
    assert counts.wins.tolist() == [0, 0, 0]
    assert counts.mean.tolist() == [0, 0.5, 0.5]
    assert counts.width[0] == pytest.approx(1 / math.sqrt(failures))
    assert state.clock[0]["tau"] == t


def test_a_local_restart_forgets_one_channel_and_keeps_the_clock() -> None:
    state, t, _ = fail_over("local")
    counts = state.index.counts
    assert counts.pulls.tolist() == [0, t, 0]
    assert counts.wins[1] == (t + 1) // 2
    assert state.detector.book["count"].tolist() == [0, t - 1, 0]  # the alarm ended the round
    assert state.clock[0]["tau"] == 0


@pytest.mark.parametrize("restart", ["global", "local", "localised"])
def test_two_alarms_in_one_round_are_one_restart(restart: str) -> None:
    """T15: the printed loop goes on with D = 0 and takes the logarithm of zero."""
    state = start(2, 3, restart=restart, delta=0.01)
    both = np.array([1, 2])
    nobody = np.zeros(2, np.int8)
    alarms = []
    for t in range(1, 120):
        channel = update(state, t, both, np.full(2, t <= 40, np.int8), nobody)
        if channel >= 0:
            alarms.append((t, int(channel)))
    if restart == "local":  # the other channel's turn comes a round later
        assert [channel for _, channel in alarms] == [1, 2]
        assert alarms[1][0] == alarms[0][0] + 1
    else:
        assert len(alarms) == 1
        assert state.clock[0]["tau"] == alarms[0][0]
        assert state.clock[0]["episode"] == 2
        since = 119 - alarms[0][0]
        assert state.detector.book["count"].tolist() == [0, since, since]
    assert np.isfinite(state.index.counts.mean).all()


def test_unknown_outcomes_teach_nothing() -> None:
    state = start(2, 3)
    update(state, 1, np.array([0, 1]), np.array([-1, 1], np.int8), np.zeros(2, np.int8))
    assert state.index.counts.pulls.tolist() == [0, 1, 0]
    assert state.detector.book["count"].tolist() == [0, 1, 0]


def test_the_detector_hears_what_the_learner_hears() -> None:
    state = start(1, 2, delta=0.01)
    twin = start(1, 2, delta=0.01).detector
    rng = np.random.default_rng(5)
    for t in range(1, 101):
        outcome = int(rng.random() < (0.9 if t < 60 else 0.1))
        raised = update(state, t, np.array([1]), np.array([outcome], np.int8), np.zeros(1, np.int8))
        assert (raised == 1) == push(twin, 1, outcome)
        if raised == 1:
            return
    raise AssertionError("no alarm")


def test_forcing_a_channel_leaves_its_index_alone() -> None:
    state = start(2, 4, alpha=1.0, channel_key="index")
    for channel in range(4):
        update(state, 1, np.array([channel, -1]), np.array([0, -1], np.int8), np.zeros(2, np.int8))
    chosen = np.zeros(2, np.int64)
    select(state, 9, np.ones(2), np.random.default_rng(0), chosen)
    assert np.isfinite(state.index.values).all()
    assert len(set(state.index.values.tolist())) == 1


def test_random_fill_is_uniform_over_the_other_channels() -> None:
    state = start(2, 5, alpha=1.0, explore_fill="random")
    rng = np.random.default_rng(6)
    chosen = np.zeros(2, np.int64)
    seen = np.zeros((5, 5), np.int64)
    rounds = 5000
    for t in range(1, rounds + 1):
        select(state, t, np.ones(2), rng, chosen)
        forced = (t - 1) % 5
        assert forced in chosen
        seen[forced, next(k for k in chosen if k != forced)] += 1
    expected = rounds / 5 / 4
    others = seen[~np.eye(5, dtype=bool)]
    assert np.abs(others - expected).max() <= 5 * math.sqrt(expected * 0.75)


# -------------------------------------------------------------------------------------- composition


def test_any_index_and_any_detector_make_a_restarting_policy() -> None:
    """An index and a detector the package does not know: a window, five losses in a row."""

    class StreakState(NamedTuple):
        losses: NDArray[np.int64]

    @push.register(StreakState)
    def _push(detector: Any, channel: int, outcome: int) -> bool:
        detector.losses[channel] = 0 if outcome == 1 else detector.losses[channel] + 1
        return bool(detector.losses[channel] >= 5)

    @forget_all.register(StreakState)
    def _forget_all(detector: Any) -> None:
        for channel in range(len(detector.losses)):
            detector.losses[channel] = 0

    index = Cucb(mean_window=50).start(1, 3, np.random.default_rng(0), None)
    state = restarting.restart_on_change(index, StreakState(np.zeros(3, np.int64)), alpha=0.0)
    alarms = []
    for t in range(1, 201):
        chosen = np.zeros(1, np.int64)
        select(state, t, np.ones(1, np.int64), None, chosen)
        works = 0 if t <= 100 else 2
        delivered = np.array([chosen[0] == works or (chosen[0] == 1 and t % 3)], np.int8)
        alarms.append(update(state, t, chosen, delivered, np.zeros(1, np.int8)))
    raised = [t for t, alarm in enumerate(alarms, 1) if alarm >= 0]
    assert alarms.index(0) >= 104  # channel 0 fails from round 101 on, and must do so five times
    assert state.clock[0]["tau"] == raised[-1]
    assert state.clock[0]["episode"] == 1 + len(raised)


def test_glr_cucb_takes_any_index_policy_by_name() -> None:
    state, _ = parse_policy("glr-cucb", {"index": "thompson"}).start(2, 5, rng(), None)
    assert type(state.index).__name__ == "_ThompsonState"
    with pytest.raises(ParameterError, match="did you mean 'thompson'"):
        parse_policy("glr-cucb", {"index": "tompson"})
    with pytest.raises(
        ParameterError, match="index must be the name of an index policy, got 'random'"
    ):
        parse_policy("glr-cucb", {"index": "random"})
    with pytest.raises(ParameterError, match="index must be the state of an index policy"):
        restarting.restart_on_change(state, state.detector, alpha=0.0)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)
