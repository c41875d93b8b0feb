"""What the paper leaves open is chosen by trials, which are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from freshband.experiments._choice import (
    EARLIER,
    SEARCHES,
    Search,
    Setting,
    Trial,
    _final_accuracies,
    best_of,
    read_trials,
    try_all,
    unfinished,
)
from freshband.experiments.base import Machine, registry
from freshband.experiments.training import _OPEN, settings_of
from freshband.federated import comparison
from freshband.reporting._reproduction import reproduction_page
from tests.experiments.searching import as_trials, recorded, walk

DOCS = Path(__file__).parents[2] / "docs" / "reproduction"
QUIET = Machine(device="cpu", progress=False)
PLACE = ("digits", "extreme")
SMALL = {PLACE: Search(8, (4,), (0.1,))}
CHANGES = {"model": "mlp", "rounds": 10, "eval_every": 5}


def test_what_is_left_open_is_chosen_by_trials_that_are_kept(tmp_path: Path) -> None:
    steps = try_all(tmp_path, QUIET, SMALL, CHANGES)
    first = next(steps)
    steps.close()
    assert read_trials(tmp_path) == [first]
    assert len(set(first["accuracies"])) == 3  # one per seed
    later = list(try_all(tmp_path, QUIET, SMALL, CHANGES))
    trials = read_trials(tmp_path)
    assert trials == [first, *later]
    best = best_of(trials, PLACE)
    found = next(trial for trial in trials if best.items() <= trial.items())
    assert all(np.mean(found["accuracies"]) >= np.mean(each["accuracies"]) for each in trials)
    assert _untried_around(best, trials) == []
    assert list(try_all(tmp_path, QUIET, SMALL, CHANGES)) == []
    row = " | ".join(f"**{cell}**" for cell in ("digits, extreme", *best.values()))
    assert f"| {row} |" in reproduction_page(tmp_path)


def _untried_around(best: dict[str, Any], trials: list[Trial]) -> list[Setting]:
    tried = [tuple(trial[name] for name in Setting._fields) for trial in trials]
    return [near for near in SMALL[PLACE].around(Setting(**best)) if near not in tried]


def test_trials_see_neither_the_test_set_nor_a_run_of_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, int]] = []

    def record(settings: Any, policies: Any, *, runs: int, progress: bool) -> Any:
        asked.append((settings, runs))
        raise InterruptedError

    monkeypatch.setattr(comparison, "compare", record)
    for place, search in SEARCHES.items():
        with pytest.raises(InterruptedError):
            next(try_all(tmp_path, QUIET, {place: search}))
    assert {settings.held_out for settings, _ in asked} == {0.1}
    assert [runs for _, runs in asked] == [3, 3, 1, 1]
    trained = [piece for name in registry for piece in registry[name].at("full").pieces()]
    tried = {settings.seed for settings, _ in asked}
    assert tried == {1}
    assert {settings_of(place).seed for place in SEARCHES} == {0}
    for piece in trained:  # what is chosen between rules sees the test set as little
        if "settings" in piece.config:
            asked_of = piece.config["settings"]
            assert asked_of["seed"] == (1 if asked_of["held_out"] else 0)
            assert ("validation" in piece.key) == bool(asked_of["held_out"])


def test_a_search_goes_on_until_the_best_is_inside() -> None:
    def score(setting: Setting, run: int) -> float:
        steps, batch, lr = setting
        work = np.log2(steps * batch)
        return float(work - abs(np.log2(lr / 1.6)) - abs(np.log2(batch / 8)) + run / 100)

    search = Search(64, (32,), (0.1,))
    known, _ = walk(search, score)
    best = max(known, key=lambda setting: float(np.mean(known[setting])))
    assert best == (8, 8, 1.6)
    assert {(8, 8, 0.8), (8, 8, 3.2), (16, 4, 1.6), (4, 16, 1.6), (4, 8, 1.6)} <= set(known)
    assert max(steps * batch for steps, batch, _ in known) == 64  # a limit, not an edge
    assert {len(runs) for runs in known.values()} == {3}


def test_a_costly_search_repeats_only_the_two_best_of_its_first_run() -> None:
    first = {0.1: 0.3, 0.2: 0.5, 0.4: 0.6, 0.8: 0.2}

    def score(setting: Setting, run: int) -> float:
        lucky = 0.4 if setting.client_lr == 0.4 and run else 0.0
        return first.get(setting.client_lr, 0.0) - lucky - 0.1 * (setting != (1, 1, setting[2]))

    known, order = walk(Search(1, (1,), (0.2, 0.4), runs=1), score)
    assert {setting.client_lr: len(runs) for setting, runs in known.items()} == {
        0.1: 1, 0.2: 3, 0.4: 3, 0.8: 1,
    }  # fmt: skip
    assert [setting.client_lr for setting in order[-3:]] == [0.4, 0.2, 0.1]
    assert best_of(as_trials(PLACE, known), PLACE)["client_lr"] == 0.2  # 0.1 was then tried
    once = {setting: runs[:1] for setting, runs in known.items()}
    assert best_of(as_trials(PLACE, once), PLACE) == {}


def test_a_run_that_diverged_counts_as_guessing() -> None:
    curves = np.full((1, 4, 30), np.nan)
    curves[0, 0, 4::5] = [0.1, 0.5, 0.5, 0.6, 0.7, 0.7]
    curves[0, 1, 4::5] = [0.5, 0.6, 0.6, 0.7, 0.7, 0.11]  # broke at the end
    curves[0, 2, 4::5] = 0.12  # never learned
    curves[0, 3, 4::5] = [0.1, 0.1, 0.1, 0.1, 0.1, 0.25]  # slow, but it learns
    result = xr.Dataset({"accuracy": (("policy", "run", "round"), curves)})
    assert _final_accuracies(result, 0.1) == [0.6, 0.1, 0.1, 0.13]


def test_no_trial_of_the_study_was_left_out() -> None:
    """A search that is told the accuracies in the file asks for its trials, and for no others."""
    trials = read_trials(DOCS)
    assert unfinished(trials) == []
    beyond = []  # known before there was a limit
    for place, search in SEARCHES.items():
        there = {
            Setting(*(trial[name] for name in Setting._fields)): trial["accuracies"]
            for trial in trials
            if (trial["dataset"], trial["air"]) == place
        }
        beyond += [setting for setting in there if not search.allows(setting)]
        known, _ = walk(search, recorded(there))
        assert known == {at: runs for at, runs in there.items() if at not in beyond}
    assert beyond == [(512, 8, 0.2), (512, 8, 0.4), (512, 8, 0.1)]


def test_a_search_keeps_to_the_least_batch() -> None:
    known, _ = walk(Search(64, (32,), (0.1,), least=16), lambda setting, _: 1 / setting.batch_size)
    assert {setting.batch_size for setting in known} == {16, 32, 64}
    trials = as_trials(("cifar100", "extreme"), {Setting(512, 8, 0.2): [0.9] * 3})
    assert best_of(trials, ("cifar100", "extreme")) == {}  # beyond the limit


def test_figures_use_the_choice() -> None:
    """Where a search has not ended, the earlier choice stands."""
    trials, earlier = read_trials(DOCS), read_trials(DOCS, EARLIER)
    for place in SEARCHES:
        before = [trial for trial in earlier if trial.get("chosen")]
        (former,) = [trial for trial in before if (trial["dataset"], trial["air"]) == place]
        chosen = best_of(trials, place)
        assert bool(chosen) == (place not in unfinished(trials))
        assert (chosen or former).items() >= _OPEN[place].items()


def test_earlier_trials_were_chosen_by_their_rule() -> None:
    """The best trial whose step size learned wherever it was tried."""
    trials = read_trials(DOCS, EARLIER)
    guessing = {"cifar10": 0.1, "cifar100": 0.01}
    for dataset, air in SEARCHES:
        mine = [trial for trial in trials if trial["dataset"] == dataset]
        failed = {
            trial["client_lr"] for trial in mine if trial["accuracies"][0] < 2 * guessing[dataset]
        }
        fit = [trial for trial in mine if trial["air"] == air and trial["client_lr"] not in failed]
        best = max(fit, key=lambda trial: float(trial["accuracies"][0]))
        assert [trial for trial in fit if trial.get("chosen")] == [best]
