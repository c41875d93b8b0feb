"""States are trees of arrays: how to grow, flatten and rebuild them.

A state is a ``NamedTuple`` whose fields are numpy arrays or further states. Everything mutable
lives in one and is written in place, so a run can be saved, copied and handed to compiled code.
A state type may name fields in ``DERIVED``: look-up tables that are rebuilt, not saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

import numpy as np

from freshband.errors import FileError

__all__ = ["arrays", "rebuild", "reserve"]

State = TypeVar("State", bound=tuple[Any, ...])

_growers: dict[type, Any] = {}


def reserve(state: State, rounds: int) -> State:
    """Return ``state`` with room for ``rounds`` more rounds.

    Arrays cannot grow inside a kernel, so this runs between blocks. State types that need room
    register how with ``@reserve.register(StateType)``; all others just pass the call on to the
    states they hold. The state given is not used any more afterwards.
    """
    grower = _growers.get(type(state))
    if grower is not None:
        return cast(State, grower(state, rounds))
    inner = {name: reserve(part, rounds) for name, part in _fields(state) if _is_state(part)}
    return cast(State, state._replace(**inner)) if inner else state  # type: ignore[attr-defined]


def _register(state_type: type) -> Any:
    def enter(grower: Any) -> Any:
        _growers[state_type] = grower
        return grower

    return enter


reserve.register = _register  # type: ignore[attr-defined]


def arrays(state: tuple[Any, ...], prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield ``(path, array)`` for every array that must be saved.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Inner(NamedTuple):
    ...     counts: np.ndarray
    >>> class Outer(NamedTuple):
    ...     inner: Inner
    ...     clock: np.ndarray
    >>> [path for path, _ in arrays(Outer(Inner(np.zeros(2)), np.zeros(1)))]
    ['inner.counts', 'clock']
    """
    derived = getattr(type(state), "DERIVED", ())
    for name, part in _fields(state):
        if _is_state(part):
            yield from arrays(part, f"{prefix}{name}.")
        elif name not in derived:
            yield prefix + name, part


def rebuild(state: State, saved: Mapping[str, np.ndarray], prefix: str = "") -> State:
    """Return ``state`` with its arrays replaced by those ``saved`` under the same paths."""
    derived = getattr(type(state), "DERIVED", ())
    fields: dict[str, Any] = {}
    for name, part in _fields(state):
        if _is_state(part):
            fields[name] = rebuild(part, saved, f"{prefix}{name}.")
        elif name not in derived:
            array = saved.get(prefix + name)
            if array is None or array.dtype != part.dtype or array.ndim != part.ndim:
                raise FileError(f"saved state does not fit this problem at {prefix + name!r}")
            fields[name] = np.ascontiguousarray(array)
    return cast(State, state._replace(**fields))  # type: ignore[attr-defined]


def _fields(state: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    return zip(state._fields, state, strict=True)  # type: ignore[attr-defined]


def _is_state(part: object) -> bool:
    return isinstance(part, tuple) and hasattr(part, "_fields")
