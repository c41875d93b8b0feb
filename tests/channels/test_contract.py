"""What every channel model promises, over all registered ones."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.channels import Block, ChannelModel, Stream, build, links_differ
from freshband.channels import open_air as open_any_air
from freshband.channels.streams import _FRAME
from freshband.errors import ParameterError, SequenceError, UnknownNameError
from freshband.parameters import Parameters
from tests.channels.cases import CASES, FLAT, IDS

CLIENTS = 2  # as many as the lists of the cases are for

every_case = pytest.mark.parametrize(("name", "params"), FLAT, ids=IDS)


def open_air(model: ChannelModel, rounds: int, seed: int, run: int = 0) -> Stream:
    return open_any_air(model, rounds, seed, run, CLIENTS)


def draw(model: ChannelModel, rounds: int, seed: int = 0, run: int = 0) -> Block:
    return open_air(model, rounds, seed, run).block(rounds)


def start(model: ChannelModel, rounds: Any, structure: Any, states: Any) -> Stream:
    if links_differ(model):
        return model.start(rounds, structure, states, CLIENTS)
    return model.start(rounds, structure, states)


def read(stream: Stream, sizes: list[int]) -> Block:
    blocks = [stream.block(n) for n in sizes]
    return Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def assert_same(a: Block, b: Block) -> None:
    np.testing.assert_array_equal(a.states, b.states)
    np.testing.assert_array_equal(a.means, b.means)


@every_case
@settings(max_examples=15, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12), seed=st.integers(0, 2**32))
def test_block_size_never_changes_the_air(
    name: str, params: dict[str, Any], sizes: list[int], seed: int
) -> None:
    model, rounds = build(name, params), sum(sizes) + 25
    whole, parts = open_air(model, rounds, seed), open_air(model, rounds, seed)
    expected = whole.block(rounds)
    assert_same(read(parts, [*sizes, 25]), expected)
    np.testing.assert_array_equal(parts.breakpoints, whole.breakpoints)
    np.testing.assert_array_equal(parts.changed, whole.changed)


@every_case
def test_blocks_may_cross_frames(name: str, params: dict[str, Any]) -> None:
    model, rounds = build(name, params), 2 * _FRAME + 500
    whole, parts = open_air(model, rounds, 5), open_air(model, rounds, 5)
    expected = whole.block(rounds)
    assert_same(read(parts, [1, _FRAME - 2, 3, 777, _FRAME - 779, 500]), expected)
    np.testing.assert_array_equal(parts.breakpoints, whole.breakpoints)
    np.testing.assert_array_equal(parts.changed, whole.changed)


@every_case
def test_shapes_types_and_ranges(name: str, params: dict[str, Any]) -> None:
    model = build(name, params)
    assert isinstance(model, ChannelModel)
    block = draw(model, 50)
    row = (CLIENTS, model.n_channels) if links_differ(model) else (model.n_channels,)
    for array, kind in ((block.states, np.uint8), (block.means, np.float64)):
        assert array.dtype == kind
        assert array.shape == (50, *row)
        assert array.flags.c_contiguous
        assert array.flags.writeable
    assert set(np.unique(block.states)) <= {0, 1}
    if model.has_means:
        assert ((block.means >= 0) & (block.means <= 1)).all()
        assert not block.states[block.means == 0].any()
        assert block.states[block.means == 1].all()
    else:
        assert np.isnan(block.means).all()


@every_case
def test_breakpoints_are_where_the_means_change(name: str, params: dict[str, Any]) -> None:
    model = build(name, params)
    stream = open_air(model, 300, 1)
    means = stream.block(200).means.reshape(200, -1, model.n_channels)  # by client, or of all
    differs = (means[1:] != means[:-1]).any(axis=1)
    if not model.has_means:
        differs[:] = False
    rounds = np.flatnonzero(differs.any(axis=1))
    assert stream.breakpoints.dtype == np.int64
    assert stream.changed.dtype == np.bool_
    np.testing.assert_array_equal(stream.breakpoints, rounds + 2)  # 1-based, the later round
    np.testing.assert_array_equal(stream.changed, differs[rounds])
    assert stream.changed.shape[1] == model.n_channels


@every_case
def test_same_seed_same_air_and_other_runs_differ(name: str, params: dict[str, Any]) -> None:
    model = build(name, params)
    assert_same(draw(model, 200, seed=3, run=1), draw(model, 200, seed=3, run=1))
    recorded = not model.has_means
    for other in ({"seed": 4, "run": 1}, {"seed": 3, "run": 2}):
        same = np.array_equal(draw(model, 200, seed=3, run=1).states, draw(model, 200, **other)[0])
        assert same == recorded


@every_case
def test_another_state_generator_leaves_the_structure(name: str, params: dict[str, Any]) -> None:
    model = build(name, params)

    def begin(structure: int, states: int) -> Block:
        a, b = np.random.default_rng(structure), np.random.default_rng(states)
        return start(model, 400, a, b).block(400)

    one, other = begin(1, 2), begin(1, 3)
    np.testing.assert_array_equal(one.means, other.means)
    if model.has_means:
        assert not np.array_equal(one.states, other.states)


@every_case
def test_past_the_horizon_is_an_error_that_changes_nothing(
    name: str, params: dict[str, Any]
) -> None:
    model = build(name, params)
    stream = open_air(model, 100, 0)
    first = stream.block(60)
    with pytest.raises(SequenceError, match="the air has 40 more rounds, got a call for 41"):
        stream.block(41)
    for bad in (0, -1, 1.5, "3", True):
        with pytest.raises(ParameterError, match="n must be a whole number >= 1"):
            stream.block(bad)
    rest = stream.block(40)
    expected = draw(model, 100)
    np.testing.assert_array_equal(np.concatenate([first.states, rest.states]), expected.states)
    with pytest.raises(SequenceError, match="the air has 0 more rounds"):
        stream.block(1)


@every_case
def test_rounds_must_be_a_whole_number(name: str, params: dict[str, Any]) -> None:
    model = build(name, params)
    rng = np.random.default_rng(0)
    for bad in (0, -5, 2.5, "10", None):
        with pytest.raises(ParameterError, match="rounds must be a whole number >= "):
            start(model, bad, rng, rng)


@every_case
def test_blocks_are_the_callers_to_keep(name: str, params: dict[str, Any]) -> None:
    model = build(name, params)
    stream = open_air(model, 90, 0)
    first = stream.block(30)
    kept = Block(first.states.copy(), first.means.copy())
    second = stream.block(30)
    second.states[:] = 7
    second.means[:] = 7
    third = stream.block(30)
    assert_same(first, kept)
    expected = draw(model, 90)
    np.testing.assert_array_equal(third.states, expected.states[60:])
    np.testing.assert_array_equal(third.means, expected.means[60:])


@every_case
def test_models_are_frozen_and_survive_dump_and_pickle(name: str, params: dict[str, Any]) -> None:
    model = build(name, params)
    assert isinstance(model, Parameters)
    for field in type(model).model_fields:
        with pytest.raises(ValueError, match="frozen"):
            setattr(model, field, 1)
    again = build(name, model.model_dump(mode="json"))
    copy = pickle.loads(pickle.dumps(model))
    assert again == model
    assert copy == model
    assert hash(again) == hash(model)
    assert_same(draw(again, 40), draw(model, 40))
    assert_same(draw(copy, 40), draw(model, 40))


@every_case
def test_the_number_of_clients_matters_only_where_links_differ(
    name: str, params: dict[str, Any]
) -> None:
    model = build(name, params)
    if not links_differ(model):
        for clients in (None, 1, 7):
            assert_same(open_any_air(model, 30, 1, 0, clients).block(30), draw(model, 30, seed=1))
        return
    for bad in (0, 1.5, "two"):
        with pytest.raises(ParameterError, match="clients must be a whole number >= 1, got"):
            open_any_air(model, 30, 1, 0, bad)  # type: ignore[arg-type]
    if model.n_clients is None:
        with pytest.raises(ParameterError, match="clients must be given, because the links of"):
            open_any_air(model, 30, 1)
        assert open_any_air(model, 30, 1, 0, 7).block(3).states.shape[1] == 7
    else:
        assert model.n_clients == CLIENTS
        assert_same(open_any_air(model, 30, 1).block(30), draw(model, 30, seed=1))
        with pytest.raises(ParameterError, match=r"clients must be 2, those \w+ gives .* got 3"):
            open_any_air(model, 30, 1, 0, 3)


@every_case
def test_unknown_parameters_are_refused(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(UnknownNameError, match="has no parameter 'n_chanels'"):
        build(name, params, n_chanels=3)


@pytest.mark.parametrize("name", ["switching", "jammer", "gilbert-elliott", "table"])
def test_memory_does_not_grow_with_the_horizon(name: str) -> None:
    params = CASES[name][0 if name != "switching" else 3]
    stream = open_air(build(name, params), 10**7, 0)
    stream.block(4096)
    tracemalloc.start()
    try:
        for _ in range(20):
            stream.block(4096)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            stream.block(4096)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    noted = 20 * 4096 * (8 + 1)  # a breakpoint in every round, before the limit is reached
    assert grown < noted + 100_000
