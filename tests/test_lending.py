"""States that compiled code reads by address, and what it allocates itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba.core.runtime import _nrt_python
from numba.core.runtime.nrt import rtsys
from numpy.typing import NDArray

from freshband import _lending, simulate
from freshband._jit import cold, entry_point
from freshband._lending import Caller, Lent, lend
from freshband._scratch import give_back, take_scratch

with_compiler = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="about compiled code")
RECORD = np.dtype([("count", np.int64), ("sum", np.float64)])


class ShelfState(NamedTuple):
    row: NDArray[np.float64]
    table: NDArray[np.int64]
    records: NDArray[np.void]


class RackState(NamedTuple):
    shelf: ShelfState
    flags: NDArray[np.uint8]


def rack(rows: int = 3, columns: int = 4) -> RackState:
    rng = np.random.default_rng(rows)
    table = rng.integers(0, 100, (2 * columns, rows)).T[:, ::2]  # in no contiguous order
    records = np.zeros(2, RECORD)
    return RackState(ShelfState(rng.random(rows), table, records), np.ones(0, np.uint8))


@entry_point
def _sum_up(state: Any, rng: Any, weight: int) -> float:
    state, rng = lend(state), lend(rng)
    shelf, total = state.shelf, 0.0
    for i in range(shelf.table.shape[0]):
        for k in range(shelf.table.shape[1]):
            total += weight * shelf.row[i] * shelf.table[i, k]
    shelf.records[1]["count"] += 1
    shelf.records[1]["sum"] += total
    return total + len(state.flags) + rng.random()


def expected(state: RackState, weight: int, seed: int) -> float:
    shelf = state.shelf
    total = weight * (shelf.row[:, None] * shelf.table).sum()
    return float(total + len(state.flags) + np.random.default_rng(seed).random())


def test_lent_states_are_read_and_written_where_they_are() -> None:
    state, call = rack(), Caller(_sum_up)
    rng = np.random.default_rng(5)
    assert call((state, rng), 2) == pytest.approx(expected(state, 2, 5))
    call((state, rng), 2)
    assert state.shelf.records[1]["count"] == 2
    assert rng.random() == np.random.default_rng(5).random(3)[2]  # its own stream went on


def test_a_state_that_is_replaced_is_seen_at_once() -> None:
    call = Caller(_sum_up)
    for rows in (3, 5, 3):
        state = rack(rows)
        assert call((state, np.random.default_rng(1)), 1) == pytest.approx(expected(state, 1, 1))
        assert state.shelf.records[1]["count"] == 1


@with_compiler
def test_what_is_no_array_is_refused() -> None:
    with pytest.raises((TypeError, NotImplementedError)):
        Caller(_sum_up)((rack(), object()), 1)


@with_compiler
def test_no_references_are_counted_where_nothing_is_allocated() -> None:
    Caller(_sum_up)((rack(), np.random.default_rng(1)), 1)
    for signature in _sum_up.signatures:
        if isinstance(signature[0], Lent):
            assert "NRT_incref" not in _sum_up.inspect_llvm(signature)
            assert "NRT_decref" not in _sum_up.inspect_llvm(signature)


@cold
def _sorted(values: Any) -> Any:
    copy = values.copy()
    copy.sort()
    return copy


@entry_point
def _median(state: Any, times: int) -> float:
    state, total = lend(state), 0.0
    for _ in range(times):
        ranked = _sorted(state.shelf.row)
        total += ranked[len(ranked) // 2]
    return total / times


@cold
def _front(values: Any) -> Any:
    return values[: len(values) // 2]


@cold
def _double(values: Any) -> None:  # borrows
    for i in range(len(values)):
        values[i] *= 2.0


@entry_point
def _doubled_front(state: Any, times: int) -> float:
    state, total = lend(state), 0.0
    for _ in range(times):
        copy = state.shelf.row.copy()
        front = _front(copy)
        _double(front)
        total = 0.0
        for i in range(len(copy)):
            total += copy[i]
    return total


@pytest.fixture
def counted() -> Iterator[None]:
    """Let numba count what it allocates."""
    _nrt_python.memsys_enable_stats()
    yield
    _nrt_python.memsys_disable_stats()


@with_compiler
@pytest.mark.usefixtures("counted")
def test_what_is_allocated_is_counted_and_freed() -> None:
    state, call = rack(301), Caller(_median)
    assert call((state,), 10) == pytest.approx(np.median(state.shelf.row))
    before = rtsys.get_allocation_stats()
    call((state,), 1000)
    after = rtsys.get_allocation_stats()
    assert after.alloc - before.alloc >= 1000
    assert after.alloc - before.alloc == after.free - before.free


@with_compiler
@pytest.mark.usefixtures("counted")
def test_parts_of_what_is_allocated_live_as_long_as_they_are_used() -> None:
    state, call = rack(300), Caller(_doubled_front)
    row = state.shelf.row
    assert call((state,), 10) == pytest.approx(row.sum() + row[:150].sum())
    before = rtsys.get_allocation_stats()
    call((state,), 1000)
    after = rtsys.get_allocation_stats()
    assert after.alloc - before.alloc == after.free - before.free >= 1000


@entry_point
def _reverse(state: Any) -> None:
    row = lend(state).shelf.row
    held = take_scratch(len(row))
    for i in range(len(row)):
        held[i] = row[i]
    for i in range(len(row)):
        row[i] = held[len(row) - 1 - i]
    give_back(held)


def test_scratch_memory_holds_what_a_kernel_puts_there() -> None:
    state = rack(1000)
    before = state.shelf.row.copy()
    Caller(_reverse)((state,))
    assert np.array_equal(state.shelf.row, before[::-1])


@with_compiler
@pytest.mark.usefixtures("counted")
def test_scratch_memory_is_not_counted_and_is_freed() -> None:
    state, call = rack(1000), Caller(_reverse)
    call((state,))
    before = rtsys.get_allocation_stats()
    for _ in range(100):
        call((state,))
    after = rtsys.get_allocation_stats()
    assert after.alloc - before.alloc == after.free - before.free
    assert "NRT_incref" not in _reverse.inspect_llvm(_reverse.signatures[0])


@with_compiler
def test_types_of_states_are_found_once() -> None:
    def play() -> None:
        simulate("piecewise", "glr-cucb", rounds=20, runs=3, progress=False)

    play()
    known = len(_lending._kinds), len(_lending._records)
    play()
    assert (len(_lending._kinds), len(_lending._records)) == known
