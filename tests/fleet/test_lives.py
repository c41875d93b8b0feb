"""Clients that fall silent: doubts, and what becomes of the channel they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshband import Coordinator

RATES = np.array([0.95, 0.6, 0.4])


def play(
    this: Coordinator, rounds: int, dead: Any = (), *, silent: Any = None, seed: int = 0
) -> Any:
    """Play over stationary channels; ``silent`` is what is observed of dead clients."""
    rng = np.random.default_rng(seed)
    plans = []
    for _ in range(rounds):
        plan = this.plan()
        plans.append(plan)
        outcome: list[bool | None] = (rng.random(len(RATES))[plan] < RATES[plan]).tolist()
        for client in dead:
            outcome[client] = silent
        this.observe(outcome)
    return np.array(plans)


@pytest.mark.parametrize("proof", ["outcome", "none"])
def test_nobody_is_doubted_while_outcomes_arrive(proof: Any) -> None:
    this = Coordinator("cucb", 3, 3, proof_of_life=proof)
    rng = np.random.default_rng(0)
    for _ in range(300):
        this.plan()
        this.observe(rng.random(3) < 0.2)  # mostly losses
        assert this.alive.tolist() == [1, 1, 1]


def test_a_dead_client_does_not_hold_the_best_channel() -> None:
    shares = {}
    for proof in ("outcome", "none"):
        this = Coordinator("cucb", 3, 3, seed=1, proof_of_life=proof, max_delay=50)  # type: ignore[arg-type]
        play(this, 100)
        plans = play(this, 300, dead=[0])[100:]
        shares[proof] = float((plans[:, 0] == 0).mean())
        if proof == "outcome":
            assert this.alive[0] < 0.1
            assert this.alive[1:].tolist() == [1, 1]
    assert shares["outcome"] < 0.1


def test_losses_of_a_dead_client_raise_doubts_where_silence_is_reported_as_loss() -> None:
    this = Coordinator("cucb", 3, 3, seed=1, proof_of_life="delivery")
    play(this, 100)
    before = this.channel_means
    plans = play(this, 200, dead=[0], silent=False)
    assert this.alive[0] < 0.1
    assert (this.alive[1:] > 0.5).all()
    assert (plans[100:, 0] == 0).mean() < 0.1
    naive = Coordinator("cucb", 3, 3, seed=1)
    play(naive, 100)
    held = play(naive, 200, dead=[0], silent=False)
    assert (held[100:, 0] == 0).mean() > 0.5  # without the rule it pins the best channel
    assert naive.alive.tolist() == [1, 1, 1]
    assert abs(this.channel_means[2] - before[2]) < 0.25  # its losses do not teach


def test_a_client_that_returns_is_noticed() -> None:
    this = Coordinator("cucb", 3, 3, seed=1)
    play(this, 100)
    play(this, 200, dead=[0])
    assert this.alive[0] < 0.1
    assert this.ages[0] > 1.5
    play(this, 20)
    assert this.alive[0] == 1
    assert this.ages[0] < 20


def test_whoever_is_said_to_be_present_is_alive() -> None:
    this = Coordinator("cucb", 3, 3, seed=1)
    play(this, 60)
    play(this, 60, dead=[0])
    assert this.alive[0] < 0.5
    this.plan(present=[True, True, True])
    assert this.alive.tolist() == [1, 1, 1]


def test_answers_that_are_always_late_raise_few_doubts() -> None:
    """How long answers take is learnt: with a delay of five rounds nobody seems dead."""
    this = Coordinator("cucb", 3, 3, seed=1)
    plans = []
    lowest = 1.0
    for t in range(1, 301):
        plans.append(this.plan())
        if t > 5:
            this.observe(plans[t - 6] != 2, round=t - 5)
        if t > 100:
            lowest = min(lowest, this.alive.min())
    assert lowest > 0.8


def test_one_lost_answer_does_not_kill() -> None:
    this = Coordinator("cucb", 3, 3, seed=1)
    play(this, 3000)
    this.plan()
    this.observe([None, True, True])
    play(this, 1, dead=[0])
    assert this.alive[0] > 0.3
    play(this, 1)
    assert this.alive[0] == 1


def test_a_loss_that_nobody_reported_proves_nothing() -> None:
    this = Coordinator("cucb", 3, 3, seed=1, silence="loss", max_delay=2)
    assert this.fleet_options.proves_life == "delivery"
    play(this, 100)
    play(this, 200, dead=[0])
    assert this.alive[0] < 0.1


def test_doubt_never_becomes_certainty() -> None:
    """Answers that come in bursts make each silence weigh much, for many rounds at once."""
    this = Coordinator("cucb", 3, 4, max_delay=240)
    for t in range(1, 200):
        this.plan()
        this.observe([True, False, None])
        for when in this.open_rounds if t in (60, 120) else []:
            this.observe([None, None, True], round=when)
    assert this.alive[2] >= 1e-150
    assert Coordinator.from_bytes(this.to_bytes()).alive[2] == this.alive[2]
