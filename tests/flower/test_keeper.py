"""A deployment that is killed leaves no process and no key behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freshband.flower import _keeper

PARENT = """
import os, signal, subprocess, sys
keeper, mark, folder = sys.argv[1:]
watching = subprocess.Popen(
    [sys.executable, keeper, mark, folder], stdin=subprocess.PIPE, start_new_session=True
)
env = {**os.environ, "FRESHBAND_DEPLOYMENT": f"{mark}/client"}
subprocess.Popen(["sleep", "600"], env=env, start_new_session=True)
subprocess.Popen(["sleep", "60"], env={**env, "FRESHBAND_DEPLOYMENT": f"{mark}-another"})
print("ready", flush=True)
sys.stdin.read(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are found in /proc")
def test_what_a_killed_deployment_started_ends_with_it(tmp_path: Path) -> None:
    folder, mark = tmp_path / "keys", f"test-{os.getpid()}"
    folder.mkdir()
    (folder / "client.key").write_text("secret")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, _keeper.__file__, mark, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    assert len(_keeper.marked(mark)) == 1
    assert _keeper.marked(mark, "sleep") == _keeper.marked(mark)
    assert _keeper.marked(mark, "flwr-serverapp") == []
    assert parent.stdin is not None
    parent.stdin.write(b"x")
    parent.stdin.close()
    parent.wait(60)
    for _ in range(400):
        if not folder.exists():
            break
        time.sleep(0.05)
    assert not folder.exists()
    assert _keeper.marked(mark) == []
    assert len(_keeper.marked(f"{mark}-another")) == 1  # which was none of its business
    _keeper.end_marked(f"{mark}-another")
    parent.stdout.close()
