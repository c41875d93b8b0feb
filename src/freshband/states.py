"""States as trees of arrays: how they grow, are flattened, rebuilt and checked.

A state is a ``NamedTuple`` whose fields are numpy arrays or further states, written in place.

Compiled code trusts its arrays: an index out of range in a restored state would read or write
memory that is not its own. So each state type declares beside its class, with `declare`, what its
saved fields may hold, and `_rebuild` refuses everything else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from freshband.errors import FileError, ParameterError, shown

__all__ = ["FIXED", "FLAGS", "ORDER", "between", "declare", "not_saved", "record", "reserve"]

State = TypeVar("State", bound=tuple[Any, ...])


@functools.singledispatch
def reserve(state: Any, rounds: int) -> Any:
    """Return the state with room for ``rounds`` more rounds, which replaces the one given.

    Arrays cannot grow inside a kernel, so this runs between blocks of rounds. A state type whose
    arrays have to grow registers how with ``@reserve.register(StateType)``; all others pass the
    call on to the states they hold.
    """
    parts = {name: part for name, part in _fields(state) if _is_state(part)}
    inner = {name: reserve(part, rounds) for name, part in parts.items()}
    return state._replace(**inner) if any(inner[x] is not parts[x] for x in parts) else state


_derived: dict[type, tuple[str, ...]] = {}


def not_saved(state_type: type, *fields: str) -> None:
    """Declare fields of a state type that need not be saved: start or `reserve` recreates them."""
    _derived[state_type] = fields


class Moment(NamedTuple):
    """When a state was saved."""

    round: int  # rounds closed
    planned: bool  # whether a plan waits for its outcomes


Check: TypeAlias = Callable[[np.ndarray, np.ndarray, Any, Moment], bool]  # new, fresh, its state


def _is_unchanged(array: np.ndarray, fresh: np.ndarray, state: Any, at: Moment) -> bool:
    return bool(np.array_equal(array, fresh))


def _is_order(array: np.ndarray, fresh: np.ndarray, state: Any, at: Moment) -> bool:
    return bool(np.array_equal(np.sort(array), np.arange(len(array))))


def _has_numbers(array: np.ndarray, fresh: np.ndarray, state: Any, at: Moment) -> bool:
    return array.dtype.kind != "f" or not np.isnan(array).any()


def between(low: float, high: float | str = np.inf) -> Check:
    """Accept numbers from ``low`` to ``high``, never NaN.

    ``high`` may be ``"round"``, that in which the state was saved, or the name of a field: then the
    numbers are positions in it.
    """

    def check(array: np.ndarray, fresh: np.ndarray, state: Any, at: Moment) -> bool:
        most = high
        if isinstance(high, str):
            most = at.round + 1 if high == "round" else len(getattr(state, high)) - 1
        return bool(((array >= low) & (array <= most)).all())

    return check


FIXED: Check = _is_unchanged  # what the state was started with
ORDER: Check = _is_order  # any order of the numbers from 0
FLAGS: Check = between(0, 1)

_checks: dict[type, dict[str, Check | Mapping[str, Check]]] = {}
_invariants: dict[type, Callable[[Any, Moment], bool]] = {}
_growing: dict[type, tuple[str, ...]] = {}


def declare(
    state_type: type,
    *,
    grows: tuple[str, ...] = (),
    invariant: Callable[[Any, Moment], bool] | None = None,
    **fields: Check | Mapping[str, Check],
) -> None:
    """Declare what the saved fields of a state type may hold; a record has a check per name.

    Fields have the shape they were started with, unless they are named in ``grows``. Those of
    floating-point numbers need no check of their own: they may hold anything but NaN. The
    ``invariant`` is asked last, about the whole state.
    """
    _checks[state_type], _growing[state_type] = fields, grows
    if invariant is not None:
        _invariants[state_type] = invariant


_newer: dict[type, tuple[str, ...]] = {}


def newer(state_type: type, *fields: str) -> None:
    """Declare fields that states saved by earlier versions lack; they keep their first values."""
    _newer[state_type] = fields


_Saved: TypeAlias = Mapping[str, np.ndarray]
_upgrades: dict[type, Callable[[Any, _Saved, str], _Saved]] = {}


def upgrade(state_type: type) -> Callable[[Callable[[Any, _Saved, str], _Saved]], Any]:
    """Register how arrays saved by earlier versions become those of a state type of now.

    The function is given a fresh state, all saved arrays and the prefix of the state's own.
    """

    def remember(function: Callable[[Any, _Saved, str], _Saved]) -> Any:
        _upgrades[state_type] = function
        return function

    return remember


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
    values = tuple(fields.values())
    return np.array([values], dtype=_record_type(tuple(fields), tuple(map(type, values))))


@functools.cache
def _record_type(names: tuple[str, ...], kinds: tuple[type, ...]) -> np.dtype[np.void]:
    wide = [np.result_type(np.int64, kind) for kind in kinds]
    return np.dtype(list(zip(names, wide, strict=True)))


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


_START = Moment(0, False)


def _rebuild(
    state: State, saved: Mapping[str, np.ndarray], prefix: str = "", at: Moment = _START
) -> State:
    """Return ``state`` with its arrays replaced by those ``saved`` under the same paths.

    Raises `FileError` if one is missing, or holds what the state type does not allow.
    """
    if type(state) in _upgrades:
        saved = _upgrades[type(state)](state, saved, prefix)
    derived, added = _derived.get(type(state), ()), _newer.get(type(state), ())
    fields: dict[str, Any] = {}
    for name, part in _fields(state):
        if _is_state(part):
            fields[name] = _rebuild(part, saved, f"{prefix}{name}.", at)
        elif name not in derived and not (name in added and prefix + name not in saved):
            array = _as_records(saved.get(prefix + name), part)
            if array is None or array.dtype != part.dtype or not _fits(state, name, array, part):
                raise FileError(f"saved state does not fit this problem at {prefix + name!r}")
            fields[name] = np.array(array, order="C")
    rebuilt = cast(State, cast(NamedTuple, state)._replace(**fields))
    for name, part in _fields(rebuilt) if type(state) in _checks else ():
        if name in fields and not _is_state(part) and not _is_allowed(state, rebuilt, name, at):
            raise FileError(f"saved state is not possible at {prefix + name!r}")
    invariant = _invariants.get(type(state))
    if invariant is not None and not invariant(rebuilt, at):
        raise FileError(f"saved state is not possible at {prefix.rstrip('.')!r}")
    return rebuilt


def _is_allowed(fresh: Any, state: Any, name: str, at: Moment) -> bool:
    """Whether a field of a rebuilt state holds what its type declares."""
    check, array, first = (
        _checks[type(state)].get(name, _has_numbers),
        getattr(state, name),
        getattr(fresh, name),
    )
    if isinstance(check, Mapping):
        return all(one(array[part], first[part], state, at) for part, one in check.items())
    return check(array, first, state, at)


def enlarge(fresh: State, state: State) -> State:
    """Return a state of a larger problem, ``fresh``, that knows all that ``state`` knows.

    Arrays of the two have the same number of axes; old entries go to the front of the new ones,
    and an array that has grown since its start keeps its room.
    """
    fields: dict[str, Any] = {}
    for (name, new), (_, old) in zip(_fields(fresh), _fields(state), strict=True):
        if _is_state(new):
            fields[name] = enlarge(new, old)
        else:
            fields[name] = np.zeros(np.maximum(new.shape, old.shape), new.dtype)
            for array in (new, old):
                fields[name][tuple(map(slice, array.shape))] = array
    return cast(State, fresh._replace(**fields))  # type: ignore[attr-defined]  # a NamedTuple


def duplicate(state: State) -> State:
    """Return a copy of a state, which may be changed without a trace."""
    parts = [duplicate(part) if _is_state(part) else part.copy() for _, part in _fields(state)]
    return type(state)(*parts)


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


def _fits(state: Any, name: str, array: np.ndarray, fresh: np.ndarray) -> bool:
    """Whether an array has the shape of a fresh one, or more room where it may grow."""
    if type(state) in _checks and name not in _growing[type(state)]:
        return array.shape == fresh.shape
    return array.ndim == fresh.ndim and all(
        have >= need for have, need in zip(array.shape, fresh.shape, strict=True)
    )


def _is_state(part: object) -> bool:
    return isinstance(part, tuple) and hasattr(part, "_fields")
