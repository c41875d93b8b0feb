"""A Flower app in a folder: ``flower new`` writes it, ``flower up`` reads its configuration."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from freshband._files import write_whole
from freshband._parsing import parse_toml
from freshband.errors import FileError, ParameterError


def write_app(folder: Path, *, clients: int = 4, rounds: int = 10) -> list[Path]:
    """Write a Flower app that learns digits; return the files.

    Raises `FileError` if there is something in the folder, or it cannot be written.
    """
    name = folder.resolve().name
    package = re.sub(r"\W+", "_", name).strip("_").lower()
    if not package.isidentifier() or keyword.iskeyword(package):
        raise ParameterError(f"DIR must end with a name a module can have, got {name!r}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError(f"cannot write {folder}: there is something already")
    short = package[:32].strip("_").replace("_", "-")  # Flower takes no longer name
    template = resources.files("freshband.flower") / "template"
    texts = {}
    for file in ("pyproject.toml", "README.md"):
        text = (template / f"{file}.in").read_text(encoding="utf-8")
        texts[file] = text.format(name=short, package=package, clients=clients, rounds=rounds)
    for file in ("__init__.py", "task.py", "client_app.py", "server_app.py"):
        text = (template / file).read_text(encoding="utf-8")
        texts[f"{package}/{file}"] = text.replace("freshband.flower.template", package)
    for path, text in texts.items():
        write_whole(folder / path, text.encode())
    return [folder / path for path in texts]


def read_app(app: Path) -> dict[str, Any]:
    """Return the configuration of the Flower app in a folder, tables as ``table.key``."""
    project = app / "pyproject.toml"
    if not project.is_file():
        command = f"freshband flower new {shlex.quote(str(app))}"
        raise FileError(f"{app} holds no Flower app; make one with: {command}")
    try:
        found = parse_toml(project.read_text(encoding="utf-8"))
        return _flat(found["tool"]["flwr"]["app"].get("config", {}))
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {project}: {error}") from None
    except (KeyError, TypeError, AttributeError):
        raise FileError(f"{project} is not of a Flower app: it has no [tool.flwr.app]") from None


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = before + key
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat
