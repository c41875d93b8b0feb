"""Arrays in and out: who sends, and outcomes of those alone; what is skipped when nobody doubts."""

from __future__ import annotations

import numpy as np
import pytest

from freshband import Coordinator
from freshband.errors import ParameterError

_CLIENTS, _CHANNELS = 600, 20


def test_transmissions_are_the_plan_without_idle_clients() -> None:
    coordinator = Coordinator("cucb", _CLIENTS, _CHANNELS, seed=0)
    assert all(len(part) == 0 for part in coordinator.transmissions)
    for _ in range(3):
        plan = coordinator.plan()
        clients, channels = coordinator.transmissions
        assert sorted(clients.tolist()) == np.flatnonzero(plan >= 0).tolist()
        assert channels.tolist() == plan[clients].tolist()
        coordinator.observe(channels % 2 == 0, clients=clients)
        assert coordinator.transmissions[0].tolist() == clients.tolist()  # until the next plan
        clients[:] = channels[:] = 0
        assert len(set(coordinator.transmissions[0].tolist())) == _CHANNELS  # they were copies


@pytest.mark.parametrize("policy", ["glr-cucb", "bayes"])
def test_outcomes_of_senders_alone_teach_what_those_of_all_clients_do(policy: str) -> None:
    whole, parts = (Coordinator(policy, _CLIENTS, _CHANNELS, seed=1) for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(40):
        plan = whole.plan()
        assert parts.plan().tolist() == plan.tolist()
        outcome = rng.integers(-1, 2, _CLIENTS)
        teaches = rng.random(_CLIENTS) < 0.8
        whole.observe(outcome, teaches=teaches)
        listed = rng.permutation(np.union1d(np.flatnonzero(plan >= 0), rng.integers(0, 600, 5)))
        parts.observe(outcome[listed], clients=listed, teaches=teaches[listed])
        assert parts.ages.tolist() == whole.ages.tolist()
        assert parts.alive.tolist() == whole.alive.tolist()


def test_outcomes_of_some_senders_leave_the_others_open() -> None:
    coordinator = Coordinator("cucb", _CLIENTS, _CHANNELS, seed=2)
    coordinator.plan()
    clients, _ = coordinator.transmissions
    coordinator.observe([], clients=[])
    coordinator.observe(np.ones(5, np.bool_), clients=clients[:5], round=1)
    ages = coordinator.ages
    assert (ages[clients[:5]] == 1.0).all()
    assert ((ages[clients[5:]] > 1.0) & (ages[clients[5:]] < 2.0)).all()
    with pytest.raises(ParameterError, match="different numbers"):
        coordinator.observe([True, True], clients=[clients[7], clients[7]], round=1)
    with pytest.raises(ParameterError, match="from 0 to 599"):
        coordinator.observe([True], clients=[600], round=1)


def test_doubts_go_on_while_a_client_is_idle() -> None:
    """A client whose losses may be silence dies or returns in rounds in which it does not send."""
    coordinator = Coordinator("cucb", 6, 2, seed=0, proof_of_life="delivery")
    doubted = 0
    for t in range(1, 30):
        before = coordinator.alive
        plan = coordinator.plan()
        coordinator.observe((plan >= 0) & (np.arange(6) > 1))
        idle = (plan < 0) & (before < 1.0)
        silence = t - coordinator._fleet.doubts.heard[idle]
        expected = before[idle] * 0.999 + (1.0 - before[idle]) * 0.1 / silence
        np.testing.assert_allclose(coordinator.alive[idle], expected, rtol=1e-12)
        doubted += int(idle.sum())
        assert (coordinator.alive[2:] == 1.0).all()
    assert doubted > 10
