"""The round: against a slow version of it, by hand, and what must always hold."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freshband.federated import Dataset, Federation, Partition, RoundRecord, Training, load_dataset
from freshband.federated.algorithms.fedavg import _WEIGHTINGS
from freshband.federated.batches import Batches
from freshband.federated.clients._base import ParameterLayout, TrainingJob
from tests.federated.playing import (
    DEAD,
    KINDS,
    PERFECT,
    assert_close,
    every_kind,
    every_path,
    named,
    play,
    tiny,
)
from tests.reference.federated import SlowFederation, weights_of

# ------------------------------------------------------------------------------ the slow version


def assert_plays_like_the_slow_one(settings: Training, **objects: Any) -> list[RoundRecord]:
    slow, records = SlowFederation(settings, **objects), []
    with Federation(settings, **objects) as run:
        for record in run:
            expected = slow.step()
            assert_close(record, expected, 1e-10)
            found = named(run, run.state.model)
            for name, values in slow.model.items():
                assert (found[name] - values).abs().max() <= 1e-10, f"{name}, {record.round}"
            records.append(record)
    assert sum(record.delivered.sum() for record in records) > settings.rounds
    return records


@pytest.mark.parametrize("weights", ["equal", "size", "contribution"])
@pytest.mark.parametrize("rule", _WEIGHTINGS)
def test_async_is_the_slow_round(rule: Any, weights: Any) -> None:
    more: dict[str, Any] = {"server_lr": 0.2 if rule == "literal" else 0.9}
    if rule == "uniform":  # then weights are those of contributions alone
        more["contribution"] = "paper"
    records = assert_plays_like_the_slow_one(tiny(aggregation=rule, weights=weights, **more))
    assert any(record.staleness.max() > 0 for record in records)


def test_with_a_part_held_out_the_test_set_does_not_matter() -> None:
    settings = tiny(held_out=0.2)
    records = assert_plays_like_the_slow_one(settings)
    whole = load_dataset(settings.dataset, seed=settings.seed, **settings.dataset_options)
    other = dataclasses.replace(whole, test_labels=(whole.test_labels + 1) % whole.n_classes)
    for data, share in ((other, 0.2), (whole.hold_out(0.2), 0.0)):
        again, _ = play(tiny(held_out=share), dataset=data)
        assert [one.accuracy for one in again] == [one.accuracy for one in records]
    plain, _ = play(tiny())
    assert [one.accuracy for one in plain] != [one.accuracy for one in records]


@pytest.mark.parametrize("weights", ["equal", "contribution"])
@pytest.mark.parametrize("beta", [1.0, 0.4])
@pytest.mark.parametrize("how", ["paper", "fedce", "literal", "buffer"])
def test_contributions_are_the_slow_ones(how: str, beta: float, weights: Any) -> None:
    rule = {"contribution": how} if how in ("paper", "fedce") else {"loo": how}
    records = assert_plays_like_the_slow_one(
        tiny(
            matching="priority",
            weights=weights,
            policy_options={"beta": beta, "norm_window": 5},
            **rule,
        )
    )
    assert any(len(set(record.contributions.round(9))) > 2 for record in records[4:])
    assert (records[-1].errors < 1).any()  # 1 is what nobody measured


@pytest.mark.parametrize("cold_start", ["mean", "max", "zero"])
@pytest.mark.parametrize("loo", ["global_minus", "buffer"])
def test_clients_never_heard_are_the_slow_ones(cold_start: Any, loo: Any) -> None:
    channels = {"channel_options": {"means": [0.4] * 4}}
    records = assert_plays_like_the_slow_one(
        tiny(weights="contribution", cold_start=cold_start, loo=loo, seed=45, **channels)
    )
    heard = np.logical_or.accumulate([record.delivered for record in records])
    assert not heard[:3].all()
    assert heard[0].sum() == 1  # then there is no rest to compare with


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "fedasync", "staleness": "polynomial", "staleness_a": 0.7},
        {"algorithm": "fedasync", "staleness": "hinge", "staleness_a": 2.0, "staleness_b": 1.0},
        {"algorithm": "fedasync", "staleness": "constant", "mixing": 0.9},
        {"algorithm": "fedasync", "matching": "priority", "clip_norm": 0.3},
        {"algorithm": "fedbuff", "buffer_size": 2},
        {"algorithm": "fedbuff", "buffer_size": 7, "staleness": "hinge", "staleness_b": 0.0},
        {"algorithm": "fedbuff", "buffer_size": 1, "server_lr": 0.5},
        {"algorithm": "fedbuff", "contribution": "paper", "weights": "contribution"},
        {"algorithm": "fedavg"},
        {"algorithm": "fedavg", "weights": "contribution", "aggregation": "mean_one"},
        {"clip_norm": 0.2, "weights": "contribution"},
        {"length_limit": 1.2, "rounds": 30},
        {"length_limit": 1.1, "clip_norm": 0.2, "algorithm": "fedasync"},
        {"path": "threads", "matching": "priority", "error_samples": 3},
        {"local_rounds": 2},
        {"local_rounds": 3, "matching": "priority", "weights": "size", "path": "stacked"},
        {"local_rounds": 100, "algorithm": "fedasync", "clip_norm": 0.3},
    ],
    ids=str,
)
def test_other_algorithms_and_options_are_the_slow_ones(options: dict[str, Any]) -> None:
    assert_plays_like_the_slow_one(tiny(**options))


@every_path
def test_a_convolution_is_the_slow_one(path: Any) -> None:
    shape = {"shape": (2, 4, 4), "n_classes": 3, "n_train": 120, "n_test": 30}
    assert_plays_like_the_slow_one(
        tiny(
            model="small-cnn", model_options={"widths": (2, 3)}, dataset_options=shape, path=path,
            matching="priority", weights="contribution", client_lr=0.1,
        )
    )  # fmt: skip


def test_altered_updates_are_the_slow_ones() -> None:
    """Client 1 lies, client 2 sends what no model can take."""
    factors = {0: 1.0, 1: -0.5, 2: float("nan"), 3: 1.0}

    def alter(t: int, client: int, update: Any) -> Any:
        if t % 3 == 0:
            return None  # leave it
        if isinstance(update, dict):
            return {name: alter(t, client, values) for name, values in update.items()}
        return update * factors[client]

    records = assert_plays_like_the_slow_one(
        tiny(matching="priority", weights="contribution", rounds=20), alter_update=alter
    )
    refused = np.array([record.refused for record in records])
    assert refused.any(axis=0).tolist() == [False, False, True, False]


# ------------------------------------------------------------------------------ perfect channels


@pytest.mark.parametrize("algorithm", ["async", "fedavg"])
@every_path
def test_perfect_channels_make_it_plain_fedavg(algorithm: Any, path: Any) -> None:
    settings = tiny(algorithm=algorithm, path=path, **PERFECT)
    with Federation(settings) as run:
        data, held = run.dataset, run.partition.train
        server = copy.deepcopy(run.module()).double()
        batches = Batches(settings.seed, settings.run, settings.local_steps, settings.batch_size)
        for record in run:
            models = []
            for client in range(settings.clients):
                model = copy.deepcopy(server)
                optimiser = torch.optim.SGD(model.parameters(), lr=settings.client_lr)
                for some in batches.draw(held[client], round=record.round, client=client):
                    optimiser.zero_grad()
                    scores = model(data.normalise(data.train_images[some]).double())
                    nn.functional.cross_entropy(scores, data.train_labels[some]).backward()
                    optimiser.step()
                models.append(weights_of(model))
            mean = {name: sum(model[name] for model in models) / len(models) for name in models[0]}
            server.load_state_dict(mean)
            for name, values in named(run, run.state.model).items():
                assert (values - mean[name]).abs().max() <= 1e-12
            assert record.delivered.all()
            assert record.staleness.tolist() == [0] * 4
            assert record.ages.tolist() == [1] * 4


# ------------------------------------------------------------------------------ who trains, keeps


@every_kind
def test_only_who_got_through_trains_and_others_keep_their_update(kind: str) -> None:
    settings = tiny(**KINDS[kind])
    with Federation(settings) as run:
        trains = np.ones(settings.clients, bool)  # S_0 is everybody
        waited = 0
        for _ in range(settings.rounds):
            before = run.pending.updates.clone()
            record = run.step()
            assert record.trained == trains.sum()
            for client, updated in enumerate(trains):
                same = torch.equal(run.pending.updates[client], before[client])
                assert same is not bool(updated)
            trains = record.delivered if settings.algorithm != "fedavg" else trains
            waited += int((~trains).sum())
        assert waited or settings.algorithm == "fedavg"


@every_kind
def test_nothing_delivered_changes_nothing(kind: str) -> None:
    settings = tiny(**KINDS[kind], **DEAD)
    with Federation(settings) as run:
        start = run.state.model.clone()
        records = list(run)
        assert torch.equal(run.state.model, start)
    for t, record in enumerate(records, 1):
        assert not record.delivered.any()
        assert not record.steps.any()
        assert (record.staleness == -1).all()
        assert (record.ages == t + 1).all()
        assert record.trained == (4 if t == 1 or settings.algorithm == "fedavg" else 0)
        assert record.accuracy == records[0].accuracy
        valued = settings.contribution_rule is not None
        assert np.array_equal(
            record.contributions, np.full(4, 1.0 if valued else np.nan), equal_nan=True
        )
        assert record.weights.tolist() == [0.25] * 4


@pytest.mark.parametrize("kind", ["async", "priority", "fedasync"])
def test_staleness_is_the_age_before_the_round_less_one(kind: str) -> None:
    channels = {"channel_options": {"means": [0.4, 0.4, 0.3, 0.3]}}
    records, _ = play(tiny(rounds=40, **channels, **KINDS[kind]))
    ages = np.ones(4, np.int64)
    for record in records:
        expected = np.where(record.delivered, ages - 1, -1)
        assert record.staleness.tolist() == expected.tolist()
        ages = record.ages
    assert max(record.staleness.max() for record in records) >= 3


# ------------------------------------------------------------------------------ by hand


def test_contributions_by_hand() -> None:
    """Two clients, two parameters: everything can be computed on paper.

    A sample is 1 or -1 and the model scores it (w_0 x, w_1 x): it says class 0 where w_0 x is the
    larger. Client 0 has one of its four validation samples labelled the other way, client 1 three.
    """
    x = torch.tensor([1.0, -1.0] * 6).reshape(-1, 1, 1, 1)
    y = torch.tensor([0, 1] * 6)
    y[[3]] = 0  # client 0 validates on 0 … 3, client 1 on 4 … 7
    y[[4, 5, 6]] = torch.tensor([1, 0, 1])
    data = Dataset.of(x, y, x, y)
    held = Partition(train=[[8, 9], [10, 11]], val=[[0, 1, 2, 3], [4, 5, 6, 7]])
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0], [-1.0]]))
    gradients = torch.tensor([[4.0, 0.0], [0.0, -2.0]], dtype=torch.float64)
    settings = tiny(
        clients=2, rounds=3, client_lr=1.0, model=None, model_options={}, matching="priority",
        weights="contribution", error_samples=4, channel_options={"means": [1.0, 1.0]},
    )  # fmt: skip
    with Federation(
        settings,
        dataset=data,
        model=model,
        partition=held,
        alter_update=lambda t, client, update: gradients[client],
    ) as run:
        first = run.step()
        assert first.errors.tolist() == [0.25, 0.75]  # of the first model: nobody has a part in it
        # the gradients are at right angles, so each distance is 1
        assert first.contributions == pytest.approx([0.25, 0.75], abs=1e-14)
        assert first.weights.tolist() == [0.5, 0.5]
        assert first.priorities.tolist() == [0.5, 0.5]
        # from (1, -1), the mean of (4, 0) and (0, -2) taken away
        assert run.state.model.tolist() == pytest.approx([-1, 0], abs=1e-14)
        assert run.server.valuation.models.tolist() == [
            pytest.approx([-3, -1]),
            pytest.approx([1, 1]),
        ]
        second = run.step()
        # without 0: ((-1, 0) - (-3, -1) / 4) 4/3 = (-1/3, 1/3), says the opposite
        # without 1: ((-1, 0) - (1, 1) 3/4) 4 = (-7, -3), so does this
        assert second.errors.tolist() == [0.75, 0.25]
        assert second.contributions == pytest.approx([0.75, 0.25], abs=1e-14)
        assert second.weights == pytest.approx([0.25, 0.75], abs=1e-14)
        assert second.priorities == pytest.approx([0.25, 0.75], abs=1e-14)
        # from there, a quarter of (4, 0) and three of (0, -2)
        assert run.state.model.tolist() == pytest.approx([-2, 1.5], abs=1e-14)
        third = run.step()
        assert third.weights == pytest.approx([0.75, 0.25], abs=1e-14)
        assert run.state.model.tolist() == pytest.approx([-5, 2], abs=1e-14)


def test_an_error_travels_with_the_update() -> None:
    """It is measured on receipt and known to the server only with the next success (E10)."""
    settings = tiny(matching="priority", rounds=30)
    late = 0
    with Federation(settings) as run:
        carried, known = np.ones(4), np.ones(4)
        for _ in range(settings.rounds):
            receivers = run.state.receivers.copy()
            record = run.step()
            now = run.pending.errors
            assert np.array_equal(now[~receivers], carried[~receivers])
            known = np.where(record.delivered, now, known)
            assert record.errors.tolist() == known.tolist()
            late += int((now != known).sum())
            carried = now.copy()
    assert late


def test_the_average_is_examined_and_handed_out_and_training_is_the_same() -> None:
    plain, averaged = (Federation(tiny(rounds=6, served=served)) for served in ("last", "average"))
    with plain, averaged:
        mean = plain.state.model.clone()
        for t, (one, other) in enumerate(zip(plain, averaged, strict=True), start=1):
            mean.lerp_(plain.state.model, 17 / (16 + t))
            assert torch.equal(averaged.state.model, plain.state.model)
            assert other.delivered.tolist() == one.delivered.tolist()
            found = averaged.clients.examine(mean)
            assert other.loss == found.loss
        assert other.loss != one.loss
        handed_out = ParameterLayout(averaged.module()).read(averaged.module())
        assert torch.equal(handed_out, mean.to(handed_out))


@every_path
def test_who_is_not_heard_goes_on_from_where_it_is_so_many_rounds(path: Any) -> None:
    """On dead air the pending update is that of one long local training."""
    with Federation(tiny(**DEAD, rounds=5, local_rounds=3, path=path)) as run:
        start, trained, held = run.state.model.clone(), [], []
        for record in run:
            trained.append(record.trained)
            held.append(run.pending.updates.clone())
            assert record.bytes_down == (0 if record.round > 1 else record.bytes_up)
        draw, own = run._batches.draw, run.partition.train
        batches = [
            np.concatenate([draw(own[m], round=t, client=m) for t in (1, 2, 3)]) for m in range(4)
        ]
        longest = torch.empty_like(held[-1])
        run.clients.train(
            [TrainingJob(start, batch, row) for batch, row in zip(batches, longest, strict=True)],
            0.3,
        )
    assert trained == [4, 4, 4, 0, 0]
    assert torch.allclose(held[2], longest, rtol=0, atol=1e-12)
    assert torch.equal(held[4], held[2])
    assert not torch.equal(held[1], held[0])
