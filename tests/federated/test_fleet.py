"""Training with any fleet, held against a slow and obvious replay of its rounds."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from freshband import Coordinator, simulate
from freshband.channels import links_differ, open_air
from freshband.channels.adversary import Still, react, start_reacting
from freshband.errors import ParameterError
from freshband.federated import Federation, Training
from freshband.federated.result import collect_records, counted_ages, measure_training
from freshband.fleet.conditions import SimulatedFleet, open_conditions
from freshband.fleet.options import FleetOptions
from tests.federated.playing import TINY, assert_identical, play

CROWD = {"clients": 6, "channel_options": {"means": [0.9, 0.6, 0.4]}}
LINKS = np.random.default_rng(5).uniform(0.1, 0.9, (4, 6)).round(2).tolist()
MODES: dict[str, dict[str, Any]] = {
    "crowd": CROWD,
    "cap": {"fleet": {"max_transmissions": 2}},
    "weights": {**CROWD, "fleet": {"weights": [8, 1, 1, 1, 1, 1]}},
    "links": {"policy": "bayes", "channel_options": {"means": LINKS, "per_client": True}},
    "late": {**CROWD, "fleet": {"ack_delay": 3}},
    "lost": {"fleet": {"ack_loss": 0.5}},
    "late and lost": {"fleet": {"ack_delay": 2, "ack_loss": 0.3}},
    "silent losses": {"fleet": {"ack_loss": 0.4, "silence": "loss", "max_delay": 4}},
    "churn": {"fleet": {"churn": 4.0}},
    "churn, told": {**CROWD, "fleet": {"churn": 4.0, "tells": True}},
    "churn, late": {**CROWD, "fleet": {"churn": 5.0, "ack_delay": 2}},
    "dead": {"fleet": {"dead": [1], "proof_of_life": "delivery"}},
    "outages": {"fleet": {"outages": 4.0, "tells": True}},
    "outages, untold": {**CROWD, "fleet": {"outages": 6.0, "ack_delay": 1}},
    "reactive": {"channels": "reactive", "channel_options": {"budget": 0.7}},
}
every_mode = pytest.mark.parametrize("mode", MODES)


BASE = {name: value for name, value in TINY.items() if name != "scheduler"}


def fleet_of(mode: str, **changes: Any) -> Training:
    return Training(**{**BASE, "policy": "cucb", "rounds": 25, **MODES[mode], **changes})


class Air:
    """The states that each client meets, round by round."""

    def __init__(self, settings: Training) -> None:
        self.model, self.clients = settings.build_channels(), settings.clients
        self.stream = open_air(self.model, settings.rounds, settings.seed, 0, self.clients)
        self.jammer, self.before = start_reacting(self.model), np.full(self.clients, -1)

    def lets_through(self, t: int, plan: np.ndarray) -> list[bool]:
        states, means = self.stream.block(1)
        if not isinstance(self.jammer, Still):
            react(self.jammer, t, self.before, states[0], means[0])
        self.before = plan
        links = states[0] if links_differ(self.model) else [states[0]] * self.clients
        return [k >= 0 and links[client][k] == 1 for client, k in enumerate(plan)]


def replay(settings: Training) -> Iterator[SimpleNamespace]:
    """Play the rounds without models: every update is the round in which its client got one."""
    fleet, clients = settings.build_fleet(), range(settings.clients)
    coordinator = Coordinator(
        settings.policy,
        settings.clients,
        settings.build_channels().n_channels,
        settings.seed,
        horizon=settings.rounds,
        **{name: getattr(fleet, name) for name in FleetOptions.model_fields},
    )
    air, n_channels = Air(settings), coordinator.n_channels
    lives = open_conditions(fleet, settings.clients, n_channels, settings.seed)
    works_on, last = dict.fromkeys(clients, 0), dict.fromkeys(clients, 0)
    before = np.ones(settings.clients, bool)
    ready, used = set(clients), set[tuple[int, int]]()
    reports: dict[int, list[tuple[int, int, bool, int]]] = {}  # by the round in which they arrive
    for t in range(1, settings.rounds + 1):
        here, answered, usable = (row[0].astype(bool) for row in lives.block(1))
        masks = {"present": here, "available": usable} if fleet.tells else {}
        plan = coordinator.plan(**masks)
        for client in clients:
            if here[client] and not before[client]:
                last[client] = t - 1
        before = here
        for client in [client for client in ready if here[client]]:
            works_on[client] = t
            ready.remove(client)
        good = air.lets_through(t, plan)
        new, again = [], []
        for client in clients:
            if plan[client] < 0:
                continue
            got = bool(good[client] and here[client] and usable[plan[client]])
            update = works_on[client]
            if got:
                last[client] = t
                (again if (client, update) in used else new).append(client)
                used.add((client, update))
            if answered[client] if here[client] else fleet.proof_of_life == "delivery":
                reports.setdefault(t + fleet.ack_delay, []).append((t, client, got, update))
        if fleet.ack_delay:
            coordinator.observe([None] * settings.clients)
        arrived = reports.pop(t, [])
        outcome: list[bool | None] = [None] * settings.clients
        for _, client, got, update in arrived:
            outcome[client] = got
            if got and update == works_on[client]:
                ready.add(client)
        if t > fleet.ack_delay:
            coordinator.observe(outcome, round=t - fleet.ack_delay)
        yield SimpleNamespace(
            assignment=plan,
            delivered=[client in new for client in clients],
            again=again,
            ages=[t - last[client] + 1 for client in clients],
            staleness=[t - works_on[client] if client in new else -1 for client in clients],
            expected_ages=coordinator.ages,
            present=here,
        )


@every_mode
def test_the_rounds_are_those_of_a_slow_replay(mode: str) -> None:
    settings = fleet_of(mode)
    records, _ = play(settings)
    copies = 0
    for record, wanted in zip(records, replay(settings), strict=True):
        copies += len(wanted.again)
        for name in ("assignment", "delivered", "ages", "staleness", "present"):
            found = record._get(name)
            np.testing.assert_array_equal(found, getattr(wanted, name), f"{name} {record.round}")
        if record.expected_ages is not None or record.present is None:
            np.testing.assert_allclose(record._get("expected_ages"), wanted.expected_ages)
        assert record.ages.dtype == np.int64
    sent = sum(record.delivered.sum() for record in records)
    assert sent > 10
    fleet = settings.build_fleet()
    assert (copies > 0) is (fleet.ack_delay > 0 or fleet.ack_loss > 0)  # and they count once


@every_mode
def test_a_run_that_was_saved_goes_on_bit_for_bit(mode: str) -> None:
    settings = fleet_of(mode)
    whole, model = play(settings)
    with Federation(settings) as run:
        first = [run.step() for _ in range(11)]
        tensors, facts = run.checkpoint()
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    with Federation.restore(tensors, facts) as run:
        assert_identical(first + list(run), whole)
        assert run.state.model.equal(model)


def test_clients_that_are_not_there_neither_train_nor_send() -> None:
    records, _ = play(fleet_of("churn, told"))
    for record in records:
        assert record.present is not None
        assert not record.delivered[~record.present].any()
        assert (record.assignment[~record.present] == -1).all()
        assert record.trained <= record.present.sum()
    dead = play(fleet_of("dead", rounds=40))[0]
    assert all(record.delivered[1] == 0 for record in dead)
    assert dead[-1].ages[1] == 41


def test_a_dead_client_that_says_nothing_loses_its_channel() -> None:
    settings = fleet_of("dead", fleet={"dead": [1]}, rounds=60)
    with Federation(settings) as run:
        records = list(run)
        assert run.coordinator.alive[1] < 0.5
        assert (np.delete(run.coordinator.alive, 1) > 0.99).all()
    best = [record.assignment[1] == 0 for record in records[20:]]  # channel 0 is by far the best
    assert np.mean(best) < 0.1


def test_algorithms_take_each_update_once() -> None:
    """Over perfect channels with late news, every client's update moves the model once."""
    for algorithm in ("renorm", "fedasync", "fedbuff", "fedavg", "renorm+eager"):
        options = {"means": [1.0] * 5}
        settings = fleet_of("late", clients=4, channel_options=options, algorithm=algorithm)
        records, _ = play(settings)
        fresh = sum(record.delivered[0] for record in records)
        # Each update waits 3 rounds for its acknowledgement; fedavg trains in every round.
        assert fresh == (25 if algorithm == "fedavg" else 7), algorithm
        assert all((record.ages == 1).all() for record in records)


def test_ages_count_while_clients_are_there() -> None:
    settings = fleet_of("churn")
    records, _ = play(settings)
    result = collect_records(records, settings)
    there = np.array([record.present for record in records])
    ages = np.array([record.ages for record in records])
    found = measure_training(result)
    assert float(found.mean_age) == pytest.approx(ages[there].mean())
    assert float(found.max_age) == ages[there].max()
    assert counted_ages(result).isnull().values.sum() == (~there).sum()
    assert result.expected_ages.dims == ("round", "client")


def test_a_run_without_a_fleet_has_no_new_fields() -> None:
    settings = Training(**BASE)
    result = collect_records(play(settings)[0], settings)
    assert not {"present", "expected_ages"} & set(result)
    assert result.ages.dtype == np.int64


def test_settings_of_a_fleet_are_checked_and_kept() -> None:
    settings = Training(fleet=SimulatedFleet(ack_delay=5, dead=(2,)), clients=4)
    assert settings.fleet == {"ack_delay": 5, "dead": [2]}
    again = Training.model_validate_json(settings.model_dump_json())
    assert again.build_fleet() == SimulatedFleet(ack_delay=5, dead=(2,))
    assert Training().fleet == {}
    assert Training.as_stored({"clients": 3}).build_fleet().is_plain
    for fleet, message in (
        ({"ack_dely": 1}, "did you mean 'ack_delay'"),
        ({"ack_loss": 1.5}, "ack_loss must be a number in"),
        ({"weights": [1.0, 2.0]}, "weights must be 4 finite numbers"),
        ({"dead": [4]}, "dead must name some of the clients 0 to 3"),
        (7, "fleet must be settings such as"),
    ):
        with pytest.raises(ParameterError, match=message):
            Training(clients=4, fleet=fleet)
    with pytest.raises(ParameterError, match="clients must be 4"):
        fleet_of("links", clients=3)


def test_who_learns_nothing_from_late_outcomes_is_refused() -> None:
    with pytest.raises(ParameterError, match="'m-exp3' learns nothing from outcomes that arrive l"):
        Federation(fleet_of("late", policy="m-exp3"))
    Federation(fleet_of("lost", policy="m-exp3")).close()


@pytest.mark.parametrize(
    "mode", ["crowd", "weights", "late and lost", "churn", "outages", "reactive"]
)
def test_ages_are_those_of_simulate(mode: str) -> None:
    settings = fleet_of(mode)
    records, _ = play(settings)
    weights = np.array(settings.build_fleet().weights or [1.0] * settings.clients)
    there = np.array([record._get("present") for record in records])
    ages = np.array([record.ages for record in records])
    found = simulate(
        settings.build_channels(),
        [settings.policy],
        clients=settings.clients,
        rounds=settings.rounds,
        runs=1,
        seed=settings.seed,
        fleet=settings.fleet,
        progress=False,
    )
    wanted = (ages * weights)[there].sum() / (there * weights).sum()
    assert found.mean_age.item() == pytest.approx(wanted)
