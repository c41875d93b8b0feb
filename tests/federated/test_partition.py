from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from freshband.errors import ParameterError, UnknownNameError
from freshband.federated.partition import Dirichlet, Partition, registry, split_samples
from freshband.federated.partition.dirichlet import _repair
from tests.federated.margins import assert_mean, listed

LABELS = np.arange(1000) % 10

every_scheme = pytest.mark.parametrize("scheme", ["dirichlet", "iid", "shards"])  # by labels

label_lists = st.lists(st.integers(0, 6), min_size=8, max_size=200)


def test_the_schemes_are_registered() -> None:
    assert registry.names() == ["column", "dirichlet", "iid", "shards"]


@every_scheme
@settings(max_examples=60)
@given(
    labels=label_lists,
    n_clients=st.integers(1, 20),
    val_fraction=st.sampled_from([0, 0.1, 0.5, 0.99]),
    seed=st.integers(0, 2**40),
    small=st.integers(1, 4),
    alpha=st.sampled_from([1e-6, 0.01, 0.5, 10.0, 1e6]),
)
def test_a_partition_is_a_partition(
    scheme: str,
    labels: list[int],
    n_clients: int,
    val_fraction: float,
    seed: int,
    small: int,
    alpha: float,
) -> None:
    params: dict[str, Any] = {
        "dirichlet": {"alpha": alpha, "min_samples": 1 + small},
        "iid": {},
        "shards": {"shards_per_client": 1 + small},
    }[scheme]
    assume(n_clients * (1 + small) <= len(labels))
    parts = split_samples(
        labels, n_clients, scheme=scheme, val_fraction=val_fraction, seed=seed, **params
    )
    together = np.concatenate([parts.held(client) for client in range(n_clients)])
    np.testing.assert_array_equal(np.sort(together), np.arange(len(labels)))
    assert parts.n_clients == n_clients
    assert (parts.sizes >= 1).all()
    for train, val in zip(parts.train, parts.val, strict=True):
        n = len(train) + len(val)
        kept = min(max(round(val_fraction * n), 1), n - 1) if val_fraction else 0
        assert len(val) == kept
        for held in (train, val):
            assert held.dtype == np.int64
            assert (np.diff(held) > 0).all()
        if scheme == "dirichlet":
            assert n >= 1 + small
    counts = parts.counts(labels)
    np.testing.assert_array_equal(counts.sum(axis=0), np.bincount(labels))


@every_scheme
def test_the_seed_decides(scheme: str) -> None:
    first, second = (split_samples(LABELS, 7, scheme=scheme, seed=3) for _ in range(2))
    assert listed(first) == listed(second)
    for other in ({"seed": 4}, {"seed": 3, "run": 1}):
        assert listed(first) != listed(split_samples(LABELS, 7, scheme=scheme, **other))


@every_scheme
def test_validation_leaves_who_holds_what_unchanged(scheme: str) -> None:
    few, many = (split_samples(LABELS, 7, scheme=scheme, val_fraction=f) for f in (0.1, 0.4))
    for client in range(7):
        np.testing.assert_array_equal(few.held(client), many.held(client))


def test_inputs_are_left_alone() -> None:
    labels = LABELS.copy()
    split_samples(labels, 5)
    np.testing.assert_array_equal(labels, LABELS)


# The Dirichlet law --------------------------------------------------------------------------------


def shares(alpha: float, n_clients: int = 5, draws: int = 200) -> npt.NDArray[np.float64]:
    """Return clients' shares of each class, without conditions on sizes, one row a class."""
    scheme, sizes = Dirichlet(alpha=alpha, min_samples=1), np.full(10, 10_000)
    found = []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        counts = scheme._counts(sizes, n_clients, rng)
        found.append(counts.T / 10_000)
    return np.concatenate(found)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 2.0, 100.0])
def test_shares_have_the_moments_of_the_dirichlet_law(alpha: float) -> None:
    m = 5
    drawn = shares(alpha, m)[:, 0]
    variance = (1 / m) * (1 - 1 / m) / (m * alpha + 1)
    assert_mean(drawn, 1 / m, math.sqrt(variance))
    squares = (drawn - 1 / m) ** 2
    assert_mean(squares, variance, float(squares.std()))


def test_a_large_alpha_is_as_good_as_equal_shares() -> None:
    labels = np.arange(20_000) % 10
    counts = split_samples(labels, 5, alpha=1e6).counts(labels)
    # A share's deviation is sqrt(0.16 / 5e6) = 1.8e-4, under half a sample of 2,000.
    assert np.abs(counts - 400).max() <= 5 * 1.8e-4 * 2000 + 1


def test_a_small_alpha_gives_each_class_to_one_client() -> None:
    drawn = shares(0.001)
    # P(no client has 99 %) is about (M − 1) α ln 99 = 1.8 %: 2,000 classes, five sigma.
    lacking = (drawn.max(axis=1) < 0.99).sum()
    expected = 2000 * 4 * 0.001 * math.log(99)
    assert lacking <= expected + 5 * math.sqrt(expected)


def test_concentration_falls_with_alpha() -> None:
    def largest(alpha: float) -> float:
        return float(shares(alpha, draws=20).max(axis=1).mean())

    found = [largest(alpha) for alpha in (0.01, 0.1, 0.5, 2.0, 100.0)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.1])
def test_repair_stops_at_the_minimum(alpha: float) -> None:
    labels = np.arange(2000) % 10
    counts = split_samples(labels, 100, alpha=alpha, min_samples=20).counts(labels)
    assert (counts.sum(axis=1) == 20).all()  # 100 × 20 = 2,000: only one way to be fair
    labels = np.arange(4000) % 10
    sizes = split_samples(labels, 100, alpha=alpha, min_samples=20).counts(labels).sum(axis=1)
    assert sizes.min() >= 20
    assert (sizes == 20).sum() > 10
    assert sizes.max() > 60


def test_repair_touches_only_the_largest_and_the_lacking() -> None:
    counts = np.array([[9, 1], [0, 4], [1, 0]])
    _repair(counts, 3)
    np.testing.assert_array_equal(counts, [[7, 1], [0, 4], [3, 0]])


# The others ---------------------------------------------------------------------------------------


def test_iid_shares_are_hypergeometric() -> None:
    labels = np.arange(1000) % 2
    counts = [
        split_samples(labels, 5, scheme="iid", seed=s).counts(labels)[0, 0] for s in range(200)
    ]
    variance = 200 * 0.25 * (1000 - 200) / (1000 - 1)
    assert_mean(counts, 100, math.sqrt(variance))


def test_iid_sizes_differ_by_one_at_most() -> None:
    parts = split_samples(np.zeros(103, np.int64), 10, scheme="iid", val_fraction=0)
    assert sorted(parts.sizes.tolist()) == [10] * 7 + [11] * 3


def test_shards_give_few_classes() -> None:
    counts = split_samples(LABELS, 50, scheme="shards").counts(LABELS)
    assert ((counts > 0).sum(axis=1) <= 2).all()
    assert (counts.sum(axis=1) == 20).all()


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 0}, r"alpha must be a number in \[1e-06, 1000000.0\], got 0"),
        ({"alpha": -1.0}, "alpha must be a number"),
        ({"alpha": float("nan")}, "alpha must be a number"),
        ({"alpha": "much"}, "alpha must be a number"),
        ({"min_samples": 0}, "min_samples must be a whole number >= 1, got 0"),
        ({"min_samples": 251}, "min_samples must be at most 250 for 4 clients and 1000 samples"),
        ({"alpa": 1}, "Dirichlet has no parameter 'alpa'; did you mean 'alpha'?"),
        ({"val_fraction": 1}, r"val_fraction must be a number in \[0, 1\), got 1"),
        ({"val_fraction": -0.1}, "val_fraction must be"),
        ({"val_fraction": True}, "val_fraction must be"),
        ({"val_fraction": float("nan")}, "val_fraction must be"),
        ({"n_clients": 0}, "n_clients must be a whole number >= 1, got 0"),
        ({"n_clients": 501}, "n_clients must be at most 500 for 1000 samples"),
        ({"n_clients": 1001, "val_fraction": 0}, "n_clients must be at most 1000"),
        ({"seed": -1}, "seed must be"),
        ({"run": -1}, "run must be"),
        ({"scheme": "shards", "shards_per_client": 251}, "shards_per_client must be at most 250"),
        ({"scheme": Dirichlet(), "alpha": 1}, "parameters need a partition given by name"),
        ({"scheme": Dirichlet}, "scheme must be a name or have a method split"),
        ({"scheme": 3}, "scheme must be a name"),
        ({"labels": []}, "labels must be a list"),
        ({"labels": [[0], [0, 1]]}, "labels must be a list of at least one whole number, got "),
        ({"labels": [0.5, 1.0] * 50}, "labels must be a list"),
        ({"labels": [[0, 1]] * 50}, "labels must be a list"),
        ({"labels": [-1, 1] * 50}, "labels must be >= 0, got -1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        split_samples(**{"labels": LABELS, "n_clients": 4, **arguments})


def test_unknown_schemes_get_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'dirichlet'"):
        split_samples(LABELS, 4, scheme="dirichelt")


class Own:
    def __init__(self, dealt: list[Any]) -> None:
        self.dealt = dealt

    def split(self, labels: Any, n_clients: int, rng: np.random.Generator) -> list[Any]:
        return [np.array(one) for one in self.dealt]


def test_a_scheme_of_ones_own_needs_no_name() -> None:
    parts = split_samples([0, 1, 0, 1], 2, scheme=Own([[0, 3], [2, 1]]))
    assert parts.held(0).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("dealt", "message"),
    [
        ([[0, 1, 2, 3]], "Own must deal to 2 clients, got 1"),
        ([[0, 1, 2], [3]], "Own must give every client at least 2, got 1"),
        ([[0, 1], [1, 2]], "Own must deal each of the 4 samples exactly once"),
        ([[0, 1], [2, 7]], "Own must deal each of the 4 samples exactly once"),
    ],
)
def test_a_scheme_of_ones_own_is_held_to_its_contract(dealt: list[Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        split_samples([0, 1, 0, 1], 2, scheme=Own(dealt))


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        ([], [], "train and val must list the same clients"),
        ([[0]], [[1], [2]], "got 1 and 2"),
        ([[0], []], [[1], [2]], "got no sample for client 1"),
        ([[0, -1]], [[1]], "indices must be >= 0, got -1"),
        ([[0], [0]], [[1], [2]], "got sample 0 2 times"),
        ([[0.5]], [[1]], "train must hold a list of whole numbers"),
        ([[0], [[1], [2, 3]]], [[4], [5]], r"each client, got \[\[1\], \[2, 3\]\] for one"),
        (np.arange(4), np.arange(4), "train must hold a list of whole numbers for each client"),
        ({0: [1], 1: [2]}, {0: [3], 1: [4]}, "train must be a list for each client, got {0: "),
        (2, [[1]], "train must be a list for each client, got 2"),
        ([[1]], None, "val must be a list for each client, got None"),
    ],
)
def test_partitions_by_hand_are_checked(train: Any, val: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Partition(train=train, val=val)


def test_counts_check_the_labels() -> None:
    parts = Partition(train=[[0, 5]], val=[[1]])  # type: ignore[arg-type,list-item]
    with pytest.raises(ParameterError, match="labels must have at least 6 entries, got 3"):
        parts.counts([0, 1, 2])
    with pytest.raises(ParameterError, match="n_classes must be at least 3, got 2"):
        parts.counts([0, 1, 2] * 2, n_classes=2)
    assert parts.counts([0, 1, 2] * 2, n_classes=4).tolist() == [[1, 1, 1, 0]]
