from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshband.channels import Table, open_air
from freshband.channels.base import _same_air
from freshband.channels.streams import _FRAME
from freshband.errors import ParameterError
from tests.channels.margins import assert_share, draw, drawn
from tests.simulation.refusing import refused

STATES = [[1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    "given", [STATES, np.array(STATES), np.array(STATES, bool), np.array(STATES, float)]
)
def test_states_are_played_to_the_last_bit(given: Any) -> None:
    model = Table(states=given)
    assert model.n_channels == 3
    assert not model.has_means
    assert draw(model, 4).states.tolist() == STATES
    assert draw(model, 4, seed=1).states.tolist() == STATES
    assert draw(model, 3).states.tolist() == STATES[:3]


def test_means_are_drawn_from() -> None:
    means = np.tile([[0.2, 0.9], [0.7, 0.9]], (10_000, 1))
    model = Table(means=means)
    assert model.has_means
    block = draw(model, 20_000)
    np.testing.assert_array_equal(block.means, means)
    assert_share(block.states[::2, 0].sum(), 10_000, 0.2)
    assert_share(block.states[1::2, 0].sum(), 10_000, 0.7)
    stream = drawn(model, 50)
    assert stream.breakpoints.tolist() == list(range(2, 51))
    assert stream.changed.tolist() == [[True, False]] * 49


@pytest.mark.parametrize("rows", [1, 3, 700, _FRAME, _FRAME + 1])
@pytest.mark.parametrize("rounds", [1, 4, 2 * _FRAME + 5])
def test_wrapping_begins_again(rows: int, rounds: int) -> None:
    states = np.random.default_rng(rows).integers(0, 2, (rows, 2))
    expected = states[np.arange(rounds) % rows]
    np.testing.assert_array_equal(draw(Table(states=states, wrap=True), rounds).states, expected)
    np.testing.assert_array_equal(
        draw(Table(means=states, wrap=True), rounds).means, expected.astype(float)
    )


def test_too_short_a_table_is_an_error() -> None:
    with pytest.raises(ParameterError) as caught:
        open_air(Table(states=STATES), 5, 0)
    assert str(caught.value) == (
        "rounds must be at most 4, the length of the table (or set wrap=true to begin again), got 5"
    )


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_the_model_keeps_its_own_copy(kind: Any) -> None:
    states = np.array(STATES, kind)
    model = Table(states=states)
    states[:] = 0
    assert draw(model, 4).states.tolist() == STATES
    with pytest.raises(ValueError, match="read-only"):
        model.states[0, 0] = 0  # type: ignore[index]


def test_equality_is_by_content() -> None:
    model = Table(states=STATES)
    assert model == Table(states=np.array(STATES))
    assert model != Table(states=STATES, wrap=True)
    assert model != Table(means=STATES)
    assert model != Table(states=STATES[:2])
    assert model != "table"
    assert len({model, Table(states=STATES), Table(means=STATES)}) == 2


MATRIX = "must be a matrix, a list of equally long lists, of numbers in [0, 1]"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "one of states and means must be given, got neither"),
        ({"states": [[1]], "means": [[1]]}, "one of states and means must be given, got both"),
        ({"states": [[0, 0.5]]}, "states must be 0 or 1, got 0.5"),
        ({"states": [[0, 2]]}, f"states {MATRIX}, got 2"),
        ({"means": [[0.5, float("nan")]]}, f"means {MATRIX}, got nan"),
        ({"means": [[0.5, -0.1]]}, f"means {MATRIX}, got -0.1"),
        ({"means": [[0.5], [0.5, 0.5]]}, f"means {MATRIX}, got rows of different lengths"),
        ({"states": [1, 0]}, f"states {MATRIX}, got [1, 0]"),
        ({"states": []}, f"states {MATRIX}, got []"),
        ({"states": [[]]}, f"states {MATRIX}, got [[]]"),
        ({"states": "1010"}, f"states {MATRIX}, got '1010'"),
        ({"means": [["a"]]}, f"means {MATRIX}, got [['a']]"),
        ({"states": [[1]], "wrap": "yes please"}, "wrap must be true or false, got 'yes please'"),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Table(**params)
    assert str(caught.value) == message


# ----------------------------------------------------------------------------------- where to begin


@pytest.mark.parametrize("wrap", [False, True])
def test_an_offset_is_the_row_to_begin_with(wrap: bool) -> None:
    model = Table(states=STATES, offset=2, wrap=wrap)
    assert draw(model, 2).states.tolist() == STATES[2:]
    assert model.n_rounds == (None if wrap else 2)
    if wrap:
        assert draw(model, 7).states.tolist() == [*STATES[2:], *STATES, STATES[0]]
    else:
        with refused(
            ParameterError, "rounds must be at most 2, the length of the table from row 2"
        ):
            open_air(model, 3, 0)


def test_a_random_offset_is_another_in_each_run() -> None:
    rows = np.eye(60, dtype=int)  # a row tells which it is
    began = {wrap: [] for wrap in (False, True)}
    for wrap, firsts in began.items():
        model = Table(states=rows, offset="random", wrap=wrap)
        for run in range(600):
            states = open_air(model, 51, 0, run).block(51).states
            first = int(states[0].argmax())
            expected = np.roll(rows, -first, axis=0)[:51]
            np.testing.assert_array_equal(states, expected)
            firsts.append(first)
        assert firsts[0] == int(open_air(model, 51, 0, 0).block(1).states.argmax())
    for wrap, places in {False: 10, True: 60}.items():
        counts = np.bincount(began[wrap], minlength=places)
        assert len(counts) == places
        for count in counts:
            assert_share(int(count), 600, 1 / places)


def test_a_random_offset_needs_a_choice() -> None:
    message = "offset='random' needs fewer rounds than the 4 of the table to have a choice, or "
    with refused(ParameterError, message):
        open_air(Table(states=STATES, offset="random"), 4, 0)
    with refused(ParameterError, "offset='random' needs fewer rounds"):
        open_air(Table(states=[[1, 0]], offset="random", wrap=True), 9, 0)
    with refused(ParameterError, "rounds must be at most 4, the length of the table"):
        open_air(Table(states=STATES, offset="random"), 5, 0)


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (4, "offset must be less than 4, the rows of the table, got 4"),
        (-1, "offset must be a whole number >= 0 or 'random', got -1"),
        (1.5, "offset must be a whole number >= 0 or 'random', got 1.5"),
        ("any", "offset must be a whole number >= 0 or 'random', got 'any'"),
        (True, "offset must be a whole number >= 0 or 'random', got True"),
    ],
)
def test_offsets_that_are_none(offset: Any, message: str) -> None:
    with refused(ParameterError, message):
        Table(states=STATES, offset=offset)


def test_tables_that_begin_elsewhere_differ() -> None:
    model = Table(states=STATES, offset=1)
    assert model == Table(states=STATES, offset=1)
    assert model != Table(states=STATES)
    assert hash(model) != hash(Table(states=STATES))


def test_the_same_air_is_told_from_other() -> None:
    recorded = Table(states=np.tile(STATES, (700, 1)))
    assert _same_air(recorded, 2800, 0, range(3))
    assert not _same_air(recorded, 2800, 0, range(1))
    assert not _same_air(Table(means=np.full((2000, 2), 0.5)), 2000, 0, range(3))
    assert not _same_air(Table(states=STATES, wrap=True, offset="random"), 50, 0, range(9))
    late = np.ones((2000, 2))
    late[-1] = 0.5  # only the last round differs between runs, and not between all
    assert not _same_air(Table(means=late), 2000, 0, range(20))
    assert _same_air(Table(means=late), 1999, 0, range(20))


def test_clients_and_channels_are_numbered_anew_in_each_run() -> None:
    rows = np.arange(6).reshape(1, 2, 3) / 10
    model = Table(means=rows, wrap=True, shuffle=True, per_client=True)
    drawn = [open_air(model, rounds=5, seed=0, run=run).block(5).means for run in range(40)]
    orders = {tuple(means[0].ravel()) for means in drawn}
    assert len(orders) == 12  # 2! 3!
    for means in drawn:
        assert (means == means[0]).all()
        assert {frozenset(row) for row in means[0]} == {frozenset(row) for row in rows[0]}
