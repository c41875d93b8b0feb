"""``freshband train``: the forms others build on, what is refused, and how it is stopped."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from freshband.cli import _live
from freshband.cli import _training as reading
from freshband.cli._training import read_file
from freshband.errors import FileError, UnknownNameError
from freshband.federated import engine
from freshband.federated.result import load_training
from tests.cli.running import PROGRAM, Shell
from tests.simulation.refusing import refused

SMALL = ["--model", "mlp", "--clients", 3, "--rounds", 3]


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round may be played."""

    def step(*arguments: Any) -> None:
        raise AssertionError("a round was played")

    monkeypatch.setattr(engine.Federation, "begin", step)


# ----------------------------------------------------------------------------------------- answers


def test_the_command_of_the_issue_writes_a_folder(shell: Shell) -> None:
    ask = ["--dataset", "digits", "--scheduler", "glr-cucb", "--matching", "priority", "--seed", 0]
    found = shell.answer("train", *ask, *SMALL, "--out", "run")
    assert found["policy"] == "glr-cucb+priority"
    assert found["rounds"] == 3
    assert 0 <= found["final_accuracy"] <= found["best_accuracy"] <= 1
    assert found["bytes_up"] > 0
    result = load_training("run/result.nc")
    assert result.accuracy.values[-1] == found["final_accuracy"]
    assert result.sizes["client"] == 3
    assert list(Path("run/checkpoints").iterdir())
    assert not Path("run/tensorboard").exists()


def test_nothing_is_saved_without_a_folder(shell: Shell) -> None:
    done = shell("train", *SMALL, "--scheduler", "random")
    assert (done.code, done.err) == (0, "")
    assert "random: 3 clients, 3 rounds, seed 0" in done.out
    assert "accuracy" in done.out
    assert re.search("changes noticed +no detector", done.out)
    assert shell.answer("train", *SMALL, "--scheduler", "random")["alarms"] is None
    assert shell.answer("train", *SMALL, "--scheduler", "glr-cucb")["alarms"] == 0
    assert not list(Path.cwd().iterdir())


def test_clients_whose_updates_are_all_refused_are_named(shell: Shell) -> None:
    ask = ("train", *SMALL, "--rounds", 30, "--set", "length_limit=0.01")  # nobody is so short
    told = "of them for their length; the latest of clients 0, 1, 2 all were: if they are honest,"
    assert told in " ".join(shell(*ask).out.split())
    assert shell.answer(*ask)["kept_out"] == [0, 1, 2]
    assert "if they are honest" not in shell("train", *SMALL, "--rounds", 30).out


def test_a_run_is_the_same_with_and_without_a_folder(shell: Shell) -> None:
    timings = {"seconds", "rounds_per_second"}
    one = shell.answer("train", *SMALL, "--seed", 3)
    two = shell.answer("train", *SMALL, "--seed", 3, "--out", "run")
    assert {k: v for k, v in one.items() if k not in timings} == {
        k: v for k, v in two.items() if k not in timings
    }
    assert shell.answer("train", *SMALL, "--seed", 4)["final_loss"] != one["final_loss"]


def test_a_result_can_be_run_again(shell: Shell) -> None:
    ask = [*SMALL, "--seed", 5, "--set", "scheduler.optimism=0.9", "--set", "partition.alpha=0.3"]
    first = shell.answer("train", *ask, "--out", "run")
    again = shell.answer("train", "--like", "run/result.nc")
    assert again["config"] == first["config"]
    assert again["final_loss"] == first["final_loss"]
    other = shell.answer("train", "--like", "run/result.nc", "--seed", 6, "--scheduler", "random")
    assert other["config"] == {
        **first["config"],
        "seed": 6,
        "policy": "random",
        "policy_options": {},
    }


def test_plots_and_scalars(shell: Shell) -> None:
    done = shell("train", *SMALL, "--out", "run", "--tensorboard", "--plot", "run/training.png")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("wrote run/result.nc\nwrote run/training.png\n")
    assert Path("run/training.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(Path("run/tensorboard").glob("events.out.tfevents.*"))) == 1


# ----------------------------------------------------------------------------- going on, stopping


def test_resume_goes_on_where_it_stopped(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shell.answer("train", *SMALL, "--out", "whole")
    update = _live.Watch.update

    def interrupt(self: _live.Watch, record: Any) -> None:
        update(self, record)
        if record.round == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(_live.Watch, "update", interrupt)
    before = signal.getsignal(signal.SIGINT)
    done = shell("train", *SMALL, "--out", "my run", "--format", "json", "--tensorboard")
    assert (done.code, done.out) == (130, "")
    assert done.err.splitlines() == [
        "ending the round; Ctrl-C again stops at once",
        "stopped after round 2 of 3; resume with: freshband train --resume 'my run'",
        "interrupted",
    ]
    assert not Path("my run/result.nc").exists()
    assert signal.getsignal(signal.SIGINT) is before
    found = shell.answer("train", "--resume", "my run")
    assert found["final_loss"] == whole["final_loss"]
    assert found["participation"] == whole["participation"]
    assert load_training("my run/result.nc").equals(
        load_training("whole/result.nc").assign(seconds=load_training("my run/result.nc").seconds)
    )
    assert len(list(Path("my run/tensorboard").iterdir())) == 2  # it went on there as well


def test_a_finished_run_is_told_again(shell: Shell) -> None:
    first = shell.answer("train", *SMALL, "--out", "run")
    again = shell.answer("train", "--resume", "run")
    assert again["final_loss"] == first["final_loss"]


def test_damage_is_told(shell: Shell) -> None:
    first = shell.answer("train", *SMALL, "--out", "run", "--checkpoint-every", 1)
    newest = max(Path("run/checkpoints").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])
    Path("run/result.nc").unlink()
    done = shell("train", "--resume", "run", "--format", "json")
    assert done.code == 0
    assert done.err.startswith("note: damaged checkpoint, not used: ")
    assert newest.name in done.err
    assert json.loads(done.out)["final_loss"] == first["final_loss"]


def test_an_interrupt_without_a_folder(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _live.Watch, "update", lambda self, record: os.kill(os.getpid(), signal.SIGINT)
    )
    done = shell("train", *SMALL)
    assert done.code == 130
    assert "stopped after round 1 of 3; nothing is saved without --out" in done.err
    assert "3 clients, 1 rounds" in done.out  # what there is


def test_a_second_interrupt_stops_at_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt_twice(self: _live.Watch, record: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

    monkeypatch.setattr(_live.Watch, "update", interrupt_twice)
    before = signal.getsignal(signal.SIGINT)
    done = shell("train", *SMALL, "--out", "run")
    assert done.code == 130
    assert done.out == ""
    told = "stopped after round 1 of 3; resume with: freshband train --resume run\ninterrupted\n"
    assert done.err.endswith(told)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_in_the_last_round_changes_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: _live.Watch, record: Any) -> None:
        if record.round == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(_live.Watch, "update", interrupt)
    done = shell("train", *SMALL, "--out", "run", "--format", "json")
    assert done.code == 0
    assert json.loads(done.out)["rounds"] == 3
    assert Path("run/result.nc").exists()


# ---------------------------------------------------------------------------------------- display


def test_a_terminal_sees_rounds(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    ask = [PROGRAM, "train", *map(str, SMALL), "--set", "eval_every=2"]
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    with subprocess.Popen(
        ask, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs
    ) as program:
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], 240)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other side is gone
                break
        assert program.stdout is not None
        out = program.stdout.read().decode()
    os.close(ours)
    text = shown.decode()
    assert program.returncode == 0, text
    for expected in ("digits at 3 clients", "rounds/s", "mean age", "channels", "accuracy"):
        assert expected in text
    assert "\x1b" not in out
    assert "digits over fig3-piecewise" in out


def test_a_log_gets_a_line_now_and_then(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live, "_QUIET_FOR", 0.0)
    lines = shell("train", *SMALL, "--set", "eval_every=2").err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("round 1 of 3: mean age ")
    assert lines[1].startswith("round 2 of 3: accuracy 0.")
    assert lines[1].endswith(" left")
    assert shell("train", *SMALL, "--quiet").err == ""


def test_blocks() -> None:
    assert _live.blocks([0, 0.124, 0.126, 0.99, 1, 7, -1]) == "▁▁▂███▁"
    assert _live.blocks([0.3, 0.3], 0.3, 0.3) == "▁▁"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for text, kind, message in (
        (None, FileError, "cannot read .*mine.toml: No such file or directory"),
        ("rounds = x\n", FileError, r"mine.toml is not TOML: .*line 1"),
        ("[chanels]\n", UnknownNameError, r"no use for a table \[chanels\]; did you mean 'chann"),
    ):
        if text is not None:
            (tmp_path / "mine.toml").write_text(text)
        with refused(kind, message):
            read_file(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe")
    with refused(FileError, "cannot read .*mine.toml"):
        read_file(tmp_path / "mine.toml")


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--set cliet_lr=1", "Training has no parameter 'cliet_lr'; did you mean 'client_lr'?"),
        ("--set chanels.x=1", "--set chanels.x=1: 'chanels' is unknown; did you mean 'channels'?"),
        ("--set client_lr", "--set must be key=value or TABLE.key=value, got 'client_lr'"),
        ("--set client_lr=-1", "client_lr must be a number > 0, got -1"),
        ("--rounds 3 --set rounds=4", "the command line gives 'rounds' twice"),
        ("--rounds 0", "rounds must be a whole number >= 1, got 0"),
        ("--rounds many", "rounds must be a whole number >= 1, got 'many'"),
        ("--scheduler glr-cubc", "unknown scheduler 'glr-cubc'; did you mean 'glr-cucb'?"),
        ("--matching oldest", "unknown token '+oldest' in policy 'bayes+oldest'; "),
        ("--scheduler oracle", "policy must learn from acknowledgements; "),
        ("--dataset digit", "unknown dataset 'digit'; did you mean 'digits'?"),
        ("--dataset digits --data-dir x", "Digits has no parameter 'data_dir'; "),
        ("--model mpl", "unknown model 'mpl'; did you mean 'mlp'?"),
        ("--device gpu", "device must be 'auto', 'cpu' or a GPU like 'cuda', got 'gpu': "),
        ("--algorithm fedprox", "unknown algorithm 'fedprox'; "),
        ("--algorithm fedavg+fedbuff", "'fedavg+fedbuff' names two rules, 'fedavg' and 'fedbuff'"),
        ("--set algorithm.mixing=.1", "mixing belongs to algorithm 'fedasync', not to 'renorm'"),
        ("--set algorithm.mixin=.1", "no algorithm has an option 'mixin'; did you mean 'mixing'?"),
        ("--set ack_dely=3", "Training has no parameter 'ack_dely'; did you mean 'ack_delay'?"),
        ("--set fleet.ack_dely=3", "SimulatedFleet has no parameter 'ack_dely'; did you mean 'ack"),
        ("--set ack_loss=2", "ack_loss must be a number in [0, 1), got 2"),
        (
            "--set ack_delay=1 --set fleet.ack_delay=2",
            "the command line gives 'fleet.ack_delay' ",
        ),
        ("--set fleet.weights=[1,2]", "weights must be 10 finite numbers > 0, one per client"),
        ("--set fleet=late", "fleet must be settings such as {'ack_delay': 5}, got 'late'"),
        ("--config nothing.toml", "cannot read nothing.toml: No such file or directory"),
        ("--like file", "file is damaged or not a result"),
        ("--plot x.xyz", "the name of a picture must end in one of "),
        ("--out file", "cannot write into file: "),
        ("--tensorboard", "checkpoints and TensorBoard need a folder: give --out DIR"),
        ("--out run --log tensorbord", "unknown logger 'tensorbord'; did you mean 'tensorboard'?"),
        ("--keep 3", "checkpoints and TensorBoard need a folder: give --out DIR"),
        ("--resume nothing", "nothing holds no run"),
        (
            "--resume . --rounds 5",
            "--resume uses the settings of its folder: leave out --r",
        ),
        ("--resume . --set x=1", "--resume uses the settings of its folder: leave out --s"),
        ("--resume . --data-dir x", "--resume uses the settings of its folder: leave ou"),
    ],
)
def test_bad_input_is_told_before_any_round(shell: Shell, arguments: str, message: str) -> None:
    Path("file").write_text("kept")
    line = shell.refuses("train", *arguments.split())
    assert line.startswith(message)
    assert [each.name for each in Path.cwd().iterdir()] == ["file"]
    assert Path("file").read_text() == "kept"


@pytest.mark.usefixtures("never")
def test_a_folder_holds_one_run(shell: Shell) -> None:
    Path("run").mkdir()
    Path("run/run.json").write_text("{}")
    assert "run already holds a run" in shell.refuses("train", *SMALL, "--out", "run")


def test_without_torch_it_says_what_to_install(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading.importlib.util, "find_spec", lambda name: None)
    for command in ("train", "compare"):
        line = shell.refuses(command)
        assert line == "training needs PyTorch; install it with: pip install 'freshband[train]'"


def test_a_fleet_is_set_by_its_names_and_kept(shell: Shell) -> None:
    ask = ["--set", "channels.n_channels=2", "--set", "ack_delay=1", "--set", "churn=3"]
    ask += ["--set", "fleet.weights=[3,1,1]", "--out", "run"]
    found = shell.answer("train", *SMALL, *ask)
    kept = {"ack_delay": 1, "churn": 3.0, "weights": [3.0, 1.0, 1.0]}
    assert found["config"]["fleet"] == kept
    assert found["max_age"] >= 1
    Path("mine.toml").write_text("[fleet]\nack_delay = 2\nack_loss = 0.1\n")
    mine = shell.answer("train", *SMALL, "--config", "mine.toml", "--set", "ack_delay=0")
    assert mine["config"]["fleet"] == {"ack_delay": 0, "ack_loss": 0.1}
    again = shell.answer("train", "--like", "run/result.nc", "--set", "tells=true")
    assert again["config"]["fleet"] == {**kept, "tells": True}
    page = shell("report", "run")
    assert page.code == 0, page.err
    text = Path("run/report.html").read_text(encoding="utf-8")
    assert "ages do not count in the others" in text
    assert "Acknowledgements were late or lost" in text
