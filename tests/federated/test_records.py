"""What a round leaves behind, against a replay of its outcomes."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from freshband import Coordinator
from freshband.aoi import age_variance, ages_of
from freshband.channels import open_air
from freshband.federated import Dataset, Partition
from tests.federated.playing import DEAD, KINDS, every_kind, play, tiny


@every_kind
def test_a_replay_of_the_outcomes_gives_the_record(kind: str) -> None:
    settings = tiny(rounds=30, **KINDS[kind])
    reject = {(4, 0), (5, 0), (9, 2), (10, 1), (17, 3)}
    records, model = play(
        settings, alter_update=lambda t, client, update: "" if (t, client) in reject else None
    )
    size, valued = 8 * len(model), settings.contribution_rule is not None
    coordinator = Coordinator(
        settings.build_policy(), 4, 6, settings.seed, run=settings.run, horizon=settings.rounds
    )
    air = open_air(settings.build_channels(), settings.rounds, settings.seed, settings.run)
    ages = ages_of(np.array([record.delivered for record in records]))
    receivers, contributions = np.ones(4, bool), np.ones(4)
    downloaded, version, buffered = np.zeros(4, int), 0, 0
    for t, record in enumerate(records):
        # steps 1 and 2: from who got through before, what it takes to train
        everybody = settings.algorithm == "fedavg"
        receivers = np.ones(4, bool) if everybody else receivers
        downloaded[receivers] = version
        assert record.trained == receivers.sum()
        assert record.bytes_down == receivers.sum() * (size + 8 * valued)
        assert record.bytes_up == 4 * (size + 8 * valued)
        # step 3: the plan, and what the air made of it
        wanted = coordinator.policy.needs_contributions
        plan = coordinator.plan(contributions if wanted else None)
        assert record.assignment.tolist() == plan.tolist()
        priorities = coordinator.priorities
        np.testing.assert_array_equal(
            record.priorities, np.full(4, np.nan) if priorities is None else priorities
        )
        good = air.block(1).states[0][plan] == 1
        assert (record.delivered | record.refused).tolist() == good.tolist()
        asked = [(t + 1, client) in reject for client in range(4)]
        assert record.refused.tolist() == (good & asked).tolist()
        alarm = coordinator.observe(good & ~record.refused, teaches=~record.refused)
        assert record.alarm == (-1 if alarm is None else alarm)
        np.testing.assert_array_equal(record.channel_means, coordinator.channel_means)
        # step 4: ages and staleness
        np.testing.assert_array_equal(record.ages, ages[t])
        np.testing.assert_array_equal(record.ages, coordinator.ages)
        assert record.variance == age_variance(ages[t])
        expected = np.where(record.delivered, version - downloaded, -1)
        np.testing.assert_array_equal(record.staleness, expected)
        if settings.algorithm == "fedbuff":
            buffered += int(record.delivered.sum())
            version, buffered = version + buffered // 3, buffered % 3
        else:
            version += 1
        assert ((record.steps != 0) <= record.delivered).all()
        receivers = record.delivered | record.refused
        contributions = record.contributions
    assert {(r.round, c) for r in records for c in np.flatnonzero(r.refused)} <= reject
    assert sum(record.refused.sum() for record in records) >= 2


@every_kind
def test_weights_are_shares(kind: str) -> None:
    settings = tiny(**KINDS[kind])
    before = None
    for record in play(settings)[0]:
        assert record.weights.sum() == pytest.approx(1, abs=1e-12)
        assert (record.weights >= 0).all()
        if before is not None and settings.weights == "contribution":
            worth = before.contributions
            shares = worth / worth.sum() if worth.any() else np.full(4, 0.25)
            np.testing.assert_allclose(record.weights, shares, rtol=1e-12)
        elif settings.weights == "equal":
            assert record.weights.tolist() == [0.25] * 4
        before = record


def test_priorities_are_equations_36_to_40() -> None:
    printed = {"beta": 0.6, "norm_window": None}
    records, _ = play(tiny(matching="priority", policy_options=printed, rounds=30))
    ages, worth = np.ones(4), np.ones(4)
    most_spread = oldest = 0.0
    spreads = 0
    for record in records:
        spread = ((ages - ages.mean()) ** 2).sum()  # (37)
        most_spread, oldest = max(most_spread, spread), max(oldest, ages.max())
        beta = 0.6 * (spread / most_spread if most_spread else 0.0)  # (36), (40)
        shares = worth / worth.sum() if worth.any() else np.full(4, 0.25)
        expected = (1 - beta) * shares + beta * ages / oldest  # (39), (38)
        np.testing.assert_allclose(record.priorities, expected, rtol=1e-12)
        spreads += 0 < beta < 0.6
        ages, worth = record.ages, record.contributions
    assert spreads > 5


def test_the_test_set_is_looked_at_now_and_then_and_at_the_end() -> None:
    every, often = play(tiny(eval_every=1))[0], play(tiny(eval_every=5))[0]
    for record, same in zip(often, every, strict=True):
        looked = record.round in (5, 10, 12)
        assert np.isfinite(record.accuracy) == looked == np.isfinite(record.loss)
        assert np.isfinite(record.client_accuracy).all() == looked
        skipped = ("accuracy", "loss", "client_accuracy", "accuracy_spread")
        blank = {name: getattr(same, name) for name in skipped}
        assert dataclasses.replace(record, **blank).same_as(same)
        assert not looked or record.same_as(same)


def test_accuracy_of_a_client_weighs_classes_as_it_holds_them() -> None:
    """Class 2 is absent from the test set, client 1 holds nothing else."""
    x = torch.tensor([-1.0, 1.0, 0.0, -1.0, 1.0, 0.0, 0.0]).reshape(-1, 1, 1, 1)
    y = torch.tensor([0, 1, 2, 0, 1, 2, 2])
    data = Dataset.of(x, y, x[[0, 1, 3, 4]], torch.tensor([0, 1, 0, 0]), n_classes=3)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(1, 3))
    with torch.no_grad():  # says 0 below the mean and 1 above, at first
        linear[1].weight.copy_(torch.tensor([[-1.0], [1.0], [0.0]]))
        linear[1].bias.copy_(torch.tensor([0.0, 0.0, -9.0]))
    held = Partition(train=[[0, 3, 1], [2, 5]], val=[[4], [6]])
    settings = tiny(clients=2, rounds=1, model=None, model_options={}, batch_size=1, **DEAD)
    record = play(settings, dataset=data, model=linear, partition=held)[0][0]
    # class 0: two of three right, class 1: its one; client 0 holds two of each
    assert record.accuracy == 0.75
    assert record.client_accuracy[0] == pytest.approx((2 / 3 + 1) / 2)
    assert np.isnan(record.client_accuracy[1])


def test_a_record_cannot_be_changed_and_is_json() -> None:
    record = play(tiny(rounds=1, eval_every=2, **KINDS["priority"]))[0][0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.round = 2  # type: ignore[misc]
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[0] = 0
    read = json.loads(record.to_json())
    fields = {field.name for field in dataclasses.fields(record)}
    assert set(read) == fields - {"expected_ages", "present", "too_long"}  # of fleets and attacks
    assert read["delivered"] == record.delivered.tolist()
    assert read["contributions"] == record.contributions.tolist()
    blank = play(tiny(rounds=2, eval_every=2))[0][0]
    assert json.loads(blank.to_json())["accuracy"] is None
    assert not record.same_as(blank)
    assert record.same_as(dataclasses.replace(record, seconds=-1.0))
    assert not record.same_as(dataclasses.replace(record, loss=0.5))
