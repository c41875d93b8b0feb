"""The interface to numba: verbs, kernels and compiled entry points.

A *verb* is a generic function that dispatches on the type of its first argument, a ``NamedTuple``
of arrays: statically in compiled code, by a dictionary in plain Python. A *kernel* is a helper that
verbs call. An *entry point* is a function that Python calls. It is compiled once per combination of
state types and cached on disk, which is impossible for functions passed as arguments and for
closures.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import inspect
import linecache
import re
import shutil
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, cast

import numba
from numba import extending
from numba.core import caching, config, errors, sigutils
from numba.core.compiler_lock import global_compiler_lock

from freshband._lending import all_ours, read_only
from freshband._linking import ENTRY_OPTIONS, INNER_OPTIONS, UNALIASED_OPTIONS
from freshband.errors import RuleError

F = TypeVar("F", bound=Callable[..., Any])
_Place = tuple[str, str]  # a file, and a line

_OURS = __name__.partition(".")[0] + "."
# Files that call users' code, and so are not where an error comes from.
_CALLERS = ("coordinator.py", "_loop.py", "_fleet_loop.py", "_rounds.py", "_planning.py")
READS_ONLY = (
    "it writes into an array that it may only read, such as ages, assignment or outcome: copy "
    "what is needed into an array of the state"
)
_STALE = 3600.0  # seconds after which cache entries of older sources are removed


_PLACE = re.compile(r'(?:File "|\b(?:at|from) )([^"\n]+\.py)(?:", line | \()(\d+)')


class _Decorator(Protocol):
    def __call__(self, function: F, /) -> F: ...


# numba ships no annotations for these.
register_jitable: Callable[..., _Decorator] = extending.register_jitable
overload: Callable[..., _Decorator] = extending.overload


def kernel(function: F) -> F:
    """Mark a helper for use in compiled code, inlined where it is called."""
    return register_jitable(forceinline=True, **INNER_OPTIONS)(function)


def unaliased(function: F) -> F:
    """Mark a helper as `kernel` does; its arrays must not overlap, so that loops need no checks."""
    return register_jitable(forceinline=True, **UNALIASED_OPTIONS)(function)


def cold(function: F) -> F:
    """Mark a helper for use in compiled code that is called rarely: kept out of line."""
    return register_jitable(**INNER_OPTIONS)(function)


class Verb(Protocol):
    """A generic function for which state types register their versions."""

    def __call__(self, state: Any, /, *args: Any) -> Any: ...

    def register(self, *state_types: type) -> Callable[[F], F]:
        """Return a decorator that enters a version for these state types."""
        ...

    def knows(self, state_type: type) -> bool:
        """Return whether a state type has a version of its own."""
        ...


def verb(default: Callable[..., Any], *, inline: bool = True) -> Verb:
    """Make a generic function; the decorated one is the version for types that register none.

    Types register theirs with ``@name.register(StateType)``; names of parameters must be the same.
    Versions are inlined where they are called, unless ``inline`` is False.
    """
    table: dict[type, Callable[..., Any]] = {}
    _versions[default.__name__] = table
    signature = inspect.signature(default)

    @functools.wraps(default)
    def generic(state: Any, *args: Any) -> Any:
        return table.get(type(state), default)(state, *args)

    def register(*state_types: type) -> Callable[[F], F]:
        def enter(version: F) -> F:
            wanted, given = (
                ", ".join(inspect.signature(each).parameters) for each in (default, version)
            )
            if given != wanted:
                raise TypeError(
                    f"{default.__name__!r} must have the parameters ({wanted}), but "
                    f"{version.__name__!r} has ({given})"
                )
            for state_type in state_types:
                _claim_name(state_type)
                table[state_type] = version
            return version

        return enter

    def choose(state: Any, *args: Any) -> Callable[..., Any]:
        return table.get(getattr(state, "instance_class", type(state)), default)

    choose.__signature__ = signature  # type: ignore[attr-defined]  # numba folds arguments by it
    overload(generic, jit_options={"forceinline": inline, **INNER_OPTIONS}, strict=False)(choose)
    vars(generic).update(register=register, knows=table.__contains__)
    return cast(Verb, generic)


_owners: dict[str, type] = {}  # state types by name
_versions: dict[str, dict[type, Callable[..., Any]]] = {}  # of verbs, by name


def _claim_name(state_type: type) -> None:
    """Refuse two state types of one name, because numba's dispatcher compares only names."""
    owner = _owners.setdefault(state_type.__name__, state_type)
    if owner is not state_type:
        raise TypeError(
            f"state types need distinct names, but {state_type.__name__!r} of "
            f"{state_type.__module__} is taken by {owner.__module__}; rename one (in a notebook, "
            "restart the kernel before running a cell that defines a state again)"
        )


def entry_point(function: F) -> F:
    """Compile a function Python calls, with a disk cache keyed by all compiled sources."""
    dispatcher = numba.njit(**ENTRY_OPTIONS)(function)
    if hasattr(dispatcher, "_cache"):  # absent with NUMBA_DISABLE_JIT=1
        dispatcher._cache = _open_cache(function)
        unchecked = dispatcher.compile

        def compile_checked(signature: Any) -> Any:  # checks bounds where a user's state takes part
            types_used = sigutils.normalize_signature(signature)[0]
            foreign = not all_ours(types_used)
            with global_compiler_lock, _bounds_checked(foreign), _collecting_seldom():
                return unchecked(signature)

        dispatcher.compile = compile_checked
    return cast(F, dispatcher)


@contextlib.contextmanager
def _bounds_checked(wanted: bool) -> Iterator[None]:
    """Compile such that an index outside an array raises IndexError."""
    before = config.BOUNDSCHECK
    try:
        if wanted:
            config.BOUNDSCHECK = 1
        yield
    finally:
        config.BOUNDSCHECK = before


@contextlib.contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Keep Python's collector from searching the compiler's many objects all the time."""
    before = gc.get_threshold()
    try:
        gc.set_threshold(50_000, 50, 50)
        yield
    finally:
        gc.set_threshold(*before)


class explained:  # noqa: N801  # used as contextlib's are, but costs less in every round
    """Turn an error of the compiler or of a bounds check into one line that names the policy."""

    __slots__ = ("_policy",)

    def __init__(self, policy: str) -> None:
        self._policy = policy

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, errors.NumbaError | errors.UnsupportedBytecodeError):
            raise RuleError(
                f"policy {self._policy!r} cannot be compiled: {_gist(error)}"
            ) from error
        if error is not None and _failed_compiling(error):
            raise RuleError(
                f"policy {self._policy!r} cannot be compiled, which numba does not explain "
                f"({type(error).__name__}: {error}); 'freshband check' plays it as plain Python"
            ) from error
        if isinstance(error, IndexError):
            raise RuleError(
                f"policy {self._policy!r} used an index outside an array: {error}; with "
                "NUMBA_DISABLE_JIT=1 Python shows where"
            ) from error


def _failed_compiling(error: BaseException) -> bool:
    """Whether an error is one of the compiler's own mistakes, which are of any kind."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    home = Path(numba.__file__).parent
    return isinstance(error, Exception) and Path(files[-1]).is_relative_to(home)


def _gist(error: BaseException) -> str:
    """Return the compiler's complaint, which follows the last "(step: ...)", in one line."""
    plain = re.sub(r"\x1b\[\d*m", "", str(error))
    complaint = plain.rpartition("(step: ")[2].partition("\n")[2] or plain
    what = next(filter(None, map(str.strip, complaint.splitlines())), "no reason given")
    if what.startswith("No implementation of"):
        call = re.search(r">>> (.+)", complaint)
        what = f"no way to compute {call[1]}" if call else what
    if re.search(r"setitem[(]readonly array|Cannot modify readonly array", what):
        what = READS_ONLY
    what = re.sub(r"(\.* Raised from|, defined at) .*", "", what)  # the line follows
    what = re.sub(r"of type (\w+State)\(.*", r"of \1", what.replace("unaligned ", ""))
    near, all_named = (_PLACE.findall(text) for text in (complaint, plain))
    known = [place for place in near if Path(place[0]).name not in _CALLERS]
    own = [place for place in near + all_named[::-1] if not _is_library(Path(place[0]))]
    found = own or _compiled_last(error) or _unusable_version(plain, all_named) or known
    found = _lines_with(re.search(r"name '(\w+)' is not defined", what), found) + found
    where = [f" ({Path(file).name}, line {line})" for file, line in found]
    return (what if len(what) <= 200 else what[:197] + "...") + "".join(where[:1])


def _lines_with(name: re.Match[str] | None, places: list[_Place]) -> list[_Place]:
    """Return where a name stands first in a user's file: numba says only who called its kernel."""
    if name is None or not places or not Path(places[0][0]).is_file():
        return []
    lines = Path(places[0][0]).read_text(encoding="utf-8").splitlines()
    word = re.compile(rf"\b{name[1]}\b")
    found = [n for n, line in enumerate(lines, start=1) if word.search(line)]
    return [(places[0][0], str(n)) for n in found[:1]]


def _compiled_last(error: BaseException) -> list[_Place]:
    """Return the line of a user's file that numba was reading when it raised an error."""
    line, trace = 0, error.__traceback__
    frames = []
    while trace is not None:
        frames.append(trace.tb_frame.f_locals)
        trace = trace.tb_next
    for names in reversed(frames):
        instruction = names.get("inst") or names.get("current_inst")
        line = line or getattr(instruction, "lineno", 0)
        function = names.get("func_id")
        if function is not None and not _is_library(Path(function.filename)):
            return [(function.filename, str(line or function.firstlineno))]
    return []


def _unusable_version(message: str, places: list[_Place]) -> list[_Place]:
    """Return where a user's version of a verb begins whose result the package cannot use."""
    kinds = [_owners[name] for name in re.findall(r"\b(\w+)\(", message) if name in _owners]
    for file, line in places:
        source = linecache.getline(file, int(line))
        called = [table for name, table in _versions.items() if f"{name}(" in source]
        for version in (table[kind] for table in called for kind in kinds if kind in table):
            code = version.__code__
            if not _is_library(Path(code.co_filename)):
                return [(code.co_filename, str(code.co_firstlineno))]
    return []


def _is_library(path: Path) -> bool:
    """Whether a file is one of the package or of numba, and not the user's."""
    folders = (Path(__file__).parent, Path(numba.__file__).parent)
    return any(path.resolve().is_relative_to(folder) for folder in folders)


def _compiled_sources() -> list[Path]:
    """Return the files that compiled code comes from; editing others keeps the cache."""
    root = Path(__file__).parent
    names = ("fleet", "schedulers", "matching", "detectors")
    folders = [root, *(root / name for name in names)]
    others = (
        "channels/adversary",
        "channels/reactive",
        "simulation/_fleet_loop",
        "simulation/_loop",
        "theory/fleet",
    )
    paths = [path for folder in folders for path in folder.glob("*.py")]
    return sorted([*paths, *(root / f"{name}.py" for name in others)])


@functools.cache
def _fingerprint() -> str:
    """Hash the compiled sources: numba's own stamp sees only the entry point's file."""
    digest = hashlib.sha256()
    for path in _compiled_sources():
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _keyed(locator: type[Any]) -> type[Any]:
    """Return a numba cache locator whose folder is keyed by the package's sources.

    A stamp in the index would be too late: numba unpickles the index, classes included, first.
    """

    class Keyed(locator):  # type: ignore[misc]  # known only when it runs
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


def _open_cache(function: Callable[..., Any]) -> Any:
    """Return a disk cache, or none where no folder for it can be written."""
    try:
        return _PackageCache(function)
    except RuntimeError:  # numba found no writable folder
        _warn_once()
        return caching.NullCache()


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "no folder for compiled code is writable, so every process compiles again, which takes "
        "seconds per policy; set NUMBA_CACHE_DIR to a writable folder",
        RuntimeWarning,
        stacklevel=2,
    )


class _PackageCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]  # numba ships no annotations
    _locator_classes: ClassVar[list[type[Any]]] = [
        _keyed(each) for each in caching.CompileResultCacheImpl._locator_classes
    ]


class _PackageCache(caching.FunctionCache):  # type: ignore[misc]  # numba ships no annotations
    """The disk cache, for the package's own states only: editing a user's file takes effect."""

    _impl_class = _PackageCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return super().load_overload(sig, target_context) if all_ours(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        if all_ours(sig):
            with contextlib.suppress(OSError):  # full disk, missing folder: no cache
                super().save_overload(sig, data)


def is_ours(state: Any) -> bool:
    """Whether a state is made of the package's types alone: known when a kernel is compiled.

    Tests cover such states, so compiled rounds need not check them; plain Python checks all.
    """
    return False


@overload(is_ours, jit_options={"forceinline": True, **INNER_OPTIONS}, strict=False)
def _compiled_is_ours(state: Any) -> Any:
    return (lambda state: True) if all_ours((state,)) else (lambda state: False)


def shut(array: Any, state: Any) -> Any:
    """Return an array as the verbs of a state get it that only read it: writing is an error.

    A scheduler that wrote ages or outcomes would change what it is measured by. Compiled code of
    the package is trusted, and a user's that writes is not compiled.
    """
    seen = array.view()
    seen.flags.writeable = False
    return seen


@overload(shut, jit_options={"forceinline": True, **INNER_OPTIONS}, strict=False)
def _compiled_shut(array: Any, state: Any) -> Any:
    if all_ours((state,)):
        return lambda array, state: array
    return lambda array, state: read_only(array)
