"""What the server does with arrivals, by hand-worked numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freshband.federated import Training
from freshband.federated.algorithms import (
    Arrivals,
    Averaged,
    FedAsync,
    FedBuff,
    WeightedMean,
    build_algorithm,
    served_model,
)

NAMES: tuple[Any, ...] = ("async", "fedavg", "fedasync", "fedbuff")
NOTHING = float("nan")  # what rows of clients that did not get through may hold


def settings(**changes: Any) -> Training:
    return Training(**{"clients": 3, "client_lr": 0.5, "scheduler": "random", **changes})


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
    )


def start() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], dtype=torch.float64)


def test_each_name_is_its_algorithm() -> None:
    found = [build_algorithm(settings(algorithm=name)) for name in NAMES]
    assert [type(each) for each in found] == [WeightedMean, WeightedMean, FedAsync, FedBuff]
    assert [each.everybody_trains for each in found] == [False, True, False, False]
    assert [each.needs_models for each in found] == [False, False, True, False]


@pytest.mark.parametrize("name", ["async", "fedavg"])
def test_the_weighted_mean_of_what_arrived(name: Any) -> None:
    algorithm = build_algorithm(settings(algorithm=name, server_lr=2.0))
    model, memory = start(), algorithm.open_memory(start())
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
def test_other_rules_of_aggregation_are_passed_on(rule: Any, expected: list[float]) -> None:
    got = arrivals([True, False, True], [[1, 0], [9, 9], [0, 1]], weights=[0.6, 0.2, 0.2])
    model = start()
    steps, _ = WeightedMean(settings(aggregation=rule)).apply(model, {}, got)
    assert steps == pytest.approx(expected)
    assert model.tolist() == pytest.approx([1 - expected[0], 2 - expected[2]])


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
    chosen = settings(algorithm="fedasync", mixing=0.6, **options)
    steps, passed = FedAsync(chosen).apply(model, {}, got)
    assert steps == pytest.approx([shares[0], 0, shares[1]])
    assert passed == 1
    x = [1 + shares[0] * 10, 2.0]
    assert model.tolist() == pytest.approx([x[0] + shares[1] * (1 - x[0]), 2 - shares[1] * 10])


def test_fedbuff_steps_when_its_buffer_is_full() -> None:
    chosen = settings(algorithm="fedbuff", buffer_size=2, staleness="constant", server_lr=2.0)
    algorithm = FedBuff(chosen)
    model, memory = start(), algorithm.open_memory(start())
    one = arrivals([False, True, False], [[NOTHING] * 2, [1.0, 0.0], [NOTHING] * 2])
    steps, passed = algorithm.apply(model, memory, one)
    assert (steps.tolist(), passed, model.tolist()) == ([0, 0.5, 0], 0, [1, 2])
    assert (int(memory["buffered"]), memory["buffer"].tolist()) == (1, [1, 0])
    three = arrivals([True, True, True], [[0.0, 2.0], [4.0, 0.0], [0.0, 4.0]])
    steps, passed = algorithm.apply(model, memory, three)
    # two steps of 2 × 0.5 × mean: (1, 2) / 2 and (4, 4) / 2
    assert (steps.tolist(), passed) == ([0.5] * 3, 2)
    assert model.tolist() == [1 - 0.5 - 2, 2 - 1 - 2]
    assert (int(memory["buffered"]), memory["buffer"].tolist()) == (0, [0, 0])


def test_fedbuff_discounts_what_is_stale() -> None:
    algorithm = FedBuff(settings(algorithm="fedbuff", buffer_size=2))
    model, memory = start(), algorithm.open_memory(start())
    got = arrivals([True, True, False], [[1, 0], [0, 1], [9, 9]], staleness=[0, 3, -1])
    steps, _ = algorithm.apply(model, memory, got)
    assert steps == pytest.approx([0.25, 0.125, 0])
    assert model.tolist() == pytest.approx([0.75, 1.875])


@pytest.mark.parametrize("name", ["async", "fedavg", "fedasync", "fedbuff"])
def test_nothing_arrived(name: Any) -> None:
    own = {"buffer_size": 1} if name == "fedbuff" else {}
    algorithm = build_algorithm(settings(algorithm=name, **own))
    model, memory = start(), algorithm.open_memory(start())
    rows = [[NOTHING] * 2] * 3
    got = arrivals([False] * 3, rows, models=rows, staleness=[-1] * 3)
    steps, passed = algorithm.apply(model, memory, got)
    assert model.tolist() == [1, 2]
    assert steps.tolist() == [0, 0, 0]
    assert passed == (0 if name == "fedbuff" else 1)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(0, 20))
def test_an_average_weighs_models_by_how_late_they_came(moves: list[float], recency: int) -> None:
    algorithm = Averaged(WeightedMean(settings()), recency)
    model, memory = start(), algorithm.open_memory(start())
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
    assert served_model(model, memory).numpy() == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_recency_0_is_the_mean_of_all_models() -> None:
    algorithm = Averaged(WeightedMean(settings()), recency=0)
    model, memory = start(), algorithm.open_memory(start())
    for _ in range(3):  # to 0, -1, -2 in the first place
        algorithm.apply(model, memory, arrivals([True, False, False], [[2.0, 0.0]] * 3))
    assert served_model(model, memory).tolist() == pytest.approx([-1, 2])


@pytest.mark.parametrize("name", NAMES)
def test_who_averages_moves_the_model_as_without(name: Any) -> None:
    chosen = {"algorithm": name, **({"buffer_size": 2} if name == "fedbuff" else {})}
    plain, averaged = (build_algorithm(settings(**chosen, served=s)) for s in ("last", "average"))
    assert isinstance(averaged, Averaged)
    assert averaged.everybody_trains == plain.everybody_trains
    assert averaged.needs_models == plain.needs_models
    (first, first_memory), (second, second_memory) = (
        (start(), rule.open_memory(start())) for rule in (plain, averaged)
    )
    for change in (1.0, -3.0, 2.0):
        rows = [[change, 2.0], [NOTHING] * 2, [0.5, change]]
        got = arrivals([True, False, True], rows, models=rows, staleness=[0, -1, 2])
        steps, passed = plain.apply(first, first_memory, got)
        others, too = averaged.apply(second, second_memory, got)
        assert (others.tolist(), too) == (steps.tolist(), passed)
        assert second.tolist() == first.tolist()
    assert served_model(first, first_memory) is first
    assert served_model(second, second_memory).tolist() != second.tolist()
