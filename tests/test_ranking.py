"""Orders and ties: the same compiled and plain, and fair to everybody."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband._jit import entry_point
from freshband.ranking import _tie_break, sort_by, take_best
from tests.channels.margins import assert_share
from tests.reference.ordering import best_first


@entry_point
def _sorted(keys: Any, t: int, items: Any) -> None:
    sort_by(keys, t, items)


@entry_point
def _taken(keys: Any, t: int, best: Any) -> None:
    take_best(keys, t, best)


def test_sizes_up_to_sixty_compiled_and_plain() -> None:
    """Across the change from insertion to heap, with many ties, few and none, and infinities."""
    rng = np.random.default_rng(0)
    for n in range(1, 61):
        for distinct in (1, 2, 5, 10**6):
            keys = rng.integers(0, distinct, n).astype(np.float64)
            keys[rng.random(n) < 0.1] = np.inf
            t = int(rng.integers(1, 10**9))
            expected = best_first(keys, t, range(n))
            for sort in (sort_by, _sorted):
                items = rng.permutation(n)
                sort(keys, t, items)
                assert items.tolist() == expected
                some = rng.permutation(n)[: n // 2 + 1]
                order = best_first(keys, t, some)
                sort(keys, t, some)
                assert some.tolist() == order
            m = int(rng.integers(1, n + 1))
            for take in (take_best, _taken):
                best = np.full(m, -1)
                take(keys, t, best)
                if m <= 16:
                    assert best.tolist() == expected[:m]
                else:  # in heap order
                    assert sorted(best.tolist()) == sorted(expected[:m])


def test_few_of_very_many_whatever_their_order() -> None:
    """Items are visited in several passes, the more of them the more passes there are."""
    rng = np.random.default_rng(1)
    for n in (16 * 17 - 1, 16 * 17, 1000, 5000):
        for keys in (rng.integers(0, 9, n), np.zeros(n), np.arange(n), -np.arange(n)):
            expected = set(best_first(keys, n, range(n))[:17])
            for take in (take_best, _taken):
                best = np.full(17, -1)
                take(keys.astype(np.float64), n, best)
                assert set(best.tolist()) == expected


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=40),
    st.integers(1, 2**31),
    st.data(),
)
def test_any_integer_keys(ages: list[int], t: int, data: Any) -> None:
    items = np.array(data.draw(st.permutations(range(len(ages)))))
    sort_by(np.array(ages), t, items)
    assert items.tolist() == best_first(ages, t, range(len(ages)))
    best = np.zeros(data.draw(st.integers(1, len(ages))), np.int64)
    take_best(np.array(ages), t, best)
    assert set(best.tolist()) == set(best_first(ages, t, range(len(ages)))[: len(best)])


def test_sorting_nothing_or_one_thing() -> None:
    for n in (0, 1):
        items = np.arange(n)
        sort_by(np.zeros(1), 1, items)
        assert items.tolist() == list(range(n))


def test_ties_fall_fairly() -> None:
    """Of any two items either comes first half the time; of five, each a fifth of the time."""
    rounds = 20_000
    lots = np.array([[_tie_break(t, item) for item in range(8)] for t in range(1, rounds + 1)])
    for a in range(8):
        for b in range(a):
            assert_share(int((lots[:, a] < lots[:, b]).sum()), rounds, 0.5)
    first = lots[:, :5].argmin(axis=1)
    for item in range(5):
        assert_share(int((first == item).sum()), rounds, 0.2)


def test_ties_do_not_fall_the_same_way_round_after_round() -> None:
    lots = np.array([[_tie_break(t, item) for item in (3, 4)] for t in range(1, 20_001)])
    first = lots[:, 0] < lots[:, 1]
    for lag in (1, 2, 3, 5, 7):
        assert_share(int((first[lag:] == first[:-lag]).sum()), len(first) - lag, 0.5)


def test_lots_are_distinct_and_never_leave_64_bits() -> None:
    for t in (1, 12_345, 10**9):
        lots = [_tie_break(t, item) for item in range(5000)]
        assert len(set(lots)) == 5000
        assert min(lots) >= 0
        assert max(lots) < 2**31
        with np.errstate(all="raise"):  # numpy's integers would wrap round and warn
            wide = [int(_tie_break(np.int64(t), np.int64(item))) for item in range(5000)]
        assert wide == lots


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="compares with compiled code")
def test_compiled_lots_are_the_plain_ones() -> None:
    keys = np.zeros(50)
    for t in (1, 2, 10**6, 10**9, 10**11):
        plain, compiled = np.arange(50), np.arange(50)
        sort_by(keys, t, plain)
        _sorted(keys, t, compiled)
        assert plain.tolist() == compiled.tolist()
