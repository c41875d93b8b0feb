"""Where numba meets the package: verbs, kernels and compiled entry points.

A *verb* is a generic function that dispatches on the type of its first argument, a
``NamedTuple`` of arrays. Compiled code resolves it statically (`numba.extending.overload`), plain
Python by a dictionary, so the same source runs both ways and states that hold states just call the
verb again. A *kernel* is a plain helper that verbs call. An *entry point* is what Python calls:
compiled once per combination of state types and cached on disk.

Why not functions passed as arguments or closures: those never hit numba's disk cache, which costs
seconds per policy in every process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, cast

import numba
from numba.core import caching, cgutils, types
from numba.extending import intrinsic, overload, register_jitable

__all__ = ["Verb", "cold", "compiled_sources", "entry_point", "kernel", "lend", "verb"]

F = TypeVar("F", bound=Callable[..., Any])

# Division by zero gives inf or nan as in numpy arrays: kernels trust their input, never raise.
_OURS = __name__.partition(".")[0] + "."
_STALE = 3600.0  # seconds after which what older sources left in the cache is removed
_OPTIONS = {"nogil": True, "error_model": "numpy"}


def kernel(function: F) -> F:
    """Mark a helper for use in compiled code, inlined where it is called."""
    return register_jitable(forceinline=True, **_OPTIONS)(function)  # type: ignore[no-any-return]


def cold(function: F) -> F:
    """Mark a helper for use in compiled code that is called rarely: kept out of line."""
    return register_jitable(**_OPTIONS)(function)  # type: ignore[no-any-return]


class Verb(Protocol):
    """A generic function that state types register their versions of."""

    def __call__(self, state: Any, /, *args: Any) -> Any:
        """Do it, the way the state's type does."""
        ...

    def register(self, *state_types: type) -> Callable[[F], F]:
        """Return a decorator that enters a version for these state types."""
        ...

    def knows(self, state_type: type) -> bool:
        """Whether a state type has a version of its own."""
        ...


def verb(default: Callable[..., Any]) -> Verb:
    """Make a generic function that dispatches on the type of its first argument.

    The decorated function is the version for types that register none. Types register theirs
    with ``@name.register(StateType)``; signatures must agree to the letter.
    """
    table: dict[type, Callable[..., Any]] = {}
    signature = inspect.signature(default)

    @functools.wraps(default)
    def generic(state: Any, *args: Any) -> Any:
        return table.get(type(state), default)(state, *args)

    def register(*state_types: type) -> Callable[[F], F]:
        def enter(version: F) -> F:
            if list(inspect.signature(version).parameters) != list(signature.parameters):
                raise TypeError(f"{default.__name__}{signature}: {version} has other parameters")
            for state_type in state_types:
                _claim_name(state_type)
                table[state_type] = version
            return version

        return enter

    def choose(state: Any, *args: Any) -> Callable[..., Any]:
        return table.get(getattr(state, "instance_class", type(state)), default)

    choose.__signature__ = signature  # type: ignore[attr-defined]  # numba folds arguments by it
    overload(generic, jit_options={"forceinline": True, **_OPTIONS}, strict=False)(choose)
    generic.register = register  # type: ignore[attr-defined]
    generic.knows = table.__contains__  # type: ignore[attr-defined]
    return cast(Verb, generic)


_owners: dict[str, type] = {}


def _claim_name(state_type: type) -> None:
    """Refuse two state types of one name: numba would run the first one's code for both.

    Its dispatcher tells named tuples apart by the bare class name and the fields' types only.
    """
    owner = _owners.setdefault(state_type.__name__, state_type)
    if owner is not state_type:
        raise TypeError(
            f"state types need distinct names, but {state_type.__name__!r} of "
            f"{state_type.__module__} is taken by {owner.__module__}; rename one (in a notebook, "
            "restart the kernel before running a cell that defines a state again)"
        )


def entry_point(function: F) -> F:
    """Compile a function Python calls, with a disk cache keyed by all compiled sources."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    if hasattr(dispatcher, "_cache"):  # absent with NUMBA_DISABLE_JIT=1
        dispatcher._cache = _PackageCache(function)
    return dispatcher  # type: ignore[no-any-return]


def compiled_sources() -> list[Path]:
    """Return the files that compiled code comes from.

    Command line, reports and channel models hold none: editing them keeps the cache.
    """
    root = Path(__file__).parent
    folders = [root, root / "schedulers", root / "matching", root / "detectors"]
    return sorted(
        [
            *(path for folder in folders for path in folder.glob("*.py")),
            root / "simulation" / "loop.py",
        ]
    )


@functools.cache
def _fingerprint() -> str:
    """Hash the compiled sources: numba's own stamp sees only the entry point's file."""
    digest = hashlib.sha256()
    for path in compiled_sources():
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _keyed(locator: type[Any]) -> type[Any]:
    """Return a numba cache locator whose folder is keyed by the package's sources.

    A stamp in the index would not do: numba unpickles the index before it looks at the stamp, and
    fails when a class in it is gone.
    """

    class Keyed(locator):  # type: ignore[misc]
        def get_cache_path(self) -> str:
            parent = Path(super().get_cache_path())
            return str(parent / f"{_OURS}{_fingerprint()[:16]}")

        def ensure_cache_path(self) -> None:
            super().ensure_cache_path()
            folder = Path(self.get_cache_path())
            for other in folder.parent.glob(f"{_OURS}*"):
                if other != folder and time.time() - other.stat().st_mtime > _STALE:
                    shutil.rmtree(other, ignore_errors=True)

    return Keyed


class _PackageCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes: ClassVar[list[type[Any]]] = [
        _keyed(each) for each in caching.CompileResultCacheImpl._locator_classes
    ]


class _PackageCache(caching.FunctionCache):  # type: ignore[misc]
    """The disk cache, for the package's own states only.

    The sources of states defined elsewhere are not in the stamp, so code compiled for them is never
    stored: editing a scheduler of one's own always takes effect.
    """

    _impl_class = _PackageCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return super().load_overload(sig, target_context) if _all_ours(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        if _all_ours(sig):
            with contextlib.suppress(OSError):  # a full disk or a vanished folder: go on without
                super().save_overload(sig, data)


def _all_ours(types_used: Any) -> bool:
    """Whether every named tuple in a signature is defined inside the package."""
    return all(
        (not hasattr(each, "instance_class") or each.instance_class.__module__.startswith(_OURS))
        and (not isinstance(each, types.BaseTuple) or _all_ours(tuple(each)))
        for each in types_used
    )


@intrinsic  # type: ignore[untyped-decorator]
def _lend(typing_context: Any, value: Any) -> Any:
    def strip(context: Any, builder: Any, kind: Any, held: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            for position, part in enumerate(kind.types):
                inner = strip(context, builder, part, builder.extract_value(held, position))
                held = builder.insert_value(held, inner, position)
            return held
        if isinstance(kind, types.Array | types.NumPyRandomGeneratorType):
            proxy = cgutils.create_struct_proxy(kind)(context, builder, value=held)
            proxy.meminfo = cgutils.get_null_value(proxy.meminfo.type)
            return proxy._getvalue()
        return held

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return strip(context, builder, signature.args[0], args[0])

    return value(value), generate


def lend(value: Any) -> Any:
    """Return ``value`` with its arrays stripped of reference counts.

    Called once at an entry point, whose caller keeps the arrays alive: without it every array in
    every state is counted up and down in every round, which costs more than the round itself.
    """
    return value


@overload(lend, jit_options={"forceinline": True, **_OPTIONS}, strict=False)  # type: ignore[untyped-decorator]
def _compiled_lend(value: Any) -> Any:
    return lambda value: _lend(value)
