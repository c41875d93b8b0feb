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
    plain = {**os.environ, "PYTHONPATH": paths, "NUMBA_DISABLE_JIT": "1"}  # compiles nothing
    done = subprocess.run(command, capture_output=True, text=True, env=plain)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_crafted_coordinators_are_refused_or_play_on() -> None:
    said = run_program("crafted", "--files", "100", "--rounds", "5")
    assert "refused" in said
    assert "played on" in said


def test_power_cuts_lose_nothing_that_was_told() -> None:
    said = run_program("power_cuts", "--rounds", "2", "--kinds", "coordinator", "simulation")
    assert "0 lost something" in said


def test_mutated_files_are_refused_or_read_as_before() -> None:
    said = run_program("mutated", "--files", "220")
    assert "220 files of" in said
    assert "BAD" not in said


def test_many_threads_do_what_one_would() -> None:
    said = run_program("threads", "--calls", "1600")
    assert "0 results differ" in said


def test_memory_does_not_grow_with_rounds() -> None:
    said = run_program("endurance", "--rounds", "1000")
    assert said.count("rounds:") == 10
