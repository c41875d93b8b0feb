"""Runs that are killed go on as if nobody had interrupted them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband.federated.runs import resume_run
from freshband.federated.settings import Training
from tests.federated.killed import Kill, final_state, play_killed, same_bits, same_records
from tests.federated.resuming import PRIORITY, TINY, assert_same_run, left_by, whole

# ------------------------------------------------------------------------------ being killed

KILLS: dict[str, tuple[dict[str, Any], list[Kill]]] = {
    "async": (
        PRIORITY,
        [("write", 2), ("round", 2), ("write", 5), ("write", 9), ("train", 8), ("round", 12)],
    ),
    "async-two-workers": ({**PRIORITY, "workers": 2}, [("train", 5), ("write", 11), ("round", 13)]),
    "stacked": ({**PRIORITY, "path": "stacked", "workers": 2}, [("train", 6), ("write", 5)]),
    "fedbuff": (
        {**TINY, "algorithm": "fedbuff", "buffer_size": 3},
        [("round", 7), ("write", 3), ("train", 11)],
    ),
    "fedce": (
        {**PRIORITY, "contribution": "fedce", "loo": "buffer"},
        [("train", 1), ("round", 4), ("write", 7)],
    ),
    "averaged": ({**TINY, "served": "average"}, [("write", 3), ("round", 8), ("train", 11)]),
    "eager": ({**TINY, "local_rounds": 3}, [("train", 4), ("round", 9), ("write", 2)]),
    "fedasync": ({**TINY, "algorithm": "fedasync"}, [("round", 6), ("write", 4)]),
    "fedavg": ({**TINY, "algorithm": "fedavg", "eval_every": 3}, [("train", 10), ("round", 13)]),
    "float64": (
        {**TINY, "precision": "float64", "scheduler": "m-exp3", "clip_norm": 0.1},
        [("round", 5), ("write", 6)],
    ),
}


@pytest.mark.parametrize("name", KILLS)
def test_killed_and_resumed_equals_never_interrupted(tmp_path: Path, name: str) -> None:
    settings, kills = KILLS[name]
    for kill in kills:
        assert play_killed(settings, tmp_path / "killed", kill, every=3), kill
    assert not play_killed(settings, tmp_path / "killed", None, every=3)
    whole({**settings, "workers": 1}, tmp_path / "whole")
    if settings["workers"] == 1:
        assert_same_run(tmp_path / "killed", tmp_path / "whole")
    else:  # the settings differ, the numbers must not
        assert same_bits(final_state(tmp_path / "killed"), final_state(tmp_path / "whole"))
        first, other = resume_run(tmp_path / "killed"), resume_run(tmp_path / "whole")
        assert same_records(first.records, other.records)
    left = [path.name for path in tmp_path.rglob("*") if path.name.startswith(".")]
    assert left == []


@pytest.mark.slow
def test_killed_at_every_step_of_writing(tmp_path: Path) -> None:
    settings = {**PRIORITY, "rounds": 3}
    whole(settings, tmp_path / "whole", every=2)
    expected, step = left_by(tmp_path / "whole"), 1
    while play_killed(settings, tmp_path / str(step), ("write", step), every=2):
        out = tmp_path / str(step)
        if (out / "run.json").exists():
            list(resume_run(out))
        else:
            whole(settings, out, every=2)
        assert_same_run(out, expected)
        step += 1
    assert step > 30


def test_killed_again_and_again_at_random(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    out, kills, was_killed = tmp_path / "killed", 0, True
    while was_killed and kills < 40:
        kind = str(rng.choice(["round", "train", "write"]))
        place = int(rng.integers(1, 12 if kind == "write" else 4))
        if kind != "write" and (out / "run.json").exists():
            place += resume_run(out).round
        was_killed = play_killed(PRIORITY, out, (kind, place), every=2)
        kills += was_killed
    assert 5 < kills < 40
    whole(PRIORITY, tmp_path / "whole", every=2)
    assert_same_run(out, tmp_path / "whole")


PROGRAM = """
import sys
from freshband.federated.runs import resume_run, start_run
from freshband.federated.settings import Training

out, settings = sys.argv[1], sys.argv[2]
run = start_run(Training.model_validate_json(settings), out, checkpoint_every=2) if settings else (
    resume_run(out)
)
for record in run:
    print(record.round, flush=True)
"""


@pytest.mark.slow
def test_killed_from_outside_in_processes_that_share_nothing(tmp_path: Path) -> None:
    settings = Training(**{**PRIORITY, "rounds": 100})
    text = settings.model_dump_json()
    for seed, wait_for in ((1, 5), (2, 0)):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "killed"), text]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": str(seed)}
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) == wait_for:
                    process.send_signal(signal.SIGKILL)
        text = ""
    assert process.returncode == 0
    whole(settings.model_dump(mode="json"), tmp_path / "whole", every=2)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
