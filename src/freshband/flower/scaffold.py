"""A Flower app in a folder: ``flower new`` writes it, ``flower up`` reads what it says."""

from __future__ import annotations

import keyword
import re
import shlex
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from freshband.errors import FileError, ParameterError, reason

__all__ = ["read_app", "write_app"]

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "Handwritten digits, learned over channels nobody can trust"
license = "Apache-2.0"
# Empty on purpose: Flower would install these wherever the app runs. Whoever runs it has
# freshband[flower] already.
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

# Any setting of `freshband list training`; dashes or underscores. "" stands for nothing.
[tool.flwr.app.config]
clients = {clients}
rounds = {rounds}
seed = 0
policy = "glr-cucb"
matching = ""
algorithm = "renorm"
channels = "fig3-piecewise"
partition = "dirichlet"
local-steps = 5
client-lr = 0.05
# What "delivered" means: "simulated" (the channels above decide), or "deadline" (a real link:
# what arrived before so many seconds).
uplink = "simulated"
deadline = 30.0
# Seconds to wait for all clients to be there before the first round.
wait-for-clients = 120.0
# "" for the algorithm above, or a strategy of Flower's: "FedAvg", "FedAdam" ...
strategy = ""
# Folder for checkpoints and result.nc, absolute; "" to keep nothing. A run started again goes on.
out = ""
"""

_README = """\
# {name}

Made by `freshband flower new`. Simulated, in Flower's own engine, with {clients} clients:

    flwr run . local --federation-config "num-supernodes={clients}" --stream

As real processes on this machine, over TLS, each client with a key of its own:

    freshband flower up .

`{package}/task.py` is what is learned, `{package}/client_app.py` what a client does,
`{package}/server_app.py` the rounds; `pyproject.toml` holds the settings.
"""


def write_app(folder: Path, *, clients: int = 4, rounds: int = 10) -> list[Path]:
    """Write a Flower app that learns digits; return the files.

    Raises
    ------
    FileError
        If there is something in the folder, or it cannot be written.
    """
    name = folder.resolve().name
    package = re.sub(r"\W+", "_", name).strip("_").lower()
    if not package.isidentifier() or keyword.iskeyword(package):
        raise ParameterError(f"DIR must end with a name a module can have, got {name!r}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError(f"cannot write {folder}: there is something already")
    short = package[:32].strip("_").replace("_", "-")  # Flower takes no longer name
    about = {"name": short, "package": package}
    about |= {"clients": str(clients), "rounds": str(rounds)}
    texts = {
        "pyproject.toml": _PROJECT.format(**about),
        "README.md": _README.format(**about),
    }
    template = resources.files("freshband.flower") / "template"
    for file in ("__init__.py", "task.py", "client_app.py", "server_app.py"):
        text = (template / file).read_text(encoding="utf-8")
        texts[f"{package}/{file}"] = text.replace("freshband.flower.template", package)
    try:
        (folder / package).mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {folder}: {reason(error)}") from None
    return [folder / path for path in texts]


def read_app(app: Path) -> dict[str, Any]:
    """Return the configuration of the Flower app in a folder, tables as ``table.key``.

    Raises
    ------
    FileError
        If there is none.
    """
    project = app / "pyproject.toml"
    if not project.is_file():
        command = f"freshband flower new {shlex.quote(str(app))}"
        raise FileError(f"{app} holds no Flower app; make one with: {command}")
    try:
        found = tomllib.loads(project.read_text(encoding="utf-8"))
        return _flat(found["tool"]["flwr"]["app"].get("config", {}))
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {project}: {error}") from None
    except (KeyError, TypeError, AttributeError):
        raise FileError(f"{project} is not of a Flower app: it has no [tool.flwr.app]") from None


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= (
            _flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value}
        )
    return flat
