"""Trees of arrays: flattened, rebuilt, grown."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband import Coordinator
from freshband._policy import parse_policy
from freshband.errors import FileError
from freshband.schedulers.base import registry
from freshband.states import (
    FLAGS,
    ORDER,
    Moment,
    _arrays,
    _checks,
    _derived,
    _fields,
    _grown,
    _nested,
    _rebuild,
    between,
    declare,
    not_saved,
    record,
    reserve,
)


class Leaf(NamedTuple):
    values: NDArray[np.float64]
    table: NDArray[np.float64]


class Branch(NamedTuple):
    left: Leaf
    right: Leaf
    clock: NDArray[np.int64]


not_saved(Leaf, "table")


def tree(start: float = 0.0) -> Branch:
    return Branch(
        Leaf(np.array([start, 1.0]), np.arange(3.0)),
        Leaf(np.array([start, 2.0]), np.arange(3.0)),
        np.array([int(start)]),
    )


def test_arrays_name_every_saved_array_by_its_path() -> None:
    named = dict(_arrays(tree(5.0)))
    assert list(named) == ["left.values", "right.values", "clock"]
    assert named["right.values"].tolist() == [5, 2]


def test_rebuild_puts_saved_arrays_back_and_keeps_tables() -> None:
    saved = {name: array.copy() for name, array in _arrays(tree(5.0))}
    fresh = tree()
    state = _rebuild(fresh, saved)
    assert isinstance(state, Branch)
    assert isinstance(state.left, Leaf)
    for name, array in _arrays(state):
        np.testing.assert_array_equal(array, saved[name])
        assert array.flags.c_contiguous
    assert state.left.table is fresh.left.table
    assert fresh.left.values.tolist() == [0, 1]  # the one given is left alone


@pytest.mark.parametrize(
    "array",
    [
        np.array(7),
        np.array(0.5, np.float16),
        np.array(True),
        np.zeros((0, 3)),
        np.array([True, False]),
        np.array([1, 2], np.uint8),
        np.arange(6.0).reshape(2, 3).T,
        np.array([(1, 2.0)], [("n", np.int64), ("sum", np.float64)]),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_rebuild_keeps_shape_and_type(array: NDArray[Any]) -> None:
    class Single(NamedTuple):
        held: NDArray[Any]

    again = _rebuild(Single(np.zeros_like(array)), {"held": array}).held
    assert (again.shape, again.dtype) == (array.shape, array.dtype)
    assert again.flags.c_contiguous
    np.testing.assert_array_equal(again, array)


@pytest.mark.parametrize(
    "damage",
    [
        lambda saved: saved.pop("left.values"),
        lambda saved: saved.update({"left.values": np.array([1, 2])}),  # another dtype
        lambda saved: saved.update({"left.values": np.zeros((2, 1))}),  # another dimension
    ],
)
def test_rebuild_refuses_what_does_not_fit(damage: Any) -> None:
    saved = dict(_arrays(tree()))
    damage(saved)
    with pytest.raises(FileError, match=r"does not fit this problem at 'left\.values'"):
        _rebuild(tree(), saved)


@pytest.mark.parametrize("axis", [0, 1])
def test_grown_pads_with_zeros_and_copies(axis: int) -> None:
    array = np.ones((2, 3), np.int32)
    larger = _grown(array, axis=axis, more=2)
    assert larger.dtype == array.dtype
    assert larger.shape == ((4, 3) if axis == 0 else (2, 5))
    assert larger[:2, :3].tolist() == array.tolist()
    assert larger.sum() == array.sum()
    larger[0, 0] = 9
    assert array[0, 0] == 1


def test_reserve_reaches_the_states_inside() -> None:
    class Growing(NamedTuple):
        room: NDArray[np.float64]

    class Holder(NamedTuple):
        inner: Growing
        clock: NDArray[np.int64]

    @reserve.register(Growing)
    def _grow(state: Growing, rounds: int) -> Growing:
        return state._replace(room=_grown(state.room, axis=0, more=rounds))

    state = Holder(Growing(np.arange(3.0)), np.array([7]))
    larger = reserve(state, 4)
    assert larger.inner.room.tolist() == [0, 1, 2, 0, 0, 0, 0]
    assert larger.clock is state.clock
    assert isinstance(larger, Holder)


def test_reserve_leaves_a_state_that_needs_no_room_alone() -> None:
    state = tree()
    larger = reserve(state, 1000)
    assert larger.clock is state.clock
    assert larger.left.values is state.left.values


NAMES = [
    name + token
    for name in registry.names()
    for token in ("", "+aa")
    if name + token != "aoi-thompson+aa"  # it is aware by itself
]


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_state_survives_flattening_and_growing(name: str) -> None:
    policy = parse_policy(name)
    rng = np.random.default_rng(0)
    state = reserve(policy.start(2, 5, rng, 100)[0], 500)
    saved = {path: array.copy() for path, array in _arrays(state)}
    again = _rebuild(policy.start(2, 5, rng, 100)[0], saved)
    assert type(again) is type(state)
    for path, array in _arrays(reserve(again, 0)):
        window = tuple(slice(length) for length in saved[path].shape)
        np.testing.assert_array_equal(array[window], saved[path])


def test_numbered_places_of_old_files_become_named_fields() -> None:
    class MarkedState(NamedTuple):
        mark: np.ndarray
        peaks: np.ndarray

    fresh = MarkedState(
        record(drawn=-1, played=0), np.zeros(3, [("low", np.float64), ("high", np.float64)])
    )
    old = {"mark": np.array([4, 7]), "peaks": np.arange(6.0).reshape(3, 2)}
    again = _rebuild(fresh, old)
    assert again.mark.tolist() == [(4, 7)]
    assert again.peaks["high"].tolist() == [1.0, 3.0, 5.0]
    with pytest.raises(FileError, match="'mark'"):
        _rebuild(fresh, old | {"mark": np.array([4, 7, 8])})
    with pytest.raises(FileError, match="'mark'"):
        _rebuild(fresh, old | {"mark": np.array([4.0, 7.0])})


class Bounded(NamedTuple):
    order: NDArray[np.int64]
    place: NDArray[np.int64]
    clock: NDArray[np.void]
    share: NDArray[np.float64]
    room: NDArray[np.float64]


declare(
    Bounded,
    grows=("room",),
    invariant=lambda state, at: bool(state.place[0] != 2),
    order=ORDER,
    place=between(-1, "order"),
    clock={"began": between(0, "round"), "runs": FLAGS},
)


def bounded(**changes: Any) -> dict[str, NDArray[Any]]:
    fresh = Bounded(np.arange(4), np.array([0]), record(began=3, runs=1), np.ones(2), np.zeros(2))
    return {**dict(_arrays(fresh)), **changes}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("order", np.array([0, 1, 2, 2]), "not possible at 'order'"),
        ("order", np.array([0, 1, 2, 3, 4]), "does not fit this problem at 'order'"),
        ("place", np.array([4]), "not possible at 'place'"),
        ("place", np.array([-2]), "not possible at 'place'"),
        ("place", np.array([2]), "not possible at ''"),
        ("clock", record(began=12, runs=1), "not possible at 'clock'"),
        ("clock", record(began=3, runs=2), "not possible at 'clock'"),
        ("share", np.array([0.0, np.nan]), "not possible at 'share'"),
        ("room", np.zeros(1), "does not fit this problem at 'room'"),
    ],
)
def test_a_state_holds_what_its_type_declares(name: str, value: Any, message: str) -> None:
    fresh = Bounded(*bounded().values())
    at = Moment(10, False)
    assert _rebuild(fresh, bounded(room=np.zeros(9)), at=at).room.shape == (9,)
    assert _rebuild(fresh, bounded(place=np.array([3])), at=at).place[0] == 3
    with pytest.raises(FileError, match=message):
        _rebuild(fresh, bounded(**{name: value}), at=at)


def test_every_state_declares_what_its_whole_numbers_may_be() -> None:
    """They may be indices, and compiled code does not check those."""
    seen: set[type] = set()
    for policy in NAMES:
        if parse_policy(policy).scheduler.sees_channels:
            continue  # it cannot be saved
        for links in (False, True) if policy == "bayes" else (False,):
            coordinator = Coordinator(
                policy, 2, 5, horizon=9, links="differ" if links else "shared"
            )
            for part in (coordinator._fleet, coordinator._scheduler, coordinator._matching):
                for state in _nested(part):
                    seen.add(type(state))
                    saved = {n for n, a in _fields(state) if isinstance(a, np.ndarray)}
                    saved -= set(_derived.get(type(state), ()))
                    numbers = {n for n in saved if getattr(state, n).dtype.kind != "f"}
                    assert numbers <= _checks.get(type(state), {}).keys(), type(state)
                    for name, check in _checks.get(type(state), {}).items():
                        fields = getattr(state, name).dtype.names
                        assert callable(check) or set(check) == set(fields or ())
    assert len(seen) > 12
