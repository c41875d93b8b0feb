"""Models of any arrays over Flower: no shape, no type and no number is lost on the way."""

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy
from torch import nn

from freshband.errors import FileError, ParameterError
from freshband.federated import Training
from freshband.flower import (
    DeadlineUplink,
    SimulatedUplink,
    StrategyAggregation,
    build_rounds,
    channel_mod,
)
from freshband.flower._wire import to_arrays, to_record
from freshband.flower.template.task import Task
from tests.flower.playground import Playground

CLIENTS = 3
SMALL = {"clients": CLIENTS, "rounds": 8, "seed": 3, "scheduler": "random"}
MODEL = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "double": np.array([1.0, 2.0]),
    "half": np.array([0.5, 64.0], np.float16),
    "wave": np.array([1j, 2.0], np.complex64),
    "scalar": np.array(1.0, np.float32),
    "half-scalar": np.array(2.0, np.float16),
    "empty": np.zeros((0, 3), np.float32),
    "empty-counts": np.zeros(0, np.int64),
    "seen": np.array(0, np.int64),
    "counts": np.array([[10], [20]], np.int32),
    "bytes": np.array([7, 100], np.uint8),
    "mask": np.array([True, False, False, True]),
    "flag": np.array(False),
}


def went(name: str, client: int) -> float:
    """Return what a client adds to every number of an array: no digit of a half is lost."""
    kind = MODEL[name].dtype.kind
    return {"f": 0.25, "c": 0.25j, "i": 5, "u": 3, "b": 0}[kind] * (1 + client * (kind in "fc"))


def votes(client: int) -> dict[str, np.ndarray]:
    """Return the truth values of a client: true of all, one, two and none of three."""
    return {
        "mask": np.array([True, client == 0, client < 2, False]),
        "flag": np.array(client > 0),
    }


def counting_client(*mods) -> ClientApp:
    """Return a client that goes the same way from whatever it is given."""
    app = ClientApp(mods=[*mods, channel_mod()])

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        given = {name: array.numpy() for name, array in message.content["arrays"].items()}
        ways = {name: np.asarray(went(name, client), a.dtype) for name, a in given.items()}
        made = {name: np.asarray(given[name] + ways[name]) for name in given} | votes(client)
        content = {
            "arrays": ArrayRecord({name: Array(made[name]) for name in given}),
            "metrics": MetricRecord({"num-examples": 10}),
        }
        return Message(RecordDict(content), reply_to=message)

    return app


def play(arrays=MODEL, app=None, config=SMALL, **options):
    model = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    grid = Playground(app or counting_client(), config["clients"])
    options = {"aggregation": StrategyAggregation(strategy.FedAvg()), **options}
    return build_rounds(Training(**config), grid, model, wait_for_clients=2.0, **options)


def assert_kinds(model, arrays=MODEL):
    for name, array in arrays.items():
        assert isinstance(model[name], np.ndarray), name
        assert (model[name].shape, model[name].dtype) == (array.shape, array.dtype), name


def assert_moved(model, expected):
    """Halves lose no digit here, counters none anywhere."""
    for name, array in expected.items():
        digits = 1e-5 if MODEL[name].dtype.kind in "fc" and "half" not in name else 0.0
        np.testing.assert_allclose(model[name], array, digits, err_msg=name)


def test_a_record_keeps_shape_type_and_bits():
    kept = {"turned": np.arange(6.0).reshape(2, 3).T, "step": np.arange(9)[::4], **MODEL}
    again = to_arrays(to_record(kept))
    assert list(again) == list(kept)
    assert_kinds(again, kept)
    for name, array in kept.items():
        np.testing.assert_array_equal(again[name], array)


def test_every_array_is_averaged_with_nobody_late():
    rounds = play(uplink=DeadlineUplink(n_channels=5, deadline=60.0))
    numbers = {name: array for name, array in MODEL.items() if array.dtype.kind != "b"}
    ways = {name: np.mean([went(name, client) for client in range(CLIENTS)]) for name in numbers}
    for record in rounds:
        assert record.delivered.all()
        assert_kinds(rounds.model)
        assert rounds.model["mask"].tolist() == [True, False, True, False]  # the majority
        assert rounds.model["flag"].tolist() is True
        assert_moved(rounds.model, {n: a + ways[n] * record.round for n, a in numbers.items()})


def test_every_array_is_averaged_however_stale():
    """Clients always go the same way, so the model goes their mean way from where it is."""
    rounds = play(config={**SMALL, "rounds": 20})
    expected = {name: array for name, array in MODEL.items() if array.dtype.kind != "b"}
    stale = 0
    for record in rounds:
        assert not record.refused.any()
        stale = max(stale, record.staleness.max())
        heard = np.flatnonzero(record.delivered)
        for name in expected if len(heard) else ():
            expected[name] = expected[name] + np.mean([went(name, client) for client in heard])
        assert_kinds(rounds.model)
        assert_moved(rounds.model, expected)
    assert stale > 1


STRATEGIES = {
    "FedAvg": {}, "FedAvgM": {"server_momentum": 0.5}, "FedAdam": {}, "FedYogi": {},
    "FedAdagrad": {}, "FedMedian": {}, "FedTrimmedAvg": {}, "Krum": {},
}  # fmt: skip


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_takes_them_and_resumes(name, tmp_path):
    """Nobody is refused, and a run that was killed is the one never killed."""

    def start(**options):
        made = getattr(strategy, name)(**STRATEGIES[name])
        return play(aggregation=StrategyAggregation(made), **options)

    whole = start()
    for record in whole:
        assert not record.refused.any()
        assert_kinds(whole.model)
    killed = start(checkpoint=tmp_path)
    for _ in range(5):
        killed.step()
    again = start(checkpoint=tmp_path)
    assert (again.round, len(list(again))) == (5, 3)
    for part, array in whole.model.items():
        np.testing.assert_array_equal(again.model[part], array, err_msg=part)


def test_a_checkpoint_of_another_type_is_refused(tmp_path):
    """Its model would be handed out, and everybody's update refused."""
    list(play(checkpoint=tmp_path))
    other = {**MODEL, "half": MODEL["half"].astype(np.float32)}
    with pytest.raises(FileError, match="'half' is float16, not float32"):
        play(other, checkpoint=tmp_path)


class Reshaping(strategy.FedAvg):
    """A strategy that turns 0-d arrays into others, as numpy's `ascontiguousarray` does."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        held = {name: np.atleast_1d(array.numpy()) for name, array in arrays.items()}
        return ArrayRecord({name: Array(array) for name, array in held.items()}), metrics


def test_a_strategy_that_returns_other_shapes_is_refused():
    rounds = play(aggregation=StrategyAggregation(Reshaping()))
    with pytest.raises(ParameterError, match=r"'scalar' with the shape \(\), got \(1,\)"):
        list(rounds)


def test_a_model_of_anything_but_numbers_is_refused():
    for array in (np.array(["w"]), np.zeros(2, "V2")):  # bfloat16 arrives as two raw bytes
        with pytest.raises(ParameterError, match="'odd' is"):
            play({**MODEL, "odd": array})


def test_numbers_that_are_not_finite_are_refused_in_every_type():
    for name in ("weight", "double", "half", "half-scalar", "wave"):

        def spoil(message, context, call_next, name=name):
            reply = call_next(message, context)
            if "arrays" in reply.content:
                array = reply.content["arrays"][name].numpy()
                array[...] = np.nan
                reply.content["arrays"][name] = Array(array)
            return reply

        uplink = DeadlineUplink(n_channels=5, deadline=60.0)
        assert play(app=counting_client(spoil), uplink=uplink).step().refused.all(), name


def test_numbers_too_large_to_add_up_are_refused():
    """Each is finite, the length of the update is not: one client would end the training."""

    def spoil(message, context, call_next):
        reply = call_next(message, context)
        if "arrays" in reply.content and context.node_config["partition-id"] == 1:
            reply.content["arrays"]["w"] = Array(np.full(600, 1e30, np.float32))
        return reply

    uplink = DeadlineUplink(n_channels=5, deadline=60.0)
    rounds = play(ONLY, going_client(0.5, mods=[spoil]), aggregation=None, uplink=uplink)
    assert rounds.step().refused.tolist() == [False, True, False]
    assert np.abs(rounds.model["w"]).max() < 2.0


def test_freshbands_own_rules_take_one_floating_type():
    with pytest.raises(ParameterError, match="one floating-point type"):
        play(aggregation=None)
    with pytest.raises(ParameterError, match="one floating-point type"):
        play(config={**SMALL, "matching": "priority"})


HALF = {"w": np.linspace(-1, 1, 600).astype(np.float16), "b": np.array(0.5, np.float16)}
ONLY = {name: array.astype(np.float32) for name, array in HALF.items()}


def going_client(step, measure_error=None, mods=()) -> ClientApp:
    """Return a client that goes ``step`` in a direction of its own."""
    app = ClientApp(mods=[*mods, channel_mod(measure_error=measure_error)])

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        given = {name: array.numpy() for name, array in message.content["arrays"].items()}
        made = {
            name: np.asarray(a + step * np.cos((1 + client) * np.arange(a.size).reshape(a.shape)))
            for name, a in given.items()
        }
        arrays = {name: Array(a.astype(given[name].dtype)) for name, a in made.items()}
        content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    return app


def test_a_long_way_in_half_precision_is_shortened_and_not_undone():
    """The square of its length is beyond what a half can hold."""
    moved = {}
    for name, model in (("half", HALF), ("single", ONLY)):
        rounds = play(model, going_client(20.0), {**SMALL, "clip_norm": 2.0})
        list(rounds)
        moved[name] = np.concatenate([(rounds.model[n] - model[n]).ravel() for n in model])
    assert np.linalg.norm(moved["single"]) > 2.0
    np.testing.assert_allclose(moved["half"], moved["single"], atol=0.01)


@pytest.mark.parametrize(
    "more", [{}, {"algorithm": "fedbuff", "buffer_size": 2}, {"served": "average"}], ids=str
)
def test_half_precision_is_valued_and_applied_as_single_precision(more, tmp_path):
    """Gradients of this length have squares that no half can hold."""
    config = {**SMALL, "matching": "priority", "weights": "contribution", **more}

    def start(model, **options):
        app = going_client(4.0, measure_error=lambda arrays, context: 0.5)
        return play(model, app, config, aggregation=None, **options)

    half, single = start(HALF, checkpoint=tmp_path), start(ONLY)
    for mine, other in zip(half, single, strict=True):
        for name in ("contributions", "weights", "steps", "delivered"):
            np.testing.assert_allclose(getattr(mine, name), getattr(other, name), atol=2e-3)
    assert len(set(mine.contributions)) == CLIENTS
    assert_kinds(half.model, HALF)
    served = to_arrays(half.arrays)
    for name, array in to_arrays(single.arrays).items():
        np.testing.assert_allclose(served[name], array, atol=0.05, err_msg=name)
    again = start(HALF, checkpoint=tmp_path)
    assert_kinds(again.model, HALF)
    assert to_arrays(again.arrays)["w"].tolist() == served["w"].tolist()


def test_the_model_without_a_client_has_its_arrays():
    """Equation (42) on the client's side, for arrays of every shape and precision."""
    seen = []

    def measure(arrays, context):
        seen.append((context.node_config["partition-id"], to_arrays(arrays)))
        return 0.5

    config = {**SMALL, "matching": "priority", "channels": "stationary",
              "channel_options": {"means": [1.0] * 5}}  # fmt: skip
    rounds = play(HALF, going_client(0.5, measure), config, aggregation=None)
    for _ in range(2):
        before = {name: array.astype(np.float64) for name, array in rounds.model.items()}
        rounds.step()
    starts, zeta = HALF, 1 / CLIENTS
    for client, rest in seen[CLIENTS:]:
        assert_kinds(rest, HALF)
        for name, start in starts.items():
            waves = np.cos((1 + client) * np.arange(start.size).reshape(start.shape))
            own = (start + 0.5 * waves).astype(np.float16).astype(np.float64)
            expected = (before[name] - zeta * own) / (1 - zeta)
            np.testing.assert_allclose(rest[name], expected, atol=2e-3, err_msg=name)
    assert len(seen) == 2 * CLIENTS


class Plain(DeadlineUplink):
    """An uplink that answers with what it was given, an array of truth values."""

    def acknowledge(self, round, assignment, arrived):
        return arrived


def test_an_uplink_may_answer_with_an_array():
    record = play(uplink=Plain(n_channels=5, deadline=60.0)).step()
    assert record.delivered.all()
    assert record.ages.tolist() == [1] * CLIENTS


def way(step, client):
    """Return where `going_client` goes with every training, from wherever it is."""
    return step * np.cos((1 + client) * np.arange(600))


def test_a_client_that_is_not_heard_goes_on_from_what_it_kept():
    """Over a real link nobody but the client has the update that waits."""
    uplink = DeadlineUplink(n_channels=5, deadline=0.3)
    config = {**SMALL, "local_rounds": 2}
    rounds = play(ONLY, going_client(0.5), config, aggregation=None, uplink=uplink)
    rounds.grid.holds = lambda client, order: client == 0 and order["task"] == "train"
    first, second = rounds.step(), rounds.step()
    assert first.delivered.tolist() == [False, True, True]
    assert (second.delivered.tolist(), second.trained) == ([True] * 3, 3)
    orders = [order for client, order in rounds.grid.log if client == 0 and order["round"]]
    assert [(order["task"], order["further"]) for order in orders] == [
        ("train", False), ("resend", True),
    ]  # fmt: skip
    went = [way(0.5, client) for client in range(3)]
    expected = ONLY["w"] + (went[1] + went[2]) / 2 + (2 * went[0] + went[1] + went[2]) / 3
    np.testing.assert_allclose(rounds.model["w"], expected, atol=1e-5)


@pytest.mark.parametrize("how", ["it fails", "it never answers"])
def test_an_update_that_waits_counts_whatever_becomes_of_going_on(how):
    def fail(message, context, call_next):
        if message.content["freshband"].get("further", False):
            raise ValueError("no such thing")
        return call_next(message, context)

    played = []
    for config in (SMALL, {**SMALL, "local_rounds": 3}):
        settings = Training(**config)
        uplink = SimulatedUplink(settings.build_channels(), 8, settings.seed, deadline=0.1)
        app = going_client(0.5, mods=[fail] if how == "it fails" else [])
        rounds = play(ONLY, app, config, aggregation=None, uplink=uplink)
        if how == "it never answers":
            rounds.grid.holds = lambda client, order: order["further"]
        played.append((list(rounds), rounds.model["w"]))
    (plain, model), (eager, same) = played
    assert sum(record.trained for record in eager) > sum(record.trained for record in plain)
    for mine, other in zip(eager, plain, strict=True):
        assert mine.delivered.tolist() == other.delivered.tolist()
        assert mine.staleness.tolist() == other.staleness.tolist()
    np.testing.assert_array_equal(same, model)


class Normalised(Task):
    """Digits, with BatchNorm in the model: running statistics, and a counter that is 0-d."""

    def model(self, arrays=None):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            hidden = [nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()]
            module = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(32, 10))
        if arrays is not None:
            module.load_state_dict(arrays.to_torch_state_dict())
        return module


def test_a_model_with_batch_norm_learns_round_after_round():
    config = {**SMALL, "client_lr": 0.1, "partition": "iid"}
    task = Normalised(Training(**config))
    app = ClientApp(mods=[channel_mod()])

    @app.train()
    def train(message, context):
        module = task.model(message.content["arrays"])
        round = message.content["config"]["server-round"]
        count = task.train(module, context.node_config["partition-id"], round)
        content = {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": count}),
        }
        return Message(RecordDict(content), reply_to=message)

    initial = {name: value.numpy() for name, value in task.model().state_dict().items()}
    rounds = play(initial, app, config, evaluate=lambda t, arrays: task.examine(task.model(arrays)))
    records = list(rounds)
    assert not any(record.refused.any() for record in records)
    counts = [int(rounds.model["2.num_batches_tracked"])]
    assert counts == [5 * sum(record.delivered.any() for record in records)]
    assert records[-1].accuracy > 0.85  # 0.1 where nothing is taken after the first round
