"""``freshband flower new``: a ready Flower app in a folder."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from freshband.errors import FileError, ParameterError, reason

__all__ = ["write_app"]

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
scheduler = "glr-cucb"
matching = ""
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
# "" for freshband's algorithm, or a strategy of Flower's: "FedAvg", "FedAdam" ...
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
    if not package.isidentifier():
        raise ParameterError(f"DIR must end with a name a module can have, got {name!r}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError(f"cannot write {folder}: there is something already")
    about = {"name": name.lower().replace("_", "-"), "package": package}
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
