"""Ends the processes of a deployment whose own process was killed: ``python _keeper.py MARK DIR``.

It runs beside the deployment and waits for the end of its standard input, which comes when the
deployment closes it, or dies in whatever way. It imports nothing but the standard library, so it is
there at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MARK: Final = "FRESHBAND_DEPLOYMENT"  # in the environment of every process of a deployment


def marked(mark: str, program: str = "") -> list[int]:
    """Return the processes with a mark in their environment, which children inherit.

    With ``program`` only those that run it.
    """
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parts = (entry / "environ").read_bytes().split(b"\0")
            ours = any(part == wanted or part.startswith(wanted + b"/") for part in parts)
            names = (entry / "cmdline").read_bytes() + (entry / "comm").read_bytes()
            if ours and program.encode() in names:
                found.append(int(entry.name))
    return found


def end_marked(mark: str) -> None:
    """Kill all processes with a mark."""
    for _ in range(50):  # some start others while they end
        left = marked(mark)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.1)


def _keep(mark: str, folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(mark)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(*sys.argv[1:])
