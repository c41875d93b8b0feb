"""What the server does with arrivals, by hand-worked numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freshband.federated.algorithms import Arrivals, build_algorithm
from freshband.federated.algorithms.average import Average
from freshband.federated.algorithms.eager import Eager
from freshband.federated.algorithms.fedasync import FedAsync
from freshband.federated.algorithms.fedavg import FedAvg
from freshband.federated.algorithms.fedbuff import FedBuff
from freshband.federated.algorithms.renorm import Renorm

NAMES = ("renorm", "fedavg", "fedasync", "fedbuff")
NOTHING = float("nan")  # what rows of clients that did not get through may hold


def arrivals(
    delivered: list[bool],
    updates: list[list[float]],
    *,
    models: list[list[float]] | None = None,
    staleness: list[int] | None = None,
    weights: list[float] | None = None,
) -> Arrivals:
    m = len(delivered)
    return Arrivals(
        delivered=np.array(delivered),
        updates=torch.tensor(updates, dtype=torch.float64),
        models=torch.tensor(models if models else np.zeros((0, 2)), dtype=torch.float64),
        staleness=np.array([0] * m if staleness is None else staleness, np.int64),
        weights=np.array([1 / m] * m if weights is None else weights),
        client_lr=0.5,
    )


def start() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], dtype=torch.float64)


def test_each_name_is_its_algorithm() -> None:
    found = [build_algorithm(name) for name in NAMES]
    assert [type(each) for each in found] == [Renorm, FedAvg, FedAsync, FedBuff]
    assert [each.everybody_trains for each in found] == [False, True, False, False]
    assert [each.needs_models for each in found] == [False, False, True, False]
    assert [each.weighs_updates for each in found] == [True, True, False, False]
    assert not build_algorithm("fedavg", {"weighting": "uniform"}).weighs_updates


def test_wrappers_go_around_any_rule() -> None:
    rule = build_algorithm("fedbuff+eager+average", {"buffer_size": 3, "local_rounds": 2})
    assert rule == Average(rule=Eager(rule=FedBuff(buffer_size=3), local_rounds=2))
    assert rule.training_rounds == 2
    assert build_algorithm("average").training_rounds == 1


@pytest.mark.parametrize("name", ["renorm", "fedavg"])
def test_the_weighted_mean_of_what_arrived(name: Any) -> None:
    algorithm = build_algorithm(name, {"server_lr": 2.0})
    model, memory = start(), algorithm.start(start())
    got = arrivals(
        [True, False, True],
        [[1.0, 0.0], [NOTHING, NOTHING], [0.0, 3.0]],
        staleness=[4, -1, 0],
        weights=[0.6, 0.2, 0.2],
    )
    steps, passed = algorithm.apply(model, memory, got)
    # 2 × 0.5 × (0.6, 0.2) / 0.8
    assert steps == pytest.approx([0.75, 0, 0.25], abs=1e-15)
    assert model.tolist() == pytest.approx([1 - 0.75, 2 - 0.75], abs=1e-15)
    assert passed == 1


@pytest.mark.parametrize(
    ("rule", "expected"), [("mean_one", [0.45, 0, 0.15]), ("uniform", [0.25, 0, 0.25])]
)
def test_other_weightings(rule: Any, expected: list[float]) -> None:
    got = arrivals([True, False, True], [[1, 0], [9, 9], [0, 1]], weights=[0.6, 0.2, 0.2])
    model = start()
    steps, _ = build_algorithm(rule).apply(model, (), got)
    assert steps == pytest.approx(expected)
    assert model.tolist() == pytest.approx([1 - expected[0], 2 - expected[2]])
    model = start()
    steps, _ = FedAvg(weighting=rule).apply(model, (), got)
    assert steps == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({"staleness": "polynomial", "staleness_a": 0.5}, [0.6, 0.3]),
        ({"staleness": "hinge", "staleness_a": 1.0, "staleness_b": 1.0}, [0.6, 0.2]),
        ({"staleness": "constant"}, [0.6, 0.6]),
    ],
)
def test_fedasync_mixes_models_in_one_after_another(
    options: dict[str, Any], shares: list[float]
) -> None:
    got = arrivals(
        [True, False, True],
        [[NOTHING, NOTHING]] * 3,  # it goes by models
        models=[[11.0, 2.0], [NOTHING, NOTHING], [1.0, -8.0]],
        staleness=[0, -1, 3],
    )
    model = start()
    steps, passed = FedAsync(mixing=0.6, **options).apply(model, (), got)
    assert steps == pytest.approx([shares[0], 0, shares[1]])
    assert passed == 1
    x = [1 + shares[0] * 10, 2.0]
    assert model.tolist() == pytest.approx([x[0] + shares[1] * (1 - x[0]), 2 - shares[1] * 10])


def test_fedbuff_steps_when_its_buffer_is_full() -> None:
    algorithm = FedBuff(buffer_size=2, staleness="constant", server_lr=2.0)
    model, memory = start(), algorithm.start(start())
    one = arrivals([False, True, False], [[NOTHING] * 2, [1.0, 0.0], [NOTHING] * 2])
    steps, passed = algorithm.apply(model, memory, one)
    assert (steps.tolist(), passed, model.tolist()) == ([0, 0.5, 0], 0, [1, 2])
    assert (memory.buffered.tolist(), memory.buffer.tolist()) == ([1], [1, 0])
    three = arrivals([True, True, True], [[0.0, 2.0], [4.0, 0.0], [0.0, 4.0]])
    steps, passed = algorithm.apply(model, memory, three)
    # two steps of 2 × 0.5 × mean: (1, 2) / 2 and (4, 4) / 2
    assert (steps.tolist(), passed) == ([0.5] * 3, 2)
    assert model.tolist() == [1 - 0.5 - 2, 2 - 1 - 2]
    assert (memory.buffered.tolist(), memory.buffer.tolist()) == ([0], [0, 0])


def test_fedbuff_discounts_what_is_stale() -> None:
    algorithm = FedBuff(buffer_size=2)
    model, memory = start(), algorithm.start(start())
    got = arrivals([True, True, False], [[1, 0], [0, 1], [9, 9]], staleness=[0, 3, -1])
    steps, _ = algorithm.apply(model, memory, got)
    assert steps == pytest.approx([0.25, 0.125, 0])
    assert model.tolist() == pytest.approx([0.75, 1.875])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(0, 20))
def test_an_average_weighs_models_by_how_late_they_came(moves: list[float], recency: int) -> None:
    algorithm = Average(rule=Renorm(), recency=recency)
    model, memory = start(), algorithm.start(start())
    models = []
    for move in moves:
        algorithm.apply(model, memory, arrivals([True, False, False], [[move, -move]] * 3))
        models.append(model.numpy().copy())
    # weight of model s after t: ∏ (r - 1) / (r + k) over the later ones, times (k + 1) / (s + k)
    later, expected = 1.0, np.zeros(2)
    for s in range(len(models), 0, -1):
        expected += later * (recency + 1) / (recency + s) * models[s - 1]
        later *= (s - 1) / (recency + s)
    assert later == 0  # the weights sum to 1: the first model's start is forgotten
    assert algorithm.serve(model, memory).numpy() == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_recency_0_is_the_mean_of_all_models() -> None:
    algorithm = Average(rule=Renorm(), recency=0)
    model, memory = start(), algorithm.start(start())
    for _ in range(3):  # to 0, -1, -2 in the first place
        algorithm.apply(model, memory, arrivals([True, False, False], [[2.0, 0.0]] * 3))
    assert algorithm.serve(model, memory).tolist() == pytest.approx([-1, 2])


@pytest.mark.parametrize("name", NAMES)
def test_who_averages_moves_the_model_as_without(name: str) -> None:
    options = {"buffer_size": 2} if name == "fedbuff" else {}
    plain, averaged = (build_algorithm(text, options) for text in (name, f"{name}+average"))
    assert averaged.everybody_trains == plain.everybody_trains
    assert averaged.needs_models == plain.needs_models
    assert averaged.weighs_updates == plain.weighs_updates
    (first, first_memory), (second, second_memory) = (
        (start(), rule.start(start())) for rule in (plain, averaged)
    )
    for change in (1.0, -3.0, 2.0):
        rows = [[change, 2.0], [NOTHING] * 2, [0.5, change]]
        got = arrivals([True, False, True], rows, models=rows, staleness=[0, -1, 2])
        steps, passed = plain.apply(first, first_memory, got)
        others, too = averaged.apply(second, second_memory, got)
        assert (others.tolist(), too) == (steps.tolist(), passed)
        assert second.tolist() == first.tolist()
    assert plain.serve(first, first_memory) is first
    assert averaged.serve(second, second_memory).tolist() != second.tolist()
