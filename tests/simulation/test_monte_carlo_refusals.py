"""Simulation: progress, what is refused, and errors and interrupts while it runs."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from freshband import simulate
from freshband._policy import parse_policy
from freshband.channels import Piecewise, StatesStream, Stationary, Table
from freshband.errors import FileError, ParameterError, SequenceError, UnknownNameError
from freshband.parameters import Parameters
from freshband.simulation import _players, monte_carlo
from tests.simulation.refusing import refused

AIR = Piecewise(means=[[0.95, 0.8, 0.1, 0.05], [0.05, 0.1, 0.8, 0.95]])


# --------------------------------------------------------------------------------------- progress


def test_no_progress_where_nobody_watches(capfd: pytest.CaptureFixture[str]) -> None:
    simulate(AIR, "random", rounds=100, runs=2, progress=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screens: list[io.StringIO] = []

    def terminal(**settings: Any) -> Console:
        assert settings == {"stderr": True}
        screens.append(io.StringIO())
        return Console(file=screens[-1], force_terminal=True)

    monkeypatch.setattr(monte_carlo, "Console", terminal)
    simulate(AIR, "random", rounds=100, runs=3)
    assert "3/3" in screens[0].getvalue()
    simulate(AIR, "random", rounds=100, runs=3, progress=False)
    assert screens[1].getvalue() == ""


# ------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["clients", "rounds", "runs", "points", "threads"])
def test_counts_must_be_whole_and_positive(name: str) -> None:
    bad: list[Any] = [0, -1, 1.5, math.nan, math.inf, True, np.True_, "2", [2], None]
    for value in bad:
        if name == "threads" and value is None:
            continue  # one a core
        with refused(ParameterError, f"{name} must be a whole number >= 1, got "):
            simulate("stationary", "random", **{name: value})
    with refused(ParameterError, rf"{name} must be a whole number in \[1, 1000000000000\], got"):
        simulate("stationary", "random", **{name: 10**15})


def test_more_clients_than_channels() -> None:
    result = simulate(Stationary(means=[1.0, 1.0]), "cucb", clients=4, rounds=100, runs=2)
    assert (result.mean_age == 1.5).all()  # two send in each round, the oldest
    assert (result.participation == 0.5).all()


@pytest.mark.parametrize("seed", [-1, 0.5, "0", None, True])
def test_seeds_must_be_whole_numbers(seed: Any) -> None:
    with refused(ParameterError, "seed must be an integer >= 0, got "):
        simulate("stationary", "random", seed=seed)


@pytest.mark.parametrize(
    ("policies", "kind", "message"),
    [
        ([], ParameterError, "policies must name at least one policy, got none"),
        ("", ParameterError, "policy must be text like 'glr-cucb:paper"),
        ("random,,cucb", ParameterError, "policy must be text like"),
        ([None], ParameterError, "policy must be text like .*, got None"),
        (None, ParameterError, "policies must be a list of policies, got None"),
        (5, ParameterError, "policies must be a list of policies, got 5"),
        ("random,cucb, random", ParameterError, "policies must differ, got 'random' twice"),
        ("glr-cubc", UnknownNameError, "unknown scheduler 'glr-cubc'; did you mean 'glr-cucb'"),
        ("cucb:paper", UnknownNameError, "cucb has no preset 'paper'; known: default"),
        ("cucb+ag", UnknownNameError, r"unknown token '\+ag' .*did you mean 'age'"),
        ("cucb+aa+aa-sum", ParameterError, "names two AoI-aware rules"),
    ],
)
def test_bad_policies(policies: Any, kind: Any, message: str) -> None:
    with refused(kind, message):
        simulate("stationary", policies)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (3, ParameterError, "policy_options must map names to values, got 3"),
        ({"cucb": 3}, ParameterError, "options must map names to values, got 3"),
        ({"cubc": {}}, ParameterError, "policy 'cubc', which is not simulated; did you mean"),
        ({"cucb": {"index": 3}}, UnknownNameError, "Cucb has no parameter 'index'; did you mean"),
        ({"cucb": {"index_c": -1}}, ParameterError, "index_c must be a number > 0, got -1"),
    ],
)
def test_bad_options_of_policies(options: Any, kind: Any, message: str) -> None:
    with refused(kind, message):
        simulate("stationary", "cucb", policy_options=options)


def test_options_next_to_a_ready_policy_are_not_dropped() -> None:
    ready = parse_policy("cucb")
    with refused(ParameterError, r"options need a policy given by name, got \['index_c'\]"):
        simulate("stationary", [ready], policy_options={"cucb": {"index_c": 2}})


@pytest.mark.parametrize(
    ("channels", "options", "kind", "message"),
    [
        ("stationry", {}, UnknownNameError, "unknown channel model 'stationry'; did you mean"),
        (3, {}, ParameterError, "channels must be a name or a channel model, got 3"),
        (Stationary, {}, ParameterError, "channels must be a name or a channel model, got <class"),
        ("stationary", 3, ParameterError, "channel_options must map names to values, got 3"),
        ("stationary", {"means": [2]}, ParameterError, r"means must be .* in \[0, 1\], got 2"),
        (AIR, {"n_channels": 3}, ParameterError, "parameters need a channel model given by name"),
        ("trace", {"path": "/no/file.csv"}, FileError, "/no/file.csv: No such file"),
        ("piecewise", {"breakpoints": [30]}, ParameterError, "breakpoints must be at most rounds"),
    ],
)
def test_bad_channels(channels: Any, options: Any, kind: Any, message: str) -> None:
    with refused(kind, message):
        simulate(channels, "random", channel_options=options, rounds=20)


def test_what_cannot_work_is_found_before_any_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("a run began")

    for name in ("run_block", "run_fleet_block"):
        monkeypatch.setattr(_players, name, never)
    with refused(ParameterError, r"m-exp3 needs C\(N, M\) <= 1e300"):
        simulate(Stationary(n_channels=2000), ["random", "m-exp3"], clients=1000)
    with refused(ParameterError, "rounds must be at most 3, the length of the table"):
        simulate(Table(states=[[0, 1]] * 3), "random", rounds=4)


class Breaks(Parameters):
    """Air that fails in the middle of a run."""

    n_channels: int = 3
    has_means: bool = False

    def start(self, rounds: int, structure: Any, states: Any) -> StatesStream:
        return StatesStream(rounds, 3, [np.ones((70, 3), np.uint8)])


def test_an_error_in_a_run_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monte_carlo, "_CELLS", 1)
    with refused(SequenceError, "the channel model has .* rounds too few"):
        simulate(Breaks(), "random", rounds=1000, runs=5)


INTERRUPTED = """
import itertools, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells may ignore it
import numpy as np
import freshband
from freshband.channels import StatesStream
from freshband.parameters import Parameters
from freshband.simulation import monte_carlo

monte_carlo._CELLS = 1
blocks = itertools.count()  # of all runs: each number is seen by one thread

class Endless(Parameters):
    n_channels: int = 2
    has_means: bool = False

    def start(self, rounds, structure, states):
        def pieces():
            while True:
                if next(blocks) == 50:  # from inside a run
                    os.kill(os.getpid(), signal.SIGINT)
                yield np.ones((64, 2), np.uint8)
        return StatesStream(rounds, 2, pieces())

try:
    freshband.simulate(Endless(), "random", rounds=10**11, runs=4, threads=2)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_stops_the_runs_under_way(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
    assert not list(tmp_path.iterdir())
