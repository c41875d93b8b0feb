"""Rules for lost updates are compared on validation samples, several pieces at a time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from freshband._sealed import load_sealed
from freshband.experiments.base import load_pieces, reproduce
from freshband.experiments.rules import Rules
from freshband.experiments.training import final_accuracy

DOCS = Path(__file__).parents[2] / "docs" / "reproduction"
TINY = {
    "model": "mlp", "clients": 4, "rounds": 160, "eval_every": 20, "local_steps": 1,
    "batch_size": 8,
}  # fmt: skip


def small(**tried: Any) -> Rules:
    """The experiment on digits, with two runs."""
    places = [("digits", "extreme")]
    return Rules(scale="quick", places=places, runs={"digits": 2}, changes=TINY, **tried)


def test_rules_are_tried_on_held_out_samples(tmp_path: Path) -> None:
    experiment = small(
        rules=("", "eager", "eager+average"),
        rivals=("fedavg", "longer+average"),
        variants=("local_rounds=2",),
    )
    for _ in reproduce(experiment, tmp_path):
        pass
    results = load_pieces(experiment, tmp_path)
    assert list(results) == [
        f"training-quick-digits-extreme-random{rule}"
        for rule in ("-validation", ".eager-validation", ".eager.average-validation",
                     ".fedavg-validation", ".average-x2-validation",
                     ".eager.average-validation-local_rounds-2")
    ]  # fmt: skip
    made = [json.loads(result.attrs["config"]) for result in results.values()]
    assert [each["policies"] for each in made] == [
        ["random"], ["random@eager"], ["random@eager+average"], ["random@fedavg"],
        ["random@average"], ["random"],
    ]  # fmt: skip
    assert {(each["settings"]["seed"], each["settings"]["held_out"]) for each in made} == {(1, 0.1)}
    assert made[-1]["settings"]["algorithm"] == "renorm+eager+average"
    assert made[-1]["settings"]["algorithm_options"] == {"local_rounds": 2}
    assert [each["settings"]["local_steps"] for each in made] == [1, 1, 1, 1, 2, 1]
    trained = [int(result.trained.sum()) for result in results.values()]
    assert trained[3] > trained[1] == trained[2] > trained[5] > trained[0] == trained[4]


def test_pieces_made_together_are_those_made_alone(tmp_path: Path) -> None:
    experiment = small(rules=("", "average", "eager"), rivals=("longer",), variants=())
    some = reproduce(experiment, tmp_path / "some", at_most=2)
    assert next(some)[1] is False
    assert len([*tmp_path.glob("some/*.nc")]) == 2  # no more than were allowed
    found = [known for _, known in reproduce(experiment, tmp_path / "some")]
    assert found == [True, True, False, False]
    for made, (_, known) in enumerate(reproduce(experiment, tmp_path / "alone", at_most=1), 1):
        assert not known
        assert len([*tmp_path.glob("alone/*.nc")]) == made
    alone, together = (load_pieces(experiment, tmp_path / name) for name in ("alone", "some"))
    for key, result in together.items():
        assert result.drop_vars("seconds").equals(alone[key].drop_vars("seconds"))
        assert result.attrs["config"] == alone[key].attrs["config"]
    plain, averaged, *_ = (result.attrs["seconds"] for result in together.values())
    assert plain == averaged  # each has half of what both took: their clients trained as much


def test_what_is_said_of_pieces_that_are_not_published_yet_is_what_they_say() -> None:
    """As long as some of an air's pieces are missing, no command writes their numbers."""
    place = ("cifar10", "piecewise")
    whole = Rules(scale="full", places=[place])
    said = (DOCS / "rules-full.md").read_text(encoding="utf-8")
    accuracy = {
        role: final_accuracy(load_sealed(path, "freshband comparison 1").accuracy.values[0]).mean()
        for role, piece in zip(whole.roles(place), whole.pieces(), strict=True)
        if (path := DOCS / "next" / f"{piece.key}.nc").exists()
    }
    assert len(accuracy) == 14
    assert f"{accuracy['']:.1f} %" in said
    gains = {role: value - accuracy[""] for role, value in accuracy.items() if role}
    for role, gain in gains.items():
        if "=" not in role:
            assert re.search(rf"`{re.escape(role)}` (has )?{gain:.1f}\b", said)
    others = [gain for role, gain in gains.items() if "=" in role]
    assert f"give {min(others):.1f} to {max(others):.1f}." in said
