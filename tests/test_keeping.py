"""Long commands keep what they have: run by run, through signals, damage and other settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from freshband import simulate
from freshband._keeping import KeptRuns, count_runs, forget_runs
from freshband.simulation import monte_carlo

AIR: dict[str, Any] = {"rounds": 300, "runs": 4, "seed": 2, "progress": False, "threads": 1}


def same(one: xr.Dataset, other: xr.Dataset) -> bool:
    """Whether two results agree in everything but the time they took."""
    timed = ["seconds", "rounds_per_second"]
    return one.drop_vars(timed, errors="ignore").equals(other.drop_vars(timed, errors="ignore"))


def play(keep: Path | None, **changes: Any) -> xr.Dataset:
    return simulate("piecewise", "random,cucb", **{**AIR, **changes}, keep=keep)


def test_only_missing_and_damaged_runs_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, plain = tmp_path / "it.nc", play(None)
    assert same(play(path), plain)
    assert count_runs(path) == 4
    played: list[int] = []
    whole = monte_carlo._play_run

    def watched(plan: Any, run: int, **more: Any) -> Any:
        played.append(run)
        return whole(plan, run, **more)

    monkeypatch.setattr(monte_carlo, "_play_run", watched)
    assert same(play(path), plain)
    assert played == []
    files = sorted((tmp_path / "it.nc.runs").iterdir())
    files[1].unlink()
    damaged = bytearray(files[2].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    files[2].write_bytes(damaged)
    assert same(play(path), plain)
    assert sorted(played) == [1, 2]
    assert same(play(path, runs=5), play(None, runs=5))
    assert played.count(4) == 2
    played.clear()
    play(path, seed=3)  # another seed: nothing can be used
    assert sorted(played) == [0, 1, 2, 3]
    forget_runs(path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_path_nothing_is_kept() -> None:
    kept = KeptRuns(None, {})
    kept.save(0, {})
    assert kept.load(0) is None


def test_a_comparison_keeps_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from freshband.federated import comparison
    from freshband.federated.comparison import compare
    from tests.federated.playing import tiny

    settings, path = tiny(rounds=4), tmp_path / "it.nc"
    asked: dict[str, Any] = {"policies": "random,cucb+priority", "runs": 2, "progress": False}
    plain = compare(settings, **asked)

    def stop(*args: Any) -> Any:
        if args[0][0].run == 1:
            raise KeyboardInterrupt
        return whole(*args)

    whole = comparison._in_step
    monkeypatch.setattr(comparison, "_in_step", stop)
    with pytest.raises(KeyboardInterrupt):
        compare(settings, **asked, keep=path)
    assert count_runs(path) == 1
    monkeypatch.setattr(comparison, "_in_step", lambda *args: whole(*args))
    assert same(compare(settings, **asked, keep=path), plain)


def test_sigterm_ends_a_command_as_ctrl_c_does(tmp_path: Path) -> None:
    """The process stops itself after the first run is kept: no waiting, no race."""
    program = """
import os, signal
from freshband import _keeping
save = _keeping.KeptRuns.save
def stop(self, run, arrays):
    save(self, run, arrays)
    os.kill(os.getpid(), signal.SIGTERM)
_keeping.KeptRuns.save = stop
from freshband.cli.app import main
main()
"""
    out = tmp_path / "it.nc"
    command = ["simulate", "--policies", "random", "--rounds", "200", "--runs", "5"]
    command += ["--threads", "1", "--out", str(out), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 130, done.stderr
    assert "runs are kept in" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()
    assert count_runs(out) >= 1


def test_the_first_sigterm_stops_and_the_second_interrupts() -> None:
    from freshband.cli._playing import interruptible

    stopped: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    with interruptible(lambda: stopped.append(1)):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped == [1]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interruption_that_python_drops_comes_again() -> None:
    from freshband.cli._playing import insisting, interrupt

    class Torn:
        def __del__(self) -> None:
            interrupt(signal.SIGTERM, None)  # as if the signal had come here

    def wait() -> None:
        Torn()
        time.sleep(60)

    with insisting(), pytest.raises(KeyboardInterrupt):
        wait()
