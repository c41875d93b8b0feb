"""Registries: names for things, in the package's files and in the user's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freshband._registry import Registry
from freshband.channels.base import registry as channels
from freshband.errors import ParameterError, UnknownNameError
from freshband.matching.base import registry as matchings
from freshband.schedulers.base import registry as schedulers
from tests.simulation.refusing import refused

BASE = """
from freshband._registry import Registry
registry = Registry("tool", "toolbox")
"""
TOOL = """
from toolbox.base import registry
@registry.register("{name}")
class Tool:
    pass
"""


@pytest.fixture
def toolbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two files that register a tool each."""
    folder = tmp_path / "toolbox"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "base.py").write_text(BASE)
    for name in ("saw", "hammer"):
        (folder / f"{name}.py").write_text(TOOL.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "toolbox"]:
        del sys.modules[name]


def registry() -> Registry[Any]:
    found: Registry[Any] = importlib.import_module("toolbox.base").registry
    return found


def own(name: str) -> Any:
    """Return a class of a user's module."""
    return type("Own", (), {"__module__": name})


@pytest.mark.usefixtures("toolbox")
def test_a_file_is_all_it_takes() -> None:
    tools = registry()
    assert tools.names() == list(tools) == ["hammer", "saw"]
    assert "saw" in tools
    assert "drill" not in tools
    assert tools["saw"].__module__ == "toolbox.saw"
    assert tools.name_of(tools["saw"]) == "saw"
    assert tools.name_of(own("mine")) is None


def test_files_are_imported_on_first_use(toolbox: Path) -> None:
    tools = registry()
    assert "toolbox.saw" not in sys.modules
    assert "saw" in tools
    assert "toolbox.saw" in sys.modules


@pytest.mark.usefixtures("toolbox")
def test_users_register_from_their_own_modules() -> None:
    tools = registry()
    mine = own("mine")
    assert tools.register("drill")(mine) is mine
    assert tools.names() == ["drill", "hammer", "saw"]
    again = own("mine")
    tools.register("drill")(again)  # a cell of a notebook, run again
    assert tools["drill"] is again


@pytest.mark.usefixtures("toolbox")
def test_a_name_is_given_once() -> None:
    tools = registry()
    tools.register("drill")(own("mine"))
    with refused(ParameterError, "tool 'drill' is registered already, by "):
        tools.register("drill")(own("yours"))


@pytest.mark.usefixtures("toolbox")
def test_the_packages_names_are_taken_before_they_are_asked_for() -> None:
    tools = registry()
    with refused(ParameterError, "tool 'saw' is registered already, by <class 'toolbox.saw.Tool'>"):
        tools.register("saw")(own("mine"))
    assert tools["saw"].__module__ == "toolbox.saw"


def test_a_broken_file_is_told_every_time(toolbox: Path) -> None:
    (toolbox / "hammer.py").write_text("raise RuntimeError('no handle')")
    tools = registry()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no handle"):
            tools.names()
    (toolbox / "hammer.py").unlink()
    importlib.invalidate_caches()
    assert tools.names() == ["saw"]


@pytest.mark.usefixtures("toolbox")
@pytest.mark.parametrize("name", ["", "a b", "a:b", "a+b", "a,b", "a.b", "a=b", None, 3])
def test_names_must_fit_into_policies_and_settings(name: Any) -> None:
    with refused(ParameterError, "the name of a tool must be text without spaces and any of "):
        registry().register(name)


@pytest.mark.usefixtures("toolbox")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hamer", "unknown tool 'hamer'; did you mean 'hammer'"),
        ("x", "unknown tool 'x'; known: hammer, saw"),
        ("", "unknown tool ''; known: hammer, saw"),
        (None, "unknown tool None; known: "),
        (["saw"], r"unknown tool \['saw'\]; "),
        (3, "unknown tool 3; known: "),
    ],
)
def test_unknown_names_get_a_hint(name: Any, message: str) -> None:
    with refused(UnknownNameError, message):
        registry()[name]


def test_what_the_issue_asks_for_is_registered() -> None:
    assert set(schedulers) >= {
        "random", "oracle", "cucb", "kl-ucb", "thompson", "glr-cucb", "m-exp3",
    }  # fmt: skip
    assert set(matchings) >= {"rotate", "random", "fixed", "age"}
    assert set(channels) >= {
        "stationary", "piecewise", "switching", "jammer", "gilbert-elliott", "table", "trace",
    }  # fmt: skip
