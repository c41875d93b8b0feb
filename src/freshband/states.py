"""States as trees of arrays: how they grow, are flattened and rebuilt.

A state is a ``NamedTuple`` whose fields are numpy arrays or further states, written in place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from freshband.errors import FileError, ParameterError, shown

__all__ = ["not_saved", "record", "reserve"]

State = TypeVar("State", bound=tuple[Any, ...])


@functools.singledispatch
def reserve(state: Any, rounds: int) -> Any:
    """Return the state with room for ``rounds`` more rounds, which replaces the one given.

    Arrays cannot grow inside a kernel, so this runs between blocks of rounds. A state type whose
    arrays have to grow registers how with ``@reserve.register(StateType)``; all others pass the
    call on to the states they hold.
    """
    inner = {name: reserve(part, rounds) for name, part in _fields(state) if _is_state(part)}
    return state._replace(**inner) if inner else state


_derived: dict[type, tuple[str, ...]] = {}


def not_saved(state_type: type, *fields: str) -> None:
    """Declare fields of a state type that need not be saved: start or `reserve` recreates them."""
    _derived[state_type] = fields


_newer: dict[type, tuple[str, ...]] = {}


def newer(state_type: type, *fields: str) -> None:
    """Declare fields that states saved by earlier versions lack; they keep their first values."""
    _newer[state_type] = fields


def _grown(array: np.ndarray, axis: int, more: int) -> np.ndarray:
    """Return a zero-padded copy with ``more`` places at the end of one axis."""
    shape = list(array.shape)
    shape[axis] += more
    larger = np.zeros(shape, array.dtype)
    larger[tuple(slice(length) for length in array.shape)] = array
    return larger


def record(**fields: float) -> np.ndarray:
    """Return an array of one record with named numbers: options and counters of a state.

    Whole numbers and truth values are held as int64, other numbers as float64. Kernels read and
    write ``state.name[0]["field"]``.

    Examples
    --------
    >>> clock = record(rounds=0, rate=0.5)
    >>> clock[0]["rounds"] += 2
    >>> clock["rounds"].tolist(), clock.dtype.names
    ([2], ('rounds', 'rate'))
    """
    kinds = [(name, np.result_type(np.int64, type(value))) for name, value in fields.items()]
    return np.array([tuple(fields.values())], dtype=kinds)


def _arrays(state: tuple[Any, ...], prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield ``(path, array)``, such as ``("inner.counts", ...)``, for every array to be saved."""
    derived = _derived.get(type(state), ())
    for name, part in _fields(state):
        if _is_state(part):
            yield from _arrays(part, f"{prefix}{name}.")
        elif name not in derived:
            yield prefix + name, part


def _nested(state: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield a state and every state it holds."""
    yield state
    for _, part in _fields(state):
        if _is_state(part):
            yield from _nested(part)


def _rebuild(state: State, saved: Mapping[str, np.ndarray], prefix: str = "") -> State:
    """Return ``state`` with its arrays replaced by those ``saved`` under the same paths."""
    derived, added = _derived.get(type(state), ()), _newer.get(type(state), ())
    fields: dict[str, Any] = {}
    for name, part in _fields(state):
        if _is_state(part):
            fields[name] = _rebuild(part, saved, f"{prefix}{name}.")
        elif name not in derived and not (name in added and prefix + name not in saved):
            array = _as_records(saved.get(prefix + name), part)
            if array is None or array.dtype != part.dtype or not _holds(array, part):
                raise FileError(f"saved state does not fit this problem at {prefix + name!r}")
            fields[name] = np.asarray(array, order="C")
    return cast(State, cast(NamedTuple, state)._replace(**fields))


def enlarge(fresh: State, state: State) -> State:
    """Return a state of a larger problem, ``fresh``, that knows all that ``state`` knows.

    Arrays of the two have the same number of axes; old entries go to the front of the new ones.
    """
    fields: dict[str, Any] = {}
    for (name, new), (_, old) in zip(_fields(fresh), _fields(state), strict=True):
        if _is_state(new):
            fields[name] = enlarge(new, old)
        else:
            room = tuple(map(max, new.shape, old.shape))  # the old one may have reserved more
            fields[name] = np.zeros(room, new.dtype)
            for part in (new, old):
                fields[name][tuple(slice(length) for length in part.shape)] = part
    return cast(State, fresh._replace(**fields))  # type: ignore[attr-defined]  # a NamedTuple


def _check_state(owner: str, state: object) -> None:
    """Raise `ParameterError` if a state of ``owner`` holds anything but arrays of numbers."""
    if not _is_state(state):
        raise ParameterError(
            f"the start of {owner} must return a state, a NamedTuple of arrays, got {shown(state)}"
        )
    for name, part in _fields(cast(tuple[Any, ...], state)):
        if _is_state(part):
            _check_state(owner, part)
        elif not isinstance(part, np.ndarray) or part.dtype.hasobject:
            raise ParameterError(
                f"field {name!r} of the {type(state).__name__} of {owner} must be an array of "
                f"numbers (of length one for a single number), got {shown(part)}"
            )


def _fields(state: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    return zip(cast(NamedTuple, state)._fields, state, strict=True)


def _as_records(array: np.ndarray | None, fresh: np.ndarray) -> np.ndarray | None:
    """Convert an array saved before states had named fields into records."""
    kinds = {fresh.dtype[name] for name in fresh.dtype.names or ()}
    if array is None or kinds != {array.dtype} or array.nbytes != fresh.nbytes:
        return array
    return np.ascontiguousarray(array).view(fresh.dtype).reshape(fresh.shape)


def _holds(array: np.ndarray, fresh: np.ndarray) -> bool:
    """Whether an array has at least the room of a fresh one; states only grow."""
    return array.ndim == fresh.ndim and all(
        have >= need for have, need in zip(array.shape, fresh.shape, strict=True)
    )


def _is_state(part: object) -> bool:
    return isinstance(part, tuple) and hasattr(part, "_fields")
