"""States as compiled code sees them: borrowed from the caller, passed as they are or by address.

numba unpacks each array of a state on every call, at half a microsecond per array, and counts
references to it. `Caller` passes the address of the tuple alone, in which compiled code finds the
arrays.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, typeof
from numba._dispatcher import compute_fingerprint
from numba.core import cgutils, datamodel, types

from freshband._linking import INNER_OPTIONS, overload

_OURS = __name__.partition(".")[0] + "."
_WORD = ir.IntType(64)


class Lent(types.Type):  # type: ignore[misc]  # numba ships no annotations
    """The type of a value that is passed by its address."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(f"Lent({kind.name})")


extending.register_model(Lent)(datamodel.models.OpaqueModel)


@extending.unbox(Lent)  # type: ignore[untyped-decorator]  # numba ships no annotations
def _read_address(kind: Any, number: Any, c: Any) -> Any:
    return extending.NativeValue(c.pyapi.long_as_voidptr(number))


def all_ours(types_used: Any) -> bool:
    """Whether every named tuple in a signature is defined inside the package."""
    return all(
        (not hasattr(each, "instance_class") or each.instance_class.__module__.startswith(_OURS))
        and (not isinstance(each, types.BaseTuple) or all_ours(tuple(each)))
        and (not isinstance(each, Lent) or all_ours((each.kind,)))
        for each in types_used
    )


def _apart(kind: Any) -> Any:
    """Return the same type with its arrays marked as unaligned: equal in all but its name.

    So kernels that a foreign state calls are compiled for it alone, with bounds checked, and do not
    share code with the package's states.
    """
    if isinstance(kind, types.BaseNamedTuple):
        return types.BaseTuple.from_types(
            [_apart(part) for part in kind.types], kind.instance_class
        )
    if isinstance(kind, types.Array):
        return types.Array(
            kind.dtype, kind.ndim, kind.layout, readonly=not kind.mutable, aligned=False
        )
    return kind


# ---------------------------------------------------------------------------------- addresses

# Where a tuple object, PyTupleObject of Python's C interface, has its items, in words.
_ITEMS = tuple.__basicsize__ // 8
# Where an array object, PyArrayObject_fields of numpy's C interface, has its pointers.
_DATA = object.__basicsize__ // 8
_SHAPE, _STRIDES = _DATA + 2, _DATA + 3
# Where bitgen_t, of the same interface, has a generator's state and functions.
_DRAWS = {"state": 0, "fnptr_next_uint64": 1, "fnptr_next_uint32": 2, "fnptr_next_double": 3}

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _address_of(value: Any) -> int:
    """Return the address of a tuple or an array, or of what a generator draws from."""
    if isinstance(value, np.random.Generator):
        return int(_capsule_pointer(value.bit_generator.capsule, b"BitGenerator"))
    return id(value)


def _read(context: Any, builder: Any, kind: Any, address: Any) -> Any:
    """Return the value at an address."""

    def proxy(kind: Any) -> Any:
        return cgutils.create_struct_proxy(kind)(
            context, builder, value=cgutils.get_null_value(context.get_value_type(kind))
        )

    words = _Words(builder, address)
    if isinstance(kind, types.BaseTuple):
        parts = [
            _read(context, builder, part, words[_ITEMS + place])
            for place, part in enumerate(kind.types)
        ]
        return context.make_tuple(builder, kind, parts)
    made = proxy(kind)
    if isinstance(kind, types.Array):
        item = context.get_data_type(kind.dtype)
        shape, strides = (_Words(builder, words[place]) for place in (_SHAPE, _STRIDES))
        sizes = [shape[axis] for axis in range(kind.ndim)]
        made.data = builder.inttoptr(words[_DATA], item.as_pointer())
        made.nitems = functools.reduce(builder.mul, sizes, ir.Constant(_WORD, 1))
        made.itemsize = ir.Constant(_WORD, context.get_abi_sizeof(item))
        made.shape = cgutils.pack_array(builder, sizes, _WORD)
        made.strides = cgutils.pack_array(
            builder, [strides[axis] for axis in range(kind.ndim)], _WORD
        )
    else:
        source = proxy(types.NumPyRandomBitGeneratorType("bit_generator"))
        for name, place in _DRAWS.items():
            setattr(source, name, words[place])
        source.state_address = words[_DRAWS["state"]]
        made.bit_generator = source._getvalue()
    return made._getvalue()


class _Words:
    """Numbers in memory, which do not change while compiled code runs."""

    def __init__(self, builder: Any, address: Any) -> None:
        self._builder = builder
        self._first = builder.inttoptr(address, _WORD.as_pointer())

    def __getitem__(self, place: int) -> Any:
        word = self._builder.load(self._builder.gep(self._first, [ir.Constant(_WORD, place)]))
        word.set_metadata("invariant.load", self._builder.module.add_metadata([]))
        return word


# ------------------------------------------------------------------------------------ lending


def _strip(context: Any, builder: Any, kind: Any, held: Any) -> Any:
    """Return a value whose arrays are not counted."""
    if isinstance(kind, types.BaseTuple):
        for position, part in enumerate(kind.types):
            inner = _strip(context, builder, part, builder.extract_value(held, position))
            held = builder.insert_value(held, inner, position)
        return held
    if isinstance(kind, types.Array | types.NumPyRandomGeneratorType):
        proxy = cgutils.create_struct_proxy(kind)(context, builder, value=held)
        proxy.meminfo = cgutils.get_null_value(proxy.meminfo.type)
        return proxy._getvalue()
    return held


@extending.intrinsic  # type: ignore[untyped-decorator]  # numba ships no annotations
def _lend(typing_context: Any, value: Any) -> Any:
    kind = value.kind if isinstance(value, Lent) else value
    lent = kind if all_ours((kind,)) else _apart(kind)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if isinstance(signature.args[0], Lent):
            return _read(context, builder, lent, builder.ptrtoint(args[0], _WORD))
        return _strip(context, builder, kind, args[0])

    return lent(value), generate


def lend(value: Any) -> Any:
    """Return ``value`` with its arrays stripped of reference counts.

    Called once at an entry point, whose caller keeps the arrays alive: counting references to every
    array in every round would cost more than the round itself.
    """
    return value


@overload(lend, jit_options={"forceinline": True, **INNER_OPTIONS}, strict=False)
def _compiled_lend(value: Any) -> Any:
    return lambda value: _lend(value)


@extending.intrinsic  # type: ignore[untyped-decorator]  # numba ships no annotations
def read_only(typing_context: Any, value: Any) -> Any:
    """Return a lent array as one that compiled code cannot write."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0]

    return value.copy(readonly=True)(value), generate


# ------------------------------------------------------------------------------------ binding


_kinds: dict[bytes | type, Lent] = {}
_records: list[np.dtype[Any]] = []  # a fingerprint has the addresses of these, so they must stay


def _kind_of(value: Any) -> Lent:
    """Return the type of a value; numba's fingerprint of it is made in less time than the type."""
    generates = isinstance(value, np.random.Generator)  # these have no fingerprint
    mark = np.random.Generator if generates else compute_fingerprint(value)
    kind = _kinds.get(mark)
    if kind is None:
        if not generates:
            _records.extend(array.dtype for array in _arrays(value) if array.dtype.fields)
        kind = _kinds[mark] = Lent(typeof(value))
    return kind


def _arrays(value: Any) -> Iterator[np.ndarray]:
    """Yield the arrays of a state; anything else in it is an error."""
    if isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)
    elif type(value) is np.ndarray:
        yield value
    else:
        raise TypeError(f"a state must consist of arrays, got {type(value).__name__}")


class Caller:
    """Calls an entry point whose first arguments, states, are passed by address.

    Whole numbers follow. Types and addresses are looked up again only if a state is not the object
    it was in the last call.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = self._run = function
        self._states: tuple[Any, ...] = ()
        self._kinds: tuple[Lent, ...] = ()
        self._given: list[Any] = []  # what the function gets instead of the states

    def __call__(self, states: tuple[Any, ...], *numbers: int) -> Any:
        if not self._states or not all(map(operator.is_, states, self._states)):
            self._take(states)
        return self._run(*self._given, *numbers)

    def _take(self, states: tuple[Any, ...]) -> None:
        if not hasattr(self._function, "overloads"):  # NUMBA_DISABLE_JIT=1
            self._states, self._given = states, list(states)
            return
        kinds = tuple(map(_kind_of, states))
        if kinds != self._kinds:
            self._run = _compiled(self._function, kinds)
            self._kinds = kinds
        self._states, self._given = states, list(map(_address_of, states))


@functools.cache
def _compiled(function: Any, kinds: tuple[Lent, ...]) -> Callable[..., Any]:
    """Return the machine code of an entry point for lent states."""
    numbers = len(inspect.signature(function.py_func).parameters) - len(kinds)
    signature = (*kinds, *[types.int64] * numbers)
    if signature not in function.overloads:
        function.compile(signature)
    return function.overloads[signature].entry_point  # type: ignore[no-any-return]  # of numba
