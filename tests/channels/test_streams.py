from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.channels import (
    MeansStream,
    StatesStream,
    carry_forward,
    held,
    open_air,
    streams,
)
from freshband.channels.streams import _FRAME, _fill, _slices
from freshband.errors import SequenceError


@settings(max_examples=60, deadline=None, derandomize=True)
@given(lengths=st.lists(st.sampled_from([1, 2, 5, 300, 511, 512, 5000]), min_size=1, max_size=20))
def test_held_repeats_rows_in_pieces_of_bounded_memory(lengths: list[int]) -> None:
    rows = np.arange(2 * len(lengths)).reshape(-1, 2)
    pieces = list(held(rows, np.array(lengths)))
    np.testing.assert_array_equal(np.concatenate(pieces), np.repeat(rows, lengths, axis=0))
    assert all(piece.strides[0] == 0 or len(piece) <= _FRAME for piece in pieces)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=st.integers(0, 12), channels=st.integers(1, 4), seed=st.integers(0, 999))
def test_carry_forward_equals_a_loop(steps: int, channels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, fresh = rng.random(channels), rng.random((steps, channels))
    change = rng.random((steps, channels)) < 0.4
    expected, row = np.empty((steps, channels)), first
    for i in range(steps):
        row = np.where(change[i], fresh[i], row)
        expected[i] = row
    np.testing.assert_array_equal(carry_forward(first, fresh, change), expected)


@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 1000])
def test_fill_writes_every_row(n: int) -> None:
    out = np.zeros((n, 3))
    _fill(out, np.array([0.1, 0.2, 0.3]))
    np.testing.assert_array_equal(out, np.tile([0.1, 0.2, 0.3], (n, 1)))


def test_slices_cover_all_rounds_in_bounded_memory() -> None:
    assert list(_slices(5000, 10)) == [slice(0, 3276), slice(3276, 5000)]
    assert list(_slices(2, 100_000)) == [slice(0, 1), slice(1, 2)]


def test_only_the_first_breakpoints_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_REMEMBERED", 10)
    flicker = np.arange(40)[:, None] % 2 * np.array([1.0, 0.0])
    stream = MeansStream(40, 2, [flicker], np.random.default_rng(0))
    stream.block(8)
    assert stream.breakpoints.tolist() == list(range(2, 9))
    stream.block(32)
    assert stream.breakpoints.tolist() == list(range(2, 12))
    assert stream.changed.tolist() == [[True, False]] * 10


def test_a_change_between_blocks_is_noted_and_a_return_within_one_is_two() -> None:
    held_twice = [np.broadcast_to([0.5], (10, 1))] * 2
    pieces = [*held_twice, np.array([[0.6], [0.6], [0.5], [0.6]])]
    stream = MeansStream(24, 1, pieces, np.random.default_rng(0))
    for size in (10, 10, 4):
        stream.block(size)
    assert stream.breakpoints.tolist() == [21, 23, 24]


def test_pieces_may_be_empty() -> None:
    pieces = [np.empty((0, 1)), np.ones((1, 1)), np.empty((0, 1)), np.zeros((2, 1))]
    stream = MeansStream(3, 1, pieces, np.random.default_rng(0))
    assert stream.block(3).states.ravel().tolist() == [1, 0, 0]


def test_a_model_that_describes_too_little_is_told_so() -> None:
    stream = MeansStream(5, 1, [np.ones((3, 1))], np.random.default_rng(0))
    with pytest.raises(SequenceError, match="the channel model has 2 rounds too few"):
        stream.block(5)


def test_states_stream_plays_what_it_is_given() -> None:
    bits = np.random.default_rng(0).integers(0, 2, (50, 3)).astype(np.uint8)
    stream = StatesStream(50, 3, [bits[:7], bits[7:]])
    played = np.concatenate([stream.block(20).states, stream.block(30).states])
    np.testing.assert_array_equal(played, bits)


def test_states_are_one_double_per_channel_and_round() -> None:
    means = np.random.default_rng(1).random((9000, 5))
    stream = MeansStream(9000, 5, [means], np.random.default_rng(2))
    expected = np.random.default_rng(2).random((9000, 5)) < means
    np.testing.assert_array_equal(stream.block(9000).states, expected)


def test_a_stream_that_is_no_longer_used_is_freed_without_the_garbage_collector() -> None:
    air = open_air("piecewise", 100, seed=0)
    air.block(100)
    gone = weakref.ref(air)
    gc.disable()
    try:
        del air
        assert gone() is None
    finally:
        gc.enable()
