"""The examples run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from freshband.federated import Training
from freshband.federated.comparison import compare, save_comparison

EXAMPLES = Path(__file__).parent.parent / "examples"


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
