"""The loop over a grid in this process: the same run as the engine's, and what can go wrong."""

import dataclasses
import functools
import json

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

from flwr.app import Array, ArrayRecord
from flwr.serverapp import strategy

from freshband.errors import FileError, ParameterError
from freshband.federated import Federation, Training
from freshband.federated.result import collect_records, measure_training
from freshband.flower import (
    DeadlineUplink,
    StrategyAggregation,
    build_rounds,
)
from freshband.flower._wire import to_arrays
from freshband.flower.template.task import open_task
from tests.flower.playground import Playground, digits_client

SMALL = {"model": "mlp", "clients": 4, "rounds": 8, "seed": 3, "path": "threads"}
SAME = (
    "ages", "expected_ages", "present", "variance", "assignment", "delivered", "refused", "alarm",
    "staleness", "trained", "bytes_up", "bytes_down",
)  # fmt: skip
CLOSE = (
    "accuracy", "loss", "weights", "steps", "contributions", "errors", "priorities",
    "channel_means",
)  # fmt: skip


def play(config, *, change=None, holds=lambda client, order: False, on_channel=None, **options):
    settings = Training(**config)
    grid = Playground(digits_client(config, on_channel, change), settings.clients, holds)
    task = open_task(settings)
    rounds = build_rounds(
        settings,
        grid,
        ArrayRecord(task.model().state_dict()),
        sizes=task.partition.sizes,
        evaluate=lambda t, arrays: task.examine(task.model(arrays)),
        **{"wait_for_clients": 2.0, **options},
    )
    return rounds, grid


def in_one_process(**config):
    return _played(json.dumps(config))


@functools.lru_cache
def _played(config):
    with Federation(Training(**json.loads(config))) as federation:
        return list(federation), federation.module()


def assert_same(records, others):
    assert len(records) == len(others)
    for mine, other in zip(records, others, strict=True):
        for name in SAME:
            assert np.array_equal(mine._get(name), other._get(name)), (mine.round, name)
        for name in CLOSE:
            np.testing.assert_allclose(
                getattr(mine, name), getattr(other, name), rtol=2e-4, atol=2e-5, err_msg=name
            )


def assert_same_model(rounds, module):
    served = to_arrays(rounds.arrays)
    for name, weights in module.named_parameters():
        np.testing.assert_allclose(
            served[name], weights.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"weights": "size", "aggregation": "mean_one", "server_lr": 0.5},
        {"matching": "priority", "weights": "contribution"},
        {"matching": "priority", "contribution": "fedce"},
        {"algorithm": "fedasync"},
        {"algorithm": "fedbuff", "buffer_size": 3},
        {"clip_norm": 0.2, "scheduler": "random"},
        {"served": "average", "aggregation": "fixed"},
        {"algorithm": "fedavg"},
        {"algorithm": "fedavg", "matching": "priority", "weights": "contribution"},
        {"local_rounds": 3},
        {"local_rounds": 3, "served": "average", "matching": "priority", "weights": "contribution"},
        {"local_rounds": 3, "clip_norm": 0.2, "algorithm": "fedasync", "scheduler": "random"},
        {"channel_options": {"n_channels": 2}},
        {"channel_options": {"n_channels": 3}, "fleet": {"ack_delay": 2}},
        {"local_rounds": 2, "fleet": {"ack_delay": 1, "ack_loss": 0.3}},
        {"fleet": {"churn": 4.0}},
        {"channels": "reactive", "fleet": {"churn": 4.0, "tells": True}},
    ],
    ids=[
        "paper", "sizes", "priority", "fedce", "fedasync", "fedbuff", "clipped", "averaged",
        "fedavg", "fedavg-valued", "eager", "eager-valued", "eager-clipped", "crowd", "late",
        "lost", "churn", "told",
    ],
)  # fmt: skip
def test_simulated_uplink_is_the_run_of_one_process(more):
    config = {**SMALL, **more}
    rounds, _ = play(config)
    records = list(rounds)
    others, module = in_one_process(**config)
    assert_same(records, others)
    assert_same_model(rounds, module)
    assert sum(record.delivered.sum() for record in records) > 0
    stale = any((record.staleness > 0).any() for record in records)  # something was kept and sent
    assert stale is (config.get("algorithm") != "fedavg")


@pytest.mark.parametrize(
    "rule",
    [
        {"algorithm": "async"},
        {"algorithm": "fedasync"},
        {"algorithm": "fedbuff"},
        {"served": "average"},
        {"algorithm": "fedavg"},
        {"local_rounds": 3},
        {"local_rounds": 3, "served": "average"},
        {"channel_options": {"n_channels": 3}, "fleet": {"ack_delay": 2}},
        {"channels": "reactive", "fleet": {"ack_loss": 0.4, "churn": 4.0}},
    ],
    ids=lambda rule: "-".join(map(str, rule.values())),
)
def test_killed_and_resumed_is_the_run_never_killed(rule, tmp_path):
    """Whatever the round it is killed in, updates that wait to be delivered are the same."""
    config = {**SMALL, "rounds": 5, **rule}
    others, module = in_one_process(**config)
    waiting = 0
    for killed in range(1, 5):
        folder = tmp_path / str(killed)
        rounds, _ = play(config, checkpoint=folder, checkpoint_every=killed)
        for _ in range(killed):
            rounds.step()
        waiting += len(rounds.held)
        if 1 < killed < 4:
            rounds.step()  # a round that was not saved is lost with the process
        again, _ = play(config, checkpoint=folder)
        assert again.round == killed
        assert_same([*again.records, *again], others)
        assert_same_model(again, module)
        assert again.scheduler_seconds[:killed] == rounds.scheduler_seconds[:killed]
        assert len(again.scheduler_seconds) == len(others)
    assert waiting > 0


@pytest.mark.parametrize(
    "more",
    [{"weights": "contribution"}, {"contribution": "fedce"}],
    ids=["paper", "fedce"],
)
def test_resumed_contributions_are_those_of_the_run_never_killed(more, tmp_path):
    """What every client is worth, and all it was computed from, is in the checkpoint."""
    config = {**SMALL, "matching": "priority", **more}
    rounds, _ = play(config, checkpoint=tmp_path)
    for record in rounds:
        if record.round == 5:
            break
    again, _ = play(config, checkpoint=tmp_path)
    before, after = (run.server.valuation.to_tensors() for run in (rounds, again))
    before = {name.removeprefix("arrays."): tensor.numpy() for name, tensor in before.items()}
    after = {name.removeprefix("arrays."): tensor.numpy() for name, tensor in after.items()}
    assert before.keys() == after.keys() >= {"gradients", "errors", "heard", "contributions"}
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)
    assert before["heard"].any()
    assert len(set(before["contributions"])) > 1  # not those of a fresh start
    assert np.array_equal(rounds.server.state.weights, again.server.state.weights)
    # From here on errors may differ: a new run of Flower's has lost the clients' own models.
    mine, other = again.step(), rounds.step()
    assert np.array_equal(mine.priorities, other.priorities)
    assert np.array_equal(mine.assignment, other.assignment)


def test_a_checkpoint_of_another_problem_is_refused(tmp_path):
    rounds, _ = play({**SMALL, "rounds": 3}, checkpoint=tmp_path)
    list(rounds)
    with pytest.raises(FileError, match="seed"):
        play({**SMALL, "rounds": 3, "seed": 4}, checkpoint=tmp_path)


def spoil(reply, how):
    record = next(iter(reply.content.array_records.values()))
    name = next(iter(record))
    array = record[name].numpy().copy()
    if how == "nan":
        array[:] = np.nan
    elif how == "shape":
        array = array[..., :1]
    elif how == "type":
        array = array.astype(np.int32)
    elif how == "bytes":
        record[name] = Array(str(array.dtype), array.shape, "numpy.ndarray", b"not numpy")
        return reply
    elif how == "long":
        array = np.full_like(array, 1e4)
    elif how == "missing":
        del record[name]
        return reply
    record[name] = Array(array)
    return reply


@pytest.mark.parametrize("how", ["nan", "shape", "type", "bytes", "missing", "long"])
def test_what_cannot_be_an_update_is_refused(how):
    def change(client, round, reply):
        return spoil(reply, how) if client == 1 else reply

    rounds, _ = play(SMALL, change=change)
    records = list(rounds)
    assert any(record.refused[1] for record in records)
    assert not any(record.delivered[1] for record in records)
    assert not any(record.refused[[0, 2, 3]].any() for record in records)
    assert all(np.isfinite(array).all() for array in rounds.model.values())
    assert any(record.too_long is not None for record in records) is (how == "long")
    assert records[-1].ages[1] == 1 + len(records)
    assert sum(record.delivered.sum() for record in records) > 0


@pytest.mark.parametrize(
    "rule", ["median", "trimmed", "bounded", "fedavg", "fedbuff", "fedasync", "renorm+eager", None]
)
def test_a_long_update_is_refused_by_every_rule(rule):
    """None is a strategy of Flower's."""

    def change(client, round, reply):
        return spoil(reply, "long") if client == 1 else reply

    chosen = {} if rule is None else {"algorithm": rule}
    own = {"aggregation": StrategyAggregation(strategy.FedAvg())} if rule is None else {}
    rounds, _ = play({**SMALL, **chosen}, change=change, **own)
    records = list(rounds)
    measures = measure_training(collect_records(records, Training(**SMALL)))
    assert int(measures.too_long) == int(measures.refused) > 0
    assert not any(record.delivered[1] for record in records)
    assert all(np.abs(array).max() < 10 for array in rounds.model.values())
    assert records[-1].loss < records[0].loss


def test_a_client_that_raises_is_unknown_and_gets_the_next_model():
    seen = []

    def change(client, round, reply):
        if client == 2 and round <= 3:
            seen.append(round)
            raise ValueError("no such thing")
        return reply

    rounds, _ = play(SMALL, change=change)
    outcomes = []
    coordinator = rounds.server.coordinator
    observe = coordinator.observe

    def watched(outcome, *, teaches, **more):
        outcomes.append((outcome[2], teaches[2]))
        return observe(outcome, teaches=teaches, **more)

    coordinator.observe = watched
    records = list(rounds)
    assert seen == [1, 2, 3]
    assert outcomes[:3] == [(0, False)] * 3  # lost, which says nothing about the channel
    assert any(record.delivered[2] for record in records[3:])


def test_a_late_answer_is_a_pending_update_and_counts_once():
    uplink = DeadlineUplink(n_channels=6, deadline=0.1, resends=False)
    rounds, grid = play({**SMALL, "rounds": 4}, uplink=uplink)
    grid.holds = lambda client, order: client == 0 and order["round"] == 1 and rounds.round == 0
    records = [rounds.step() for _ in range(4)]
    first = [record.delivered[0] for record in records]
    assert not first[0]
    assert sum(record.delivered[0] and record.staleness[0] > 0 for record in records) == 1
    trained = [order for client, order in grid.log if client == 0 and order["task"] == "train"]
    assert len(trained) == sum(first) + (not first[-1])  # never two orders at a time


def test_an_overdue_client_sends_again_on_a_new_channel():
    heard = []
    uplink = DeadlineUplink(n_channels=6, deadline=0.2)
    rounds, grid = play(
        {**SMALL, "rounds": 3},
        holds=lambda client, order: client == 0 and order["task"] == "train",
        uplink=uplink,
        on_channel=lambda channel, context: heard.append(
            (context.node_config["partition-id"], channel)
        ),
    )
    records = list(rounds)
    assert [bool(record.delivered[0]) for record in records] == [False, True, False]
    assert records[1].staleness[0] == 1
    again = [order for client, order in grid.log if order["task"] == "resend"]
    assert [order["round"] for order in again] == [1]
    assert (0, int(records[1].assignment[0])) in heard
    for record in records:
        assert {(1, int(record.assignment[1]))} <= set(heard)


def test_an_order_nobody_answers_is_given_up():
    uplink = DeadlineUplink(n_channels=6, deadline=0.1, resends=False)
    rounds, _ = play(
        {**SMALL, "rounds": 5},
        holds=lambda client, order: client == 3 and order["round"] == 1,
        uplink=uplink,
        ttl=0.15,
    )
    records = list(rounds)
    assert not records[0].delivered[3]
    assert any(record.delivered[3] for record in records)


def test_a_node_that_leaves_is_unknown_and_comes_back():
    uplink = DeadlineUplink(n_channels=6, deadline=0.1)
    rounds, grid = play({**SMALL, "rounds": 6}, uplink=uplink)
    rounds.step()
    grid.absent.add(101)
    away = [rounds.step() for _ in range(2)]
    grid.absent.clear()
    back = [rounds.step() for _ in range(3)]
    assert not any(record.delivered[1] for record in away)
    assert back[-1].delivered[1]
    for record in away:  # it holds no channel, and the others go on
        assert record.present.tolist() == [True, False, True, True]
        assert record.assignment[1] == -1
        assert record.delivered[[0, 2, 3]].all()
    assert back[-1].present is None


def test_a_node_that_comes_later_takes_part():
    uplink = DeadlineUplink(n_channels=6, deadline=0.1)
    rounds, grid = play({**SMALL, "rounds": 5}, uplink=uplink, wait_for_clients=0.0)
    grid.absent.add(103)
    early = [rounds.step() for _ in range(2)]
    grid.absent.clear()
    later = [rounds.step() for _ in range(3)]
    assert all(record.assignment[3] == -1 and not record.delivered[3] for record in early)
    assert early[-1].ages[3] == 3
    assert any(record.delivered[3] for record in later)
    assert later[-1].ages[3] <= 2


def test_clients_without_a_channel_keep_their_update_until_they_have_one():
    channels = {}
    uplink = DeadlineUplink(n_channels=2, deadline=5.0)
    rounds, grid = play(
        {**SMALL, "rounds": 6},
        uplink=uplink,
        on_channel=lambda channel, context: channels.setdefault(
            (context.node_config["partition-id"], rounds.round), channel
        ),
    )
    records = list(rounds)
    for record in records:
        assert (record.assignment >= 0).sum() == 2
        assert record.delivered.tolist() == (record.assignment >= 0).tolist()
    assert (np.sum([record.delivered for record in records], axis=0) == 3).all()
    stale = np.array([record.staleness for record in records])
    assert stale.max() == 1  # a client that waits trains once, and sends when it has a channel
    tasks = [order["task"] for client, order in grid.log if client == 3 and order["round"]]
    assert tasks.count("resend") == (stale[:, 3] > 0).sum() > 0
    assert all(-1 <= channel < 2 for channel in channels.values())


def test_an_answer_that_comes_later_is_observed_with_its_round():
    late = {**SMALL, "rounds": 6, "fleet": {"silence": "loss", "max_delay": 3}}
    uplink = DeadlineUplink(n_channels=6, deadline=0.1, resends=False, patient=True)
    rounds, grid = play(late, uplink=uplink, ttl=600.0)
    grid.holds = lambda client, order: client == 0 and order["round"] == 1 and rounds.round < 2
    news = []
    coordinator = rounds.server.coordinator
    observe = coordinator.observe

    def watched(outcome, **more):
        if "clients" in more:
            news.append((outcome, more))
        return observe(outcome, **more)

    coordinator.observe = watched
    records = [rounds.step() for _ in range(6)]
    assert not records[0].delivered[0]
    assert 1 < records[0].expected_ages[0] < 2  # not lost yet, and not delivered
    assert records[2].delivered[0]
    assert records[2].staleness[0] == 2
    assert records[2].ages[0] == 3  # it was sent in round 1
    assert news == [([True], {"round": 1, "clients": [0], "teaches": [True]})]
    assert sum(record.delivered[0] for record in records) == 4


@pytest.mark.parametrize("name", ["FedAvg", "FedAdam", "FedProx", "Krum"])
def test_any_strategy_aggregates(name, tmp_path):
    def wrapped():
        return StrategyAggregation(getattr(strategy, name)())

    rounds, _ = play({**SMALL, "rounds": 6}, aggregation=wrapped(), checkpoint=tmp_path)
    records = list(rounds)
    assert all(np.isfinite(array).all() for array in rounds.model.values())
    assert records[-1].round == 6
    resumed, _ = play({**SMALL, "rounds": 6}, aggregation=wrapped(), checkpoint=tmp_path)
    assert resumed.round == 6
    before, after = rounds.aggregation.memory(), resumed.aggregation.memory()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_fedavg_of_equal_clients_is_the_papers_rule():
    config = {**SMALL, "rounds": 6}
    wrapped = StrategyAggregation(strategy.FedAvg(), examples="equal")
    rounds, _ = play(config, aggregation=wrapped)
    records = list(rounds)
    others, module = in_one_process(**config)
    assert_same_model(rounds, module)
    for mine, other in zip(records, others, strict=True):
        assert np.array_equal(mine.ages, other.ages)


def test_who_lies_about_examples_counts_as_one():
    def change(client, round, reply):
        reply.content["metrics"]["num-examples"] = -5.0
        return reply

    wrapped = StrategyAggregation(strategy.FedAvg())
    rounds, _ = play({**SMALL, "rounds": 3}, aggregation=wrapped, change=change)
    list(rounds)
    assert all(np.isfinite(array).all() for array in rounds.model.values())


def test_what_does_not_fit_together_is_refused():
    real = DeadlineUplink(n_channels=3, deadline=1.0)
    with pytest.raises(ParameterError, match="ack_delay is for simulated channels, got 2"):
        play({**SMALL, "fleet": {"ack_delay": 2}}, uplink=real)
    with pytest.raises(ParameterError, match="global_minus"):
        play({**SMALL, "matching": "priority", "loo": "buffer"})
    wanting = StrategyAggregation(strategy.FedAvg(min_available_nodes=5))
    rounds, _ = play(SMALL, aggregation=wanting)
    with pytest.raises(ParameterError, match="5 nodes"):
        rounds.step()


def test_a_record_is_complete():
    rounds, _ = play({**SMALL, "rounds": 3})
    record = rounds.step()
    told = {field.name for field in dataclasses.fields(record)} - {
        "expected_ages", "present", "too_long"
    }  # fmt: skip
    assert set(json.loads(record.to_json())) == told
    assert len(rounds.scheduler_seconds) == 1
    assert 0.0 < rounds.scheduler_seconds[0] < record.seconds
