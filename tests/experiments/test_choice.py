"""What the paper leaves open is chosen by trials, which are kept."""

from __future__ import annotations

from pathlib import Path

from freshband.experiments._choice import best_of, read_trials, try_all
from freshband.experiments.base import Machine
from freshband.experiments.training import _OPEN
from freshband.reporting._reproduction import reproduction_page

QUIET = Machine(device="cpu", progress=False)
GRID = {("digits", "extreme"): [((1,), (8,), (1e-6, 0.1))]}
CHANGES = {"model": "mlp", "rounds": 160, "eval_every": 20}


def test_what_is_left_open_is_chosen_by_trials_that_are_kept(tmp_path: Path) -> None:
    steps = try_all(tmp_path, QUIET, GRID, CHANGES)
    first = next(steps)
    steps.close()
    assert read_trials(tmp_path) == [first]
    (second,) = try_all(tmp_path, QUIET, GRID, CHANGES)
    assert second["accuracy"] > first["accuracy"] + 0.2  # a step too small learns nothing
    best = {"local_steps": 1, "batch_size": 8, "client_lr": 0.1}
    assert best_of(read_trials(tmp_path), "digits", "extreme") == best
    assert list(try_all(tmp_path, QUIET, GRID, CHANGES)) == []
    assert "| **digits, extreme** | **1** | **8** | **0.1** |" in reproduction_page(tmp_path)


def test_settings_are_the_best_of_what_was_tried() -> None:
    trials = read_trials(Path(__file__).parents[2] / "docs" / "reproduction")
    places = {(trial["dataset"], trial["air"]) for trial in trials}
    assert len(places) == 4
    for place in places:
        assert _OPEN[place] == best_of(trials, *place)


def test_a_step_size_that_failed_is_not_trusted_on_either_air() -> None:
    good = {"dataset": "cifar10", "air": "extreme", "local_steps": 5, "batch_size": 8}
    tried = [{**good, "client_lr": lr, "accuracy": lr} for lr in (0.3, 0.4)]
    assert best_of(tried, "cifar10", "extreme")["client_lr"] == 0.4
    failed = {**good, "air": "piecewise", "client_lr": 0.4, "accuracy": 0.1}
    assert best_of([*tried, failed], "cifar10", "extreme")["client_lr"] == 0.3
    assert best_of([failed], "cifar10", "piecewise")["client_lr"] == 0.4  # nothing better so far
