"""The client in shell, against a real service."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from freshband.service.app import create_app
from freshband.service.catalogue import Catalogue
from tests.service.calling import running

SCRIPT = Path(__file__).parents[2] / "examples" / "service_client.sh"
TOKEN = "a token for the shell"


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_shell_client_plays_rounds_and_goes_on_later() -> None:
    catalogue = Catalogue()
    catalogue.open("default", {"policy": "cucb", "n_clients": 3, "n_channels": 5})
    with running(create_app(catalogue, token=TOKEN)) as port:
        command = ["sh", str(SCRIPT), f"http://127.0.0.1:{port}", "4"]
        for _ in range(2):
            done = subprocess.run(
                command, env={"FRESHBAND_TOKEN": TOKEN}, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("round 5: channels ")
    assert '\nnext: {"round":8,' in done.stdout
    coordinator = catalogue["default"].coordinator
    assert coordinator.round == 7
    assert coordinator.open_rounds == [4, 8]  # those whose outcomes nobody reported
