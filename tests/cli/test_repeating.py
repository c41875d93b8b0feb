"""Saved results and runs, repeated from another folder, after a move, and without their imports."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freshband import _plugins
from freshband.channels.base import registry as channels
from freshband.federated import settings
from freshband.simulation.result import load_result, save_result
from tests.cli.running import Shell

SIMULATE = ["simulate", "--policies", "random", "--rounds", 40, "--runs", 2, "--format", "json"]
TRAIN = ["train", "--model", "mlp", "--clients", 2, "--rounds", 2, "--format", "json", "--quiet"]
COMPARE = ["compare", "--model", "mlp", "--clients", 2, "--rounds", 2, "--runs", 1]
COMPARE += ["--policies", "random", "--format", "json", "--quiet"]

PLUGIN = '''
import numpy as np
from freshband.channels import MeansStream, register
from freshband.parameters import Parameters

@register("quiet-air")
class QuietAir(Parameters):
    """Nothing ever gets lost."""

    n_channels: int = 4
    has_means: bool = True

    def start(self, rounds, structure, states):
        return MeansStream(rounds, self.n_channels, [np.ones((rounds, self.n_channels))], states)
'''


@pytest.fixture
def home(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recording of 60 rounds, and another folder beside it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    rows = "".join(f"{t % 2},{t % 3 // 2},1\n" for t in range(60))
    (folder / "air.csv").write_text("a,b,c\n" + rows)
    monkeypatch.chdir(folder)
    return folder


def make(shell: Shell, kind: str) -> list[object]:
    """Make a result over the recording; return how to repeat it, from the folder beside."""
    air = ["--channels", "trace", "--set"]
    if kind == "simulate":
        done = shell(*SIMULATE, *air, "path=air.csv", "--out", "results/it.nc")
        again = ["simulate", "--like", "../home/results/it.nc", "--format", "json"]
    elif kind == "compare":
        done = shell(*COMPARE, *air, "channels.path=air.csv", "--out", "results/it.nc")
        again = ["compare", "--like", "../home/results/it.nc", "--format", "json", "--quiet"]
    else:
        done = shell(*TRAIN, *air, "channels.path=air.csv", "--out", "run")
        again = ["train", "--like", "../home/run/result.nc", "--format", "json", "--quiet"]
        if kind == "resume":
            again = ["train", "--resume", "../home/run", "--format", "json"]
    assert (done.code, done.err) == (0, "")
    return again


every_kind = pytest.mark.parametrize("kind", ["simulate", "compare", "train", "resume"])


@every_kind
def test_a_recording_is_found_from_another_folder(
    shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    again = make(shell, kind)
    monkeypatch.chdir(home.parent / "elsewhere")
    Path("air.csv").write_text("a,b\n0,0\n")  # another recording that is called the same
    done = shell(*again)
    assert (done.code, done.err) == (0, "")
    assert str(home / "air.csv") in done.out


@every_kind
def test_a_recording_is_found_after_its_folder_moved(
    shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    again = make(shell, kind)
    moved = home.rename(home.parent / "moved")
    monkeypatch.chdir(home.parent / "elsewhere")
    done = shell(*(str(word).replace("../home", "../moved") for word in again))
    assert done.code == 0
    old, new = home / "air.csv", moved / "air.csv"
    assert done.err == f"note: {old} is missing, {new} is used instead\n"
    json.loads(done.out)


@every_kind
def test_a_recording_that_is_gone_is_named(
    shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    again = make(shell, kind)
    (home / "air.csv").unlink()
    monkeypatch.chdir(home.parent / "elsewhere")
    assert shell.refuses(*again).startswith(f"{home / 'air.csv'}: No such file or directory")


def test_a_result_that_names_its_recording_by_a_relative_path(
    shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of earlier versions do: what is there is taken first, then what is beside them."""
    make(shell, "simulate")
    path = Path("results/it.nc")
    result = load_result(path)
    config = {**json.loads(result.attrs["config"]), "channel_options": {"path": "air.csv"}}
    save_result(result.assign_attrs(config=json.dumps(config)), path)
    done = shell("simulate", "--like", path, "--format", "json")
    assert (done.code, done.err) == (0, "")
    shutil.copy(home / "air.csv", home / "results")
    monkeypatch.chdir(home.parent / "elsewhere")
    done = shell("simulate", "--like", home / path, "--format", "json")
    assert done.code == 0
    assert done.err == f"note: air.csv is missing, {home / 'results/air.csv'} is used instead\n"


def test_a_run_that_names_its_recording_by_a_relative_path(
    shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of earlier versions do, in ``run.json`` and in the checkpoints."""
    with monkeypatch.context() as earlier:
        earlier.setattr(settings, "with_absolute_files", dict)
        make(shell, "resume")
    assert json.loads(Path("run/run.json").read_text())["settings"]["channel_options"] == {
        "path": "air.csv"
    }
    Path("run/result.nc").unlink()
    done = shell("train", "--resume", "run", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert "wrote run/result.nc" in done.out


def test_a_folder_of_data_is_found_from_another_folder(home: Path) -> None:
    from freshband.federated import Training

    Path("data").mkdir()
    options = Training(dataset="cifar10", dataset_options={"data_dir": "data"}).dataset_options
    assert options == {"data_dir": str(home / "data")}
    assert Training(dataset_options={"data_dir": "none"}).dataset_options == {"data_dir": "none"}


# -------------------------------------------------------------------------- files of the user's own


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """What makes this process one that has not imported anything."""
    known = dict((channels.names(), channels._things)[1])
    monkeypatch.setattr(_plugins, "_imported", [])

    def begin_anew() -> None:
        monkeypatch.setattr(channels, "_things", dict(known))
        _plugins._imported.clear()
        sys.modules.pop("quiet", None)

    begin_anew()
    yield begin_anew
    begin_anew()


@pytest.mark.parametrize(
    ("make", "again"),
    [
        ([*SIMULATE, "--out", "it.nc"], ["simulate", "--like", "it.nc"]),
        ([*COMPARE, "--out", "it.nc"], ["compare", "--like", "it.nc"]),
        ([*TRAIN, "--out", "run"], ["train", "--like", "run/result.nc"]),
        ([*TRAIN, "--out", "run"], ["train", "--resume", "run"]),
    ],
    ids=["simulate", "compare", "train", "resume"],
)
def test_an_import_that_is_missing_is_named(
    shell: Shell, forget: Callable[[], None], make: list[object], again: list[str]
) -> None:
    Path("quiet.py").write_text(PLUGIN)
    done = shell("--import", "quiet.py", *make, "--channels", "quiet-air")
    assert (done.code, done.err) == (0, "")
    forget()
    line = shell.refuses(*again)
    source = "run/run.json" if "--resume" in again else again[-1]
    made = f"{source} was made with 'freshband --import {Path.cwd() / 'quiet.py'}': "
    told = made + "use these options again"
    assert told in line
    assert "(unknown channel model 'quiet-air'; " in line
    assert "damaged" not in line
    assert shell("--import", "quiet.py", *again).code == 0


def test_a_name_nobody_imported_is_only_unknown(shell: Shell, forget: Callable[[], None]) -> None:
    """A script may register things too; then there is no file to name."""
    Path("quiet.py").write_text(PLUGIN)
    _plugins.import_file(Path("quiet.py"))
    _plugins._imported.clear()
    assert shell(*SIMULATE, "--channels", "quiet-air", "--out", "it.nc").code == 0
    forget()
    line = shell.refuses("simulate", "--like", "it.nc")
    assert line.startswith("unknown channel model 'quiet-air'; ")
    assert line.endswith("(if it.nc uses your own code, import its file again: --import FILE.py)")
    line = shell.refuses("simulate", "--channels", "quiet-air")
    assert line.startswith("unknown channel model 'quiet-air'; ")
    assert "--import" not in line


# ------------------------------------------------------------------------- rounds nobody asked for


@pytest.mark.usefixtures("home")
def test_a_shorter_recording_is_played_to_its_end_by_default(shell: Shell) -> None:
    air = ["--set", "path=air.csv"]
    assert shell("show", "trace", *air) == (0, "wrote channels.png\n", "")
    ask = ["simulate", "--channels", "trace", *air, "--policies", "random", "--runs", 1]
    done = shell(*ask, "--format", "json")
    assert json.loads(done.out)["rounds"] == 60
    for command in (["show", "trace", *air], ask):
        line = shell.refuses(*command, "--rounds", 20_000)
        assert line.startswith("rounds must be at most 60, the length of ")
    done = shell(*ask, "--set", "wrap=true", "--format", "json")
    assert json.loads(done.out)["rounds"] == 20_000
