"""Links that differ from client to client, and clients left without a channel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import freshband
from freshband import Coordinator
from freshband._policy import parse_policy
from freshband.aoi import ages_of
from freshband.matching._assignment import assign
from freshband.matching.base import match, match_links, pairs_ranks
from freshband.matching.base import registry as matchings
from freshband.parameters import Parameters
from freshband.ranking import draw_subset
from freshband.schedulers.base import means, score, select, update
from freshband.schedulers.base import registry as schedulers
from tests import test_contract as contract
from tests.playing import (
    AIR,
    CLIENTS,
    PLAIN,
    SCHEDULERS,
    assert_fleet_steps_are_the_same,
    draw,
    play,
)
from tests.reference import matching as slow


class LinksState(NamedTuple):
    """Successes and trials of every link."""

    wins: NDArray[np.float64]  # (M, N)
    tries: NDArray[np.float64]  # (M, N)
    deck: NDArray[np.int64]  # (N,)


@select.register(LinksState)
def _select(scheduler: LinksState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    draw_subset(scheduler.deck, rng, chosen)


@score.register(LinksState)
def _score(scheduler: LinksState, t: int, scores: Any) -> None:
    for j in range(scores.shape[0]):
        for channel in range(scores.shape[1]):
            tries = scheduler.tries[j, channel]
            scores[j, channel] = (1.0 + scheduler.wins[j, channel]) / (2.0 + tries)


@means.register(LinksState)
def _means(scheduler: LinksState, out: Any) -> None:
    for channel in range(len(out)):
        out[channel] = (1 + scheduler.wins[:, channel].sum()) / (
            2 + scheduler.tries[:, channel].sum()
        )


@update.register(LinksState)
def _update(scheduler: LinksState, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    for j in range(len(assignment)):
        if outcome[j] >= 0:  # who has no channel has no outcome
            scheduler.wins[j, assignment[j]] += outcome[j]
            scheduler.tries[j, assignment[j]] += 1
    return -1


class Links(Parameters):
    """Random channels, ranked for each client by what that client heard."""

    client_scores: ClassVar[bool] = True

    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> LinksState:
        zeros = np.zeros((n_clients, n_channels))
        return LinksState(zeros, zeros.copy(), np.arange(n_channels))


class SparingState(NamedTuple):
    """Nothing to remember."""

    unused: NDArray[np.int64]  # (1,)


@match.register(SparingState)
def _match(
    matching: SparingState,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    """Clients take turns in keeping silent, and in every seventh round all of them do."""
    for j in range(len(chosen)):
        if t % len(chosen) != j and t % 7 != 0:
            assignment[j] = chosen[j]


class Sparing(Parameters):
    def start(self, n_clients: int, lot: int = 0) -> SparingState:
        return SparingState(np.zeros(1, np.int64))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register for these tests only: contract tests go over everything that is registered."""
    schedulers.register("links")(Links)
    matchings.register("sparing")(Sparing)
    yield
    del schedulers._things["links"], matchings._things["sparing"]


# ------------------------------------------------------------------------ the assignment problem


@st.composite
def problems(draw: Any, most: int = 5) -> tuple[Any, Any, list[int]]:
    n_channels = draw(st.integers(1, most))
    n_clients = draw(st.integers(1, n_channels))
    urgency = draw(
        st.lists(st.floats(0, 30) | st.just(6.0), min_size=n_clients, max_size=n_clients)
    )
    entries = st.sampled_from((0.0, 0.5, 1.0)) | st.floats(-1, 1)
    scores = draw(
        st.lists(
            st.lists(entries, min_size=n_channels, max_size=n_channels),
            min_size=n_clients,
            max_size=n_clients,
        )
    )
    n_chosen = draw(st.integers(n_clients, n_channels))
    return urgency, scores, draw(st.permutations(range(n_channels)))[:n_chosen]


def assigned(urgency: Any, scores: Any, channels: Any, clients: Any = None) -> list[int]:
    assignment = np.full(len(urgency), -1)
    order = np.arange(len(urgency)) if clients is None else np.array(clients)
    links = np.array(urgency), np.array(scores)
    assign(*links, order, np.array(channels), len(order), assignment)
    plan: list[int] = assignment.tolist()
    return plan


def weight(urgency: Any, scores: Any, plan: Any) -> float:
    return float(sum(u * row[k] for u, row, k in zip(urgency, scores, plan, strict=True)))


@given(problems(), st.randoms(use_true_random=False))
def test_no_other_assignment_weighs_more(problem: Any, random: Any) -> None:
    urgency, scores, channels = problem
    clients = random.sample(range(len(urgency)), len(urgency))
    plan = assigned(urgency, scores, channels, clients)
    assert len(set(plan)) == len(plan)
    assert set(plan) <= set(channels)
    best = slow.most_weight_over_links(urgency, scores, clients, channels, len(clients))
    assert weight(urgency, scores, plan) == pytest.approx(best, abs=1e-9)


def test_scores_that_are_no_numbers_end_all_the_same() -> None:
    scores = [[np.inf, 0.5, -np.inf], [np.inf, 0.1, np.nan], [np.nan, np.inf, -np.inf]]
    assert sorted(assigned([1.0, 2.0, 3.0], scores, [0, 1, 2])) == [0, 1, 2]
    assert assigned([1.0, 1.0], [[np.inf, 0.5], [0.4, 0.5]], [0, 1]) == [0, 1]
    assert assigned([1.0, 1.0], [[np.nan, 0.5], [0.4, 0.5]], [0, 1]) == [1, 0]


def matched(name: str, scores: Any, ages: Any, priorities: Any = None, t: int = 1) -> list[int]:
    n_clients = len(ages)
    assignment = np.full(n_clients, -1)
    worth = np.zeros(n_clients) if priorities is None else np.array(priorities)
    state, rng = matchings[name]().start(n_clients), np.random.default_rng(0)
    chosen = np.arange(n_clients)[::-1].copy()
    if len(scores) == 1:
        match(state, t, chosen, np.array(scores), np.array(ages), worth, rng, assignment)
    else:
        match_links(
            state, t, chosen, np.array(scores), np.array(ages), worth, n_clients, rng, assignment
        )
    plan: list[int] = assignment.tolist()
    return plan


@given(problems(), st.integers(1, 1000))
def test_age_and_priority_solve_it(problem: Any, t: int) -> None:
    urgency, scores, _ = problem
    ages = [1 + int(each) for each in urgency]
    channels = range(len(ages))
    plan = matched("age", scores, ages, t=t)
    pressing = [a * (a + 1) for a in ages]
    best = slow.most_weight_over_links(pressing, scores, channels, channels, len(ages))
    assert weight(pressing, scores, plan) == pytest.approx(best, abs=1e-9)
    worth = [each / (1 + sum(urgency)) for each in urgency]  # with equal ages these decide
    total = sum(worth)
    shares = [each / total if total > 0 else 1 / len(worth) for each in worth]
    plan = matched("priority", scores, [3] * len(ages), worth, t=t)
    best = slow.most_weight_over_links(shares, scores, channels, channels, len(ages))
    assert weight(shares, scores, plan) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("name", ["age", "priority", "rotate", "fixed", "random"])
def test_equal_links_are_matched_as_one_shared_row_is(name: str) -> None:
    rng = np.random.default_rng(4)
    for t in range(1, 60):
        ages, row = rng.permutation(9)[:5] + 1, rng.random(5)
        worth = rng.random(5)
        shared = matched(name, [row], ages, worth, t)
        assert matched(name, [row] * 5, ages, worth, t) == shared


# ------------------------------------------------------------------------ the round, everywhere


@pytest.mark.parametrize("policy", ["links", "links+sparing", "links+aa+sparing"])
def test_fused_equals_stepwise_equals_plain_python(policy: str, tmp_path: Path) -> None:
    assert_fleet_steps_are_the_same(policy, tmp_path)


def test_a_saved_run_continues_identically(tmp_path: Path) -> None:
    contract.test_a_saved_run_continues_identically("links+sparing", True, tmp_path)


def test_links_are_learnt_apart() -> None:
    """Each client delivers on one channel of its own, which no shared ranking could tell."""
    coordinator = Coordinator("links", n_clients=3, n_channels=3, seed=1)
    for _ in range(60):
        plan = coordinator.plan()
        coordinator.observe(plan == [2, 0, 1])
    assert coordinator.plan().tolist() == [2, 0, 1]


def silent(rounds: int) -> NDArray[np.bool_]:
    t = np.arange(1, rounds + 1)[:, None]
    return (t % CLIENTS == np.arange(CLIENTS)) | (t % 7 == 0)


LEARNERS = [name for name in SCHEDULERS if name != "oracle"]


@pytest.mark.parametrize("scheduler", [*LEARNERS, "cucb+aa", "m-exp3+aa-sum"])
def test_who_has_no_channel_sends_nothing_and_grows_older(scheduler: str) -> None:
    air = draw(200)
    run = play(f"{scheduler}+sparing", air, engine=PLAIN)
    tally, quiet = run.tally, silent(200)
    np.testing.assert_array_equal(tally.assignment_log == -1, quiet)
    states = np.take_along_axis(air.states, tally.assignment_log, axis=1).astype(np.int8)
    np.testing.assert_array_equal(tally.outcome_log, np.where(quiet, -1, states))
    ages = ages_of(tally.outcome_log)
    assert tally.mark[0]["age"] == ages.sum()
    np.testing.assert_array_equal(tally.delivered, ((states == 1) & ~quiet).sum(axis=0))


def test_the_learner_hears_only_those_who_sent() -> None:
    run = play("cucb+sparing", draw(200), engine=PLAIN)
    assert run.scheduler.counts.pulls.sum() == (~silent(200)).sum()


@pytest.mark.parametrize("reported", [True, False, None])
def test_what_is_reported_of_a_silent_client_is_ignored(
    reported: bool | None, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    coordinator = Coordinator("cucb+sparing", n_clients=2, n_channels=3, log=log)
    plan = coordinator.plan()
    assert plan[1] == -1
    assert plan[0] >= 0
    coordinator.observe([True, reported])
    assert coordinator.ages.tolist() == [1, 2]
    entry = json.loads(log.read_text())
    assert entry["assignment"] == plan.tolist()
    assert entry["outcome"] == [1, None]
    assert np.delete(coordinator.channel_means, plan[0]).tolist() == [0.5, 0.5]


def test_simulate_plays_both() -> None:
    result = freshband.simulate(AIR, ["links", "links+sparing"], clients=2, rounds=400, runs=2)
    heard = result.participation.sel(policy="links+sparing")
    assert float(heard.max()) < 0.5  # half of the rounds, less every seventh
    mean_age = result.mean_age.mean("run")
    assert mean_age.sel(policy="links") < mean_age.sel(policy="links+sparing")


def test_the_example_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (schedulers, matchings):
        monkeypatch.setattr(registry, "_things", dict(registry._things))
    page = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(?!--8<--)(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if "Coordinator(" in block]
    exec(compile(block, "extending.md", "exec"), {"__name__": "extending"})


# ---------------------------------------------------------------- a matching by ranks of one's own


def test_a_matching_may_pair_ranks_without_more() -> None:
    @pairs_ranks
    class LastFirstState(NamedTuple):
        clients: NDArray[np.int64]  # (M,)

    assignment = np.full(3, -1)
    match(
        LastFirstState(np.array([2, 1, 0])), 1, np.arange(3), np.array([[0.1, 0.9, 0.5]]),
        np.ones(3, np.int64), np.zeros(3), None, assignment,
    )  # fmt: skip
    assert assignment.tolist() == [0, 2, 1]


def test_shared_scores_are_the_default() -> None:
    for name in SCHEDULERS:
        assert parse_policy(name).scheduler.client_scores is False
