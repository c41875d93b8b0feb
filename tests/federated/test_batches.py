"""Which samples a client trains on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from freshband.federated.batches import Batches

seeds = st.integers(0, 2**40)
sizes = st.integers(1, 40)


@given(seeds, sizes, st.integers(1, 6), st.integers(1, 9), st.integers(1, 10**9), seeds)
def test_each_sample_comes_once_before_any_comes_twice(
    seed: int, n: int, steps: int, size: int, round: int, client: int
) -> None:
    samples = np.arange(n) * 7 + 3
    drawn = Batches(seed, 0, steps, size).draw(samples, round=round, client=client)
    assert drawn.shape == (steps, size)
    assert drawn.dtype == np.int64
    row = drawn.ravel()
    for at in range(0, len(row), n):
        order = row[at : at + n]
        assert len(np.unique(order)) == len(order)
        assert np.isin(order, samples).all()


@given(seeds, st.integers(0, 9), st.integers(1, 10**6), st.integers(0, 10**6))
def test_they_are_a_function_of_seed_run_round_and_client(
    seed: int, run: int, round: int, client: int
) -> None:
    samples = np.arange(1000)
    one = Batches(seed, run, 4, 8)
    first = one.draw(samples, round=round, client=client)
    for other in range(3):  # whoever else draws
        one.draw(samples[: 50 + other], round=round + other, client=other)
    again = Batches(seed, run, 4, 8)
    assert np.array_equal(again.draw(samples, round=round, client=client), first)
    assert np.array_equal(one.draw(samples, round=round, client=client), first)
    different = [
        one.draw(samples, round=round + 1, client=client),
        one.draw(samples, round=round, client=client + 1),
        one.draw(samples, round=client + 1, client=round),
        Batches(seed + 1, run, 4, 8).draw(samples, round=round, client=client),
        Batches(seed, run + 1, 4, 8).draw(samples, round=round, client=client),
    ]
    if client + 1 == round:
        different.pop(2)
    for drawn in different:  # 32 of 1000 in order: never the same by chance
        assert not np.array_equal(drawn, first)


def test_every_order_comes_up() -> None:
    batches = Batches(0, 0, 1, 3)
    orders = {
        tuple(batches.draw(np.arange(3), round=t, client=0).ravel().tolist()) for t in range(100)
    }
    assert len(orders) == 6


def test_the_samples_are_left_alone() -> None:
    samples = np.arange(20)
    Batches(0, 0, 2, 30).draw(samples, round=1, client=0)
    assert samples.tolist() == list(range(20))
