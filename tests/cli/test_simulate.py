"""``freshband simulate``: the forms others build on, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import xarray as xr

import freshband
from tests.cli.running import Shell

SMALL = ["--rounds", 300, "--runs", 2]
ISSUE = shlex.split(
    "simulate --channels piecewise --set n_channels=5 --set n_breakpoints=5 "
    "--policies random,m-exp3,glr-cucb --clients 2 --rounds 20000 --runs 40 --seed 0 --format json"
)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of 0/1 states, and another array beside it."""
    path = tmp_path / "lora.npz"
    states = (np.random.default_rng(0).random((400, 4)) < [0.9, 0.6, 0.5, 0.1]).astype(np.uint8)
    np.savez(path, received=states, rssi=np.zeros((2, 2)))
    return path


# ----------------------------------------------------------------------------------------- answers


def test_the_command_of_the_issue(shell: Shell) -> None:
    rounds = 2000 if numba.config.DISABLE_JIT else 20_000
    smaller = {"40": 3, "20000": rounds}
    found = shell.answer(*(smaller.get(each, each) for each in ISSUE))
    assert list(found["policies"]) == ["random", "m-exp3", "glr-cucb"]
    for row in found["policies"].values():
        for measure in ("regret", "regret_rotate", "mean_age", "cumulative_variance"):
            assert set(row[measure]) == {"mean", "se"}
            assert all(isinstance(value, float) for value in row[measure].values())
        assert row["rounds_per_second"] > 0
    regret = {name: row["regret"]["mean"] for name, row in found["policies"].items()}
    assert regret["random"] > regret["m-exp3"] > regret["glr-cucb"] > 0
    same = freshband.simulate(
        "piecewise",
        "random,m-exp3,glr-cucb",
        clients=2,
        rounds=rounds,
        runs=3,
        channel_options={"n_channels": 5, "n_breakpoints": 5},
    )
    assert regret["glr-cucb"] == float(same.regret.sel(policy="glr-cucb").mean())


def test_policies_are_named_as_typed(shell: Shell) -> None:
    typed = "glr-cucb:paper, m-exp3+age ,oracle:csi+age"
    found = shell.answer("simulate", "--policies", typed, *SMALL)
    assert list(found["policies"]) == ["glr-cucb:paper", "m-exp3+age", "oracle:csi+age"]


def test_traces_of_states_have_a_regret_against_the_best_fixed_set(
    shell: Shell, recording: Path
) -> None:
    source = ["--channels", "trace", "--set", f"path={recording}", "--set", "key=received"]
    ask = ["simulate", *source, "--policies", "random,cucb", *SMALL]
    for row in shell.answer(*ask)["policies"].values():
        assert row["regret"] is None
        assert row["regret_rotate"] is None
        assert set(row["regret_fixed"]) == {"mean", "se"}
    done = shell(*ask, "--plot", "curves.png")
    assert done.code == 0
    assert "regret_fixed" in done.out
    assert "these channels have no means" in done.out


def test_a_recording_played_again_has_nothing_random_in_it(shell: Shell, recording: Path) -> None:
    source = ["--channels", "trace", "--set", f"path={recording}", "--set", "key=received"]
    ask = ["simulate", *source, "--policies", "random,cucb", "--rounds", 300, "--runs", 5]
    found = shell.answer(*ask)
    assert found["same_air"] is True
    assert found["policies"]["cucb"]["mean_age"]["se"] == 0
    assert found["policies"]["random"]["mean_age"]["se"] > 0
    out = shell(*ask).out
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("│")}
    assert "±" not in rows["cucb"]
    assert rows["random"].count("±") == 4
    told = " ".join(out.split())
    assert "all 5 runs met the same states, nothing in them is random: ± is the standard" in told
    assert "(offset=random begins each run elsewhere in the recording)" in told
    for how in (["offset=random"], ["offset=random", "wrap=true"]):
        more = [word for setting in how for word in ("--set", setting)]
        found = shell.answer(*ask, *more)
        assert found["same_air"] is False
        assert found["policies"]["cucb"]["mean_age"]["se"] > 0
        told = " ".join(shell(*ask, *more).out.split())
        assert "runs, which begin at random rows of one recording and are not independent" in told
    assert shell.answer(*ask[:-2], "--runs", 1)["same_air"] is False


def test_a_result_remembers_that_its_runs_met_the_same_states(
    shell: Shell, recording: Path
) -> None:
    source = ["--channels", "trace", "--set", f"path={recording}", "--set", "key=received"]
    ask = ["simulate", *source, "--policies", "cucb", "--rounds", 300, "--runs", 2]
    assert shell(*ask, "--out", "it.nc").code == 0
    assert freshband.summarise(freshband.load_result("it.nc"))["same_air"] is True
    assert shell("report", "it.nc", "--out", "it.html").code == 0
    page = Path("it.html").read_text(encoding="utf-8")
    assert "All runs met the same channel states, which are not random" in page
    assert shell("simulate", "--policies", "cucb", *SMALL, "--out", "other.nc").code == 0
    assert shell("report", "other.nc", "--out", "other.html").code == 0
    assert "met the same states" not in Path("other.html").read_text(encoding="utf-8")


def test_settings_reach_channels_and_policies(shell: Shell) -> None:
    found = shell.answer(
        *("simulate", "--channels", "stationary", "--set", "means=[0.9,0.5,0.1]"),
        *("--policies", "glr-cucb,glr-cucb:paper", "--set", "glr-cucb.delta=0.5"),
        *("--set", "glr-cucb:paper.alpha=besson", *SMALL),
    )
    assert found["channel_options"]["means"] == [0.9, 0.5, 0.1]
    assert found["policy_options"] == {
        "glr-cucb": {"delta": 0.5},
        "glr-cucb:paper": {"alpha": "besson"},
    }


def test_an_option_of_one_policy_says_what_becomes_of_the_others(shell: Shell) -> None:
    ask = ["simulate", "--policies", "cucb,cucb+aa,cucb+age", *SMALL, "--format", "json"]
    own = ["cucb.mean_window=200", "cucb+aa.mean_window=None", "cucb+age.mean_window=50"]
    found = shell.answer(*ask, *(word for each in own for word in ("--set", each)))
    assert found["policy_options"] == {
        "cucb": {"mean_window": 200},
        "cucb+aa": {"mean_window": None},
        "cucb+age": {"mean_window": 50},
    }
    alone = shell.answer(*ask, "--set", "cucb+aa.mean_window=200")  # nobody's name begins so
    assert alone["policy_options"] == {"cucb+aa": {"mean_window": 200}}


def test_a_result_in_which_an_option_left_others_alone_is_repeated(shell: Shell) -> None:
    """As earlier versions allowed on the command line, and the library still does."""
    old = freshband.simulate(
        "piecewise", "cucb,cucb+aa", rounds=300, runs=2, policy_options={"cucb": {"index_c": 0.5}}
    )
    freshband.save_result(old, "old.nc")
    assert shell("simulate", "--like", "old.nc", "--out", "new.nc").code == 0
    new = freshband.load_result("new.nc")
    assert new.attrs["config"] == old.attrs["config"]
    xr.testing.assert_equal(new.drop_vars("seconds"), old.drop_vars("seconds"))


def test_numbers_may_be_written_shortly(shell: Shell) -> None:
    ask = ["--policies", "random", "--rounds", "3e2", "--runs", "1_0", "--format", "json"]
    air = ["--set", "mean_low=.6", "--set", "mean_high=+1", "--set", "n_breakpoints=1e0"]
    found = shell.answer("simulate", *ask, *air)
    assert (found["rounds"], found["runs"]) == (300, 10)
    assert found["channel_options"] == {"mean_low": 0.6, "mean_high": 1.0, "n_breakpoints": 1}


def test_the_table(shell: Shell) -> None:
    done = shell("simulate", "--policies", "random,glr-cucb,oracle", *SMALL)
    assert (done.code, done.err) == (0, "")
    assert "piecewise: 2 clients, 300 rounds, 2 runs, seed 0" in done.out
    assert "mean ± standard error over runs" in done.out
    rows = [line for line in done.out.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["random", "glr-cucb", "oracle"]
    assert "0 ± 0" in rows[-1]
    single = shell("simulate", "--policies", "random", "--rounds", 50, "--runs", 1)
    assert "50 rounds, 1 run, seed 0" in single.out
    assert "one run: no standard errors" in single.out
    assert "±" not in single.out


def test_only_detectors_have_alarms_in_the_table(shell: Shell) -> None:
    ask = ["--policies", "random,glr-cucb", "--rounds", 60, "--runs", 2]
    done = shell("simulate", *ask, "--set", "glr-cucb.delta=1e-300")  # it looks, in vain
    rows = [line.split("│") for line in done.out.splitlines() if line.startswith("│")]
    assert [row[-4].strip() for row in rows] == ["—", "0.0"]


def test_a_narrow_terminal_gets_fewer_columns(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take a pipe for a terminal
    for width in (80, 100, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        out = re.sub(r"\x1b\[[\d;]*m", "", shell("simulate", *SMALL).out)
        rows = [line for line in out.splitlines() if line.startswith("│")]
        assert len(rows) == 4, out  # nothing is folded
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= width
        assert ("no room for M rounds/s, Jain" in " ".join(out.split())) == (width < 160)


@pytest.mark.parametrize("command", [["simulate", "--policies", "random,cucb"], ["bounds"]])
def test_a_tiny_terminal_folds_and_cuts_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = shell(*command, *SMALL)
    assert done.code == 0
    assert "…" not in done.out


def test_quiet_and_threads_are_accepted(shell: Shell) -> None:
    ask = ["simulate", "--policies", "random", *SMALL]
    assert shell(*ask, "--quiet", "--threads", 2).code == 0


# ------------------------------------------------------------------------------------------ files


def test_results_and_pictures(shell: Shell, tmp_path: Path) -> None:
    files = ["--out", "results/small.nc", "--plot", "results/small.svg"]
    done = shell("simulate", "--policies", "random,cucb", *SMALL, "--seed", 3, *files)
    assert (done.code, done.err) == (0, "")
    assert "wrote results/small.nc" in done.out
    assert "wrote results/small.svg" in done.out
    found = {each.name for each in (tmp_path / "results").iterdir()}
    assert found == {"small.nc", "small.svg"}
    result = freshband.load_result("results/small.nc")
    assert json.loads(result.attrs["config"])["seed"] == 3
    assert Path("results/small.svg").read_text().startswith("<?xml")


def test_json_stays_pure_next_to_files(shell: Shell) -> None:
    files = ["--out", "small.nc", "--plot", "small.pdf"]
    shell.answer("simulate", "--policies", "random", *SMALL, *files)
    assert Path("small.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("measure", ["regret", "regret_rotate", "age", "variance"])
def test_measures_to_plot(shell: Shell, measure: str) -> None:
    ask = ["simulate", "--policies", "random", *SMALL, "--plot", "x.png", "--measure", measure]
    assert shell(*ask).code == 0
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")


def test_like_repeats_a_result(shell: Shell) -> None:
    ask = ["--channels", "stationary", "--set", "n_channels=3", "--policies", "cucb,random"]
    more = ["--set", "cucb.index_c=2", "--points", 7, *SMALL]
    shell("simulate", *ask, *more, "--seed", 4, "--out", "first.nc")
    shell("simulate", "--like", "first.nc", "--out", "second.nc")
    first, second = (freshband.load_result(name) for name in ("first.nc", "second.nc"))
    xr.testing.assert_equal(second.drop_vars("seconds"), first.drop_vars("seconds"))
    assert second.attrs["config"] == first.attrs["config"]


def test_like_may_be_changed(shell: Shell) -> None:
    shell("simulate", "--policies", "random", *SMALL, "--out", "first.nc")
    ask = ["--runs", 3, "--seed", 9, "--clients", 4, "--rounds", 50, "--points", 5]
    shell("simulate", "--like", "first.nc", *ask, "--out", "second.nc")
    config = json.loads(freshband.load_result("second.nc").attrs["config"])
    assert config == {
        **json.loads(freshband.load_result("first.nc").attrs["config"]),
        **{"runs": 3, "seed": 9, "clients": 4, "rounds": 50, "points": 5},
    }


def test_like_says_what_is_simulated(shell: Shell) -> None:
    shell("simulate", "--policies", "random", *SMALL, "--out", "first.nc")
    for option, value in {"policies": "cucb", "channels": "jammer", "set": "n_channels=3"}.items():
        line = shell.refuses("simulate", "--like", "first.nc", f"--{option}", value)
        assert line == f"--like says what is simulated: leave out --{option}"


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--rounds 0", "rounds must be a whole number >= 1, got 0"),
        ("--rounds abc", "rounds must be a whole number >= 1, got 'abc'"),
        ("--rounds 2.5", "rounds must be a whole number >= 1, got 2.5"),
        ("--rounds nan", "rounds must be a whole number >= 1, got nan"),
        ("--rounds 1e20", "rounds must be a whole number in [1, 1000000000000], got 1e+20"),
        ("--runs -3", "runs must be a whole number >= 1, got -3"),
        ("--clients 0", "clients must be a whole number >= 1, got 0"),
        ("--points 0", "points must be a whole number >= 1, got 0"),
        ("--threads no", "threads must be a whole number >= 1, got 'no'"),
        ("--seed -1", "seed must be an integer >= 0, got -1"),
        ("--seed 1.5", "seed must be an integer >= 0, got 1.5"),
        ("--channels picewise", "unknown channel model 'picewise'; did you mean 'piecewise'?"),
        ("--channels trace", "Trace needs a value for 'path'"),
        ("--policies glr-cubc", "unknown scheduler 'glr-cubc'; did you mean 'glr-cucb'?"),
        ("--policies random,random", "policies must differ, got 'random' twice"),
        ("--policies m-exp3+aaa", "unknown token '+aaa' in policy 'm-exp3+aaa'; did you mean"),
        ("--set n_channels", "--set must be key=value or POLICY.key=value, got 'n_channels'"),
        (
            "--set n_chanels=3",
            "neither Piecewise nor the fleet has a parameter 'n_chanels'; did you mean 'n_chan",
        ),
        ("--set n_channels=two", "n_channels must be a whole number >= 1, got 'two'"),
        ("--set n_channels=true", "n_channels must be a whole number >= 1, got True"),
        ("--set p_change=NaN", "p_change must be a number in [0, 1], got nan"),
        ("--set p_change=1.5", "p_change must be a number in [0, 1], got 1.5"),
        ("--set p_change=-.5", "p_change must be a number in [0, 1], got -0.5"),
        ("--set p_change=inf", "p_change must be a number in [0, 1], got 'inf'"),
        ("--set n_channels=2.5", "n_channels must be a whole number >= 1, got 2.5"),
        ("--set glr-cucb.delta=2", "delta must be a number in (0, 1), got 2"),
        ("--set glr-cucb.dleta=2", "GlrCucb has no parameter 'dleta'; did you mean 'delta'?"),
        ("--set glr.delta=0.1", "options are given for policy 'glr', which is not simulated; "),
        (
            "--policies cucb,cucb+aa --set cucb.mean_window=200",
            "--set cucb.mean_window is for cucb alone and leaves cucb+aa at None: give "
            "cucb+aa.mean_window too",
        ),
        (
            "--policies glr-cucb:paper+rotate,glr-cucb:paper --set glr-cucb:paper.delta=.1",
            "--set glr-cucb:paper.delta is for glr-cucb:paper alone and leaves glr-cucb:paper+rot",
        ),
        ("--log", "--measure and --log say how curves are drawn: give --plot FILE too"),
        ("--measure age", "--measure and --log say how curves are drawn: give --plot FILE too"),
        ("--plot curves", "the name of a picture must end in one of png, pdf, svg, "),
        ("--plot curves.nc", "the name of a picture must end in one of png, pdf, svg, "),
        ("--plot x.png --out x.png", "--out and --plot must name two files, got x.png twice"),
        ("--plot x.png --measure regret_fixed", "measure must not be 'regret_fixed' for channels"),
        ("--out .", "cannot write .: it is a folder"),
        ("--out file/x.nc", "cannot write file/x.nc: file is not a writable folder"),
        ("--plot file/x.png", "cannot write file/x.png: file is not a writable folder"),
        ("--plot .", "cannot write .: it is a folder"),
        ("--like nothing.nc", "cannot read nothing.nc: No such file or directory"),
        ("--like file", "file is damaged or not a result"),
        ("--like .", "cannot read .: Is a directory"),
    ],
)
def test_bad_input_is_told_before_any_run(shell: Shell, arguments: str, message: str) -> None:
    Path("file").write_text("kept")
    line = shell.refuses("simulate", *arguments.split())
    assert line.startswith(message)
    assert [each.name for each in Path.cwd().iterdir()] == ["file"]
    assert Path("file").read_text() == "kept"


@pytest.mark.usefixtures("never")
def test_an_empty_policy(shell: Shell) -> None:
    assert shell.refuses("simulate", "--policies", "").startswith("policy must be text like")


@pytest.mark.usefixtures("never")
def test_traces_that_cannot_be_read(shell: Shell, recording: Path) -> None:
    Path("ragged.csv").write_text("a,b\n1,0\n1\n")
    for path, message in {"nothing.npz": "No such file", "ragged.csv": "ragged.csv"}.items():
        line = shell.refuses("simulate", "--channels", "trace", "--set", f"path={path}")
        assert message in line
    source = ["--channels", "trace", "--set", f"path={recording}", "--set", "key=received"]
    line = shell.refuses("simulate", *source, "--rounds", 401, "--policies", "random")
    assert line.startswith("rounds must be at most 400, the length of ")
    line = shell.refuses("simulate", *source, "--rounds", 10, "--policies", "oracle")
    assert line.startswith("policy 'oracle' needs channel means, which these channels do not have")
    ask = ["--rounds", 10, "--policies", "random", "--plot", "x.png", "--measure", "regret_rotate"]
    line = shell.refuses("simulate", *source, *ask)
    assert line == "measure must not be 'regret_rotate' for channels that have no means"


def test_a_disk_that_fails_leaves_nothing_half_written(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: xr.Dataset, scratch: Path, **settings: Any) -> None:
        scratch.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    ask = ["simulate", "--policies", "random", *SMALL, "--out", "x.nc"]
    assert shell.refuses(*ask) == "cannot write x.nc: No space left on device"
    assert [path.name for path in Path.cwd().iterdir()] == ["x.nc.runs"]  # to go on from
