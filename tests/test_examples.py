"""The examples run."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import re
import selectors
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from freshband.federated import Training
from freshband.federated.comparison import compare, save_comparison
from freshband.schedulers.base import registry as schedulers
from tests.schedulers.stepping import Game
from tests.theory.margins import needs_compiler

EXAMPLES = Path(__file__).parent.parent / "examples"
FLEETS = (EXAMPLES.parent / "docs" / "fleet.md").read_text(encoding="utf-8")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_base_station_continues_where_it_was_stopped(tmp_path: Path, capsys: Any) -> None:
    station = load("base_station")
    station.ROUNDS = 200
    station.main(tmp_path / "state.npz")
    station.ROUNDS = 300
    station.main(tmp_path / "state.npz")
    printed = capsys.readouterr().out
    assert "continuing after round 200" in printed
    assert "ages after 300 rounds" in printed


def test_losing_cases_prints_a_table(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    cases = load("losing_cases")
    monkeypatch.setattr(cases, "AIRS", {"stationary": ("stationary", {})})
    monkeypatch.setattr(cases, "POLICIES", ["random", "glr-cucb"])
    cases.main(runs=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| policy | stationary |"
    assert lines[3].startswith("| `glr-cucb` | **")  # it beats random


def test_my_restarts_composes_an_index_and_a_detector(monkeypatch: pytest.MonkeyPatch) -> None:
    schedulers.names()  # load before copying
    monkeypatch.setattr(schedulers, "_things", dict(schedulers._things))
    load("my_restarts")
    game = Game("cusum-thompson", 2, 4, threshold=5.0)
    alarms = [game.play([t < 150, 1, t >= 150, 0]) for t in range(300)]
    assert max(alarms[:150]) < 0
    assert min(t for t, alarm in enumerate(alarms) if alarm == 0) < 200
    assert 2 in game.plan()  # found after the restart


def test_few_heard_prints_what_each_aggregation_gives(capsys: Any) -> None:
    load("few_heard").main(runs=2, rounds=3)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 6
    assert all(line.count("±") == 4 for line in lines[2:])


def test_few_heard_reads_a_comparison(tmp_path: Path, capsys: Any) -> None:
    settings = Training(model="mlp", clients=3, rounds=120, eval_every=10)
    result = compare(settings, ["random", "random@fixed"], runs=2, progress=False)
    save_comparison(result, tmp_path / "it.nc")
    load("few_heard").summarise(str(tmp_path / "it.nc"))
    lines = capsys.readouterr().out.splitlines()
    mean = 100 * float(np.nanmean(result.accuracy.sel(policy="random@fixed")))
    assert lines[2].endswith("| 1.00 ± 0.00 |")
    assert lines[3].startswith(f"| `random@fixed` | {mean:.1f} ± ")


def test_the_bayes_filter_is_nearer_to_the_truth(tmp_path: Path, capsys: Any) -> None:
    load("bayes_filter").main(str(tmp_path / "picture.png"))
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    bayes, fresh = (float(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert bayes < 0.8 * fresh


@needs_compiler
@pytest.mark.parametrize("name", ["gateway", "factory", "phones"])
def test_fleets_print_what_the_page_says(name: str, capsys: Any) -> None:
    load(name).main()
    included = f'```python\n--8<-- "examples/{name}.py"\n```\n\n'
    assert f"{included}```text\n{capsys.readouterr().out}```" in FLEETS


class Leap(selectors.SelectSelector):
    """A clock that leaps to the next event instead of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def test_the_asyncio_gateway_learns_from_late_answers(capsys: Any) -> None:
    clock = Leap()

    def begin() -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(clock)
        loop.time = lambda: clock.now  # type: ignore[method-assign]
        return loop

    random.seed(0)
    with asyncio.Runner(loop_factory=begin) as runner:
        runner.run(load("async_gateway").main())
    assert 2.0 < clock.now < 2.1  # 400 rounds of 5 ms; the last answers are waited for
    printed = capsys.readouterr().out
    numbers = [float(number) for number in re.findall(r"[0-9.]+", printed)]
    assert 25 < numbers[0] < 75  # a fifth never comes, so half of the rounds stay open
    assert numbers[1] == pytest.approx(0.9, abs=0.08)
    assert numbers[2] == pytest.approx(0.75, abs=0.12)


def test_fleets_are_short() -> None:
    for name in re.findall(r'^--8<-- "examples/(.*)"$', FLEETS, re.MULTILINE):
        assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= 30, name


def test_text_is_learned(capsys: Any) -> None:
    example = load("text")
    few = {"dataset_options": {"speakers": 5, "samples": 24}, "rounds": 12, "batch_size": 16}
    accuracy = example.main(example.settings.model_copy(update=few))
    assert accuracy > 0.5
    assert capsys.readouterr().out.splitlines()[-1].startswith("the old ")


def test_fine_tuning_teaches_digits_that_the_network_had_not_seen(capsys: Any) -> None:
    accuracy = load("fine_tuning").main(rounds=15)
    assert accuracy > 0.8
    assert capsys.readouterr().out.startswith("647 of 3191 numbers travel; ")
