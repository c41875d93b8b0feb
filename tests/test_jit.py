"""Verbs, the names of states, and what may be cached on disk."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

import freshband
from freshband import _jit
from freshband._jit import _compiled_sources, entry_point, verb
from freshband._lending import all_ours, lend
from freshband._policy import parse_policy
from freshband.detectors.glr import Glr
from freshband.matching.base import registry as matchings
from freshband.schedulers._aoi_aware import wrap
from freshband.schedulers.base import means
from freshband.schedulers.base import registry as schedulers

PACKAGE = Path(freshband.__file__).parent
with_compiler = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="about compiled code")


class CatState(NamedTuple):
    size: NDArray[np.float64]


class DogState(NamedTuple):
    size: NDArray[np.float64]


class HouseState(NamedTuple):
    pet: Any
    rooms: NDArray[np.float64]


@verb
def noise(animal: Any, loudness: float) -> float:
    """Answer for animals nobody told about."""
    return -1.0


@noise.register(CatState)
def _mew(animal: CatState, loudness: float) -> float:
    return animal.size[0] * loudness  # type: ignore[no-any-return]


@noise.register(HouseState)
def _house(animal: HouseState, loudness: float) -> float:
    animal.rooms[0] += 1.0
    return noise(animal.pet, 2.0 * loudness)  # type: ignore[no-any-return]


@entry_point
def listen(animal: Any, loudness: float) -> float:
    return noise(lend(animal), loudness)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------ verbs


def test_a_verb_knows_who_has_a_version() -> None:
    assert noise.knows(CatState)
    assert not noise.knows(DogState)


@pytest.mark.parametrize("call", [noise, listen], ids=["plain", "compiled"])
def test_a_verb_goes_by_the_type_of_its_first_argument(call: Any) -> None:
    cat, dog = CatState(np.array([3.0])), DogState(np.array([3.0]))
    assert call(cat, 2.0) == 6.0
    assert call(dog, 2.0) == -1.0  # the default, for types that registered none
    house = HouseState(cat, np.zeros(1))
    assert call(house, 2.0) == 12.0
    assert house.rooms[0] == 1.0  # written in place, also when lent
    assert call(HouseState(dog, np.zeros(1)), 2.0) == -1.0


@with_compiler
def test_only_entry_points_become_machine_code() -> None:
    listen(HouseState(CatState(np.ones(1)), np.zeros(1)), 1.0)
    compiled: Any = listen
    [library, *_] = [each.library for each in compiled.overloads.values()]
    symbols = library.codegen._engine._defined_symbols
    known = [name for name in symbols if not name.startswith("_ZN08NumbaEnv")]  # functions
    assert any("listen" in name for name in known)
    assert not any("_house" in name or "_mew" in name for name in known)


def test_a_version_with_other_parameters_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must have the parameters \(animal, loudness\), but"):

        @noise.register(DogState)
        def _bark(animal: DogState, volume: float) -> float:
            return volume

    assert noise(DogState(np.zeros(1)), 1.0) == -1.0


def test_two_state_types_of_one_name_are_refused() -> None:
    class BirdState(NamedTuple):
        size: NDArray[np.float64]

    first = BirdState
    noise.register(first)(_mew)
    noise.register(first)(_mew)  # the same one again is fine

    class BirdState(NamedTuple):  # type: ignore[no-redef]
        size: NDArray[np.float64]

    with pytest.raises(TypeError, match=r"distinct names.*'BirdState'.*taken by"):
        noise.register(BirdState)(_mew)
    assert noise(BirdState(np.ones(1)), 1.0) == -1.0  # and nothing was entered


def test_a_state_named_like_one_of_ours_is_refused() -> None:
    class _GlrState(NamedTuple):
        size: NDArray[np.float64]

    with pytest.raises(TypeError, match=r"taken by freshband\.detectors\.glr"):
        means.register(_GlrState)(lambda scheduler, out: None)


# ----------------------------------------------------------------- the fingerprint of the sources


def package_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def decorators(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                yield node.name, decorator


def test_every_kernel_verb_and_entry_point_is_in_the_fingerprint() -> None:
    """Code compiled from any other file would be loaded stale after an edit."""
    known = set(_compiled_sources())
    marks = {"kernel", "cold", "verb", "entry_point"}
    found = 0
    for path in package_files():
        for name, mark in decorators(ast.parse(path.read_text())):
            if isinstance(mark, ast.Name) and mark.id in marks:
                found += 1
                assert path in known, f"{name} of {path} is compiled, but not in the fingerprint"
    assert found > 50


def verbs() -> Iterator[dict[type, Callable[..., Any]]]:
    """The versions of every verb the package defines."""
    assert schedulers.names()  # imports every file that registers any
    assert matchings.names()
    for module in [name for name in sys.modules if name.startswith("freshband.")]:
        for thing in vars(sys.modules[module]).values():
            if callable(getattr(thing, "knows", None)) and hasattr(thing, "__wrapped__"):
                cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
                yield dict(cells)["table"].cell_contents


def test_every_registered_version_is_in_the_fingerprint() -> None:
    known = {str(path) for path in _compiled_sources()}
    versions = {
        version
        for table in verbs()
        for kind, version in table.items()
        if kind.__module__.startswith("freshband.")
    }
    assert len(versions) > 40
    for version in versions:
        assert version.__code__.co_filename in known, version


def test_the_fingerprint_changes_with_any_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in files:
        path.write_text("x = 1\n")
    monkeypatch.setattr(_jit, "_compiled_sources", lambda: files)
    fingerprint = _jit._fingerprint.__wrapped__
    seen = {fingerprint()}
    for path in files:
        path.write_text("x = 2\n")
        seen.add(fingerprint())
    assert len(seen) == 3


def test_compiled_sources_exist_and_leave_out_what_is_never_compiled() -> None:
    names = {path.relative_to(PACKAGE).as_posix() for path in _compiled_sources()}
    assert all((PACKAGE / name).is_file() for name in names)
    assert {"ranking.py", "_rounds.py", "coordinator.py", "simulation/_loop.py"} <= names
    assert {"simulation/_fleet_loop.py", "fleet/_planning.py", "fleet/_learning.py"} <= names
    assert {"schedulers/glr_cucb.py", "matching/age.py", "detectors/glr.py"} <= names
    assert {"channels/adversary.py", "channels/reactive.py"} <= names
    assert not any(name.startswith(("cli/", "reporting/", "channels/piecewise")) for name in names)


# --------------------------------------------------------------------------------- the disk cache


def test_only_our_own_states_are_cached() -> None:
    rng = np.random.default_rng(0)
    ours, matching = parse_policy("glr-cucb+aa").start(2, 5, rng, 10)
    foreign = CatState(np.zeros(1))
    one, two = numba.typeof(ours), numba.typeof(matching)
    assert all_ours((one, two, numba.typeof(rng), numba.int64))
    assert not all_ours((one, numba.typeof(foreign)))
    assert not all_ours((numba.typeof(wrap(foreign, "sum", 2, 5)),))  # inside one of ours
    assert not all_ours((numba.typeof(HouseState(ours, np.zeros(1))),))
    assert not all_ours((numba.typeof((1, foreign)),))  # in a plain tuple


@entry_point
def _first_count(detector: Any) -> int:
    return detector.book[0]["count"] + 1  # type: ignore[no-any-return]


def saved_files(dispatcher: Any) -> list[Path]:
    return list(Path(dispatcher._cache.cache_path).glob(f"*{dispatcher.py_func.__name__}*.nbc"))


@with_compiler
def test_code_for_foreign_states_never_reaches_the_disk() -> None:
    listen(CatState(np.array([1.0])), 2.0)
    assert listen.signatures
    assert saved_files(listen) == []
    assert sum(listen.stats.cache_hits.values()) == 0


@with_compiler
def test_code_for_our_states_does_in_a_folder_named_by_the_fingerprint() -> None:
    assert _first_count(Glr().start(1)) == 1
    assert saved_files(_first_count)
    folder = Path(_first_count._cache.cache_path).name
    assert folder == f"freshband.{_jit._fingerprint()[:16]}"


# ------------------------------------------------------------------------- where nothing is cached

TRY = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import freshband.simulation
    from freshband import Coordinator
    plan = Coordinator("random", n_clients=2, n_channels=5).plan()
print(len(plan), [str(each.message) for each in caught if each.category is RuntimeWarning])
"""


@with_compiler
@pytest.mark.parametrize("writable", [True, False])
def test_a_read_only_installation_works(tmp_path: Path, writable: bool) -> None:
    """It caches in the user's folder; without one it compiles every time and says so once."""
    package = tmp_path / "installed" / "freshband"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (
            folder / "__pycache__"
        ).touch()  # a file in its place cannot be made a folder, even by root
    home = tmp_path / "home"
    home.mkdir()
    nowhere = home if writable else tmp_path / "installed" / "freshband" / "__init__.py"
    tried = subprocess.run(
        [sys.executable, "-c", TRY],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(package.parent),
            "HOME": str(nowhere),
            "XDG_CACHE_HOME": str(nowhere / "cache"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    if writable:
        assert tried.stdout.strip() == "2 []"
        assert list(home.rglob("*.nbi"))
    else:
        assert tried.stdout.startswith("2 ['no folder for compiled code is writable")
        assert tried.stdout.count("NUMBA_CACHE_DIR") == 1
