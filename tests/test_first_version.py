"""What the first version wrote is still read, and goes on as it did there.

The files in `tests/data/first-version` were written by that version (commit 29b7981).
"""

from __future__ import annotations

import ast
import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband import Coordinator
from freshband.errors import SequenceError

FILES = Path(__file__).parent / "data" / "first-version"
COORDINATORS: dict[str, Any] = json.loads((FILES / "coordinators.json").read_text())
RUNS: dict[str, Any] = json.loads((FILES / "runs.json").read_text())


def step(coordinator: Coordinator, t: int) -> list[int]:
    """Play round t over fixed channels; return the plan."""
    worth = [0.1 * ((t + i) % 5) for i in range(coordinator.n_clients)]
    plan = coordinator.plan(worth if coordinator.policy.needs_contributions else None)
    coordinator.observe((plan * 7 + t * 3 + t // 60) % 5 > 0)
    listed: list[int] = plan.tolist()
    return listed


UNCHANGED = [name for name in COORDINATORS["running"] if not name.startswith("bayes")]


@pytest.mark.parametrize("policy", UNCHANGED)
def test_a_saved_coordinator_goes_on(policy: str) -> None:
    before = COORDINATORS["running"][policy]
    coordinator = Coordinator.load(FILES / before["file"])
    assert coordinator.round == 200
    assert [step(coordinator, t) for t in range(201, 301)] == before["plans"]
    assert coordinator.ages.tolist() == before["ages"]
    assert coordinator.alive.tolist() == [1, 1, 1]


@pytest.mark.parametrize("policy", sorted(COORDINATORS["running"].keys() - set(UNCHANGED)))
def test_bayes_has_a_new_inside_and_uses_what_the_old_one_knew(policy: str) -> None:
    coordinator = Coordinator.load(FILES / COORDINATORS["running"][policy]["file"])
    with np.load(FILES / COORDINATORS["running"][policy]["file"]) as saved:
        (means,) = (saved[name] for name in saved.files if name.endswith("scheduler.mean"))
    assert coordinator.round == 200
    learnt = coordinator.channel_means
    assert np.abs(learnt - means).max() < 0.1
    plans = [step(coordinator, t) for t in range(201, 301)]
    assert all(len(set(plan)) == 3 for plan in plans)


@pytest.mark.parametrize(
    ("lacking", "rounds", "means"),
    [
        ("priors", 100, [0.685, 0.709, 0.878]),  # it knew four of the six
        ("gaps", 120, [0.907, 0.874, 0.997, 0.548, 0.997, 0.613]),  # long ones were all one
        ("periods", 120, [0.534, 0.939, 0.529, 0.731, 0.551, 0.554]),
    ],
)
def test_a_bayes_that_lacked_something_goes_on(
    lacking: str, rounds: int, means: list[float]
) -> None:
    coordinator = Coordinator.load(FILES.parent / "earlier-bayes" / f"{lacking}.npz")
    assert coordinator.round == rounds
    assert np.abs(coordinator.channel_means - means).max() < 1e-3
    plans = [step(coordinator, t) for t in range(rounds + 1, rounds + 41)]
    assert all(len(set(plan)) == 2 for plan in plans)


def test_a_bayes_that_reported_no_changes_of_links_goes_on() -> None:
    coordinator = Coordinator.load(FILES.parent / "earlier-bayes" / "links.npz")
    assert coordinator.round == 60
    assert np.abs(coordinator.channel_means - [0.788, 0.790]).max() < 1e-3
    assert coordinator.plan().tolist() == [1, 0]
    assert coordinator.observe([True, True]) is None


def test_a_plan_that_waits_for_its_outcome_goes_on_waiting(tmp_path: Path) -> None:
    before = COORDINATORS["waiting"]
    coordinator = Coordinator.load(FILES / before["file"])
    coordinator.save(tmp_path / "today.npz")
    for waiting in (coordinator, Coordinator.load(tmp_path / "today.npz")):
        assert waiting.round == 40
        assert waiting.open_rounds == [41]
        assert waiting.pending is not None
        assert waiting.pending.tolist() == before["pending"]
        waiting.observe([True, False, True])
        plans = []
        for t in range(42, 62):
            plan = waiting.plan()
            plans.append(plan.tolist())
            waiting.observe((plan + t) % 4 != 0)
        assert plans == before["plans"]
        assert waiting.ages.tolist() == before["ages"]


def test_an_outcome_of_a_plan_of_the_first_version_may_come_late() -> None:
    prompt, late = (Coordinator.load(FILES / COORDINATORS["waiting"]["file"]) for _ in range(2))
    prompt.observe([True, False, True])
    before = late.ages
    late.observe([None, False, True])
    assert 1 < late.ages[0] < before[0] + 1
    late.observe([True, None, None], round=41)
    assert late.ages.tolist() == prompt.ages.tolist()
    with pytest.raises(SequenceError, match="round 40 is over"):
        late.observe([True, True, True], round=40)


def assert_went_on(
    records: list[Any], before: list[dict[str, Any]], tolerance: float = 1e-6
) -> None:
    """Hold records against those of the first version.

    Counts and truth values must be the same. Other numbers may differ a little: the same run is
    the same to the last bit on one machine, but processors differ in how they add.
    """
    assert len(records) == len(before)
    for record, wanted in zip(records, before, strict=True):
        for name, values in wanted.items():
            found = np.asarray(getattr(record, name))
            expected = np.asarray(values, float if found.dtype.kind == "f" else None)
            if name == "seconds":
                continue
            if found.dtype.kind == "f":
                np.testing.assert_allclose(found, expected, tolerance, 1e-9, err_msg=name)
            else:
                np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("kind", RUNS["train"])
def test_a_saved_training_run_goes_on(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from freshband.federated import resume_run

    folder = shutil.copytree(FILES / f"train-{kind}", tmp_path / "run")
    with resume_run(folder) as run:
        assert run.round == 6
        assert_went_on(list(run), RUNS["train"][kind])


@pytest.mark.parametrize("kind", RUNS["flower"])
def test_a_saved_run_over_flower_goes_on(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("torch")
    from tests.flower.test_rounds import play

    folder = shutil.copytree(FILES / f"flower-{kind}", tmp_path / "run")
    rounds, _ = play(RUNS["flower"][kind]["settings"], checkpoint=folder)
    assert rounds.round == 6
    assert_went_on(list(rounds), RUNS["flower"][kind]["records"], 1e-4)  # in single precision


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("freshband.federated", "Training build_model load_dataset split_samples"),
        ("freshband.federated.batches", "Batches"),
        ("freshband.federated.result", "collect_records save_training"),
        (
            "freshband.flower",
            "DeadlineUplink StrategyAggregation build_rounds channel_mod read_training",
        ),
    ],
)
def test_apps_that_flower_new_wrote_find_what_they_import(module: str, names: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in names.split() if not hasattr(found, name)] == []


def test_apps_that_flower_new_writes_import_nothing_private() -> None:
    from freshband.flower import template

    for path in Path(template.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("freshband"):
                parts = [*str(node.module).split("."), *(each.name for each in node.names)]
                assert not [part for part in parts if part.startswith("_")], path.name
