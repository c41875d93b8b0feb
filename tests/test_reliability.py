"""The programs behind the page on reliability, in their short form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_program(name: str, *arguments: str) -> str:
    """Return what a program of `benchmarks.reliability` prints; it must find nothing."""
    command = [sys.executable, "-m", f"benchmarks.reliability.{name}", *arguments]
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_crafted_coordinators_are_refused_or_play_on() -> None:
    said = run_program("crafted", "--files", "160", "--rounds", "6")
    assert "refused" in said
    assert "played on" in said


def test_power_cuts_lose_nothing_that_was_told() -> None:
    said = run_program("power_cuts", "--rounds", "2", "--kinds", "coordinator", "simulation")
    assert "0 lost something" in said
