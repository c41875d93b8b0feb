"""``freshband compare``: policies side by side, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from freshband.cli.app import app
from freshband.federated import comparison
from freshband.federated.comparison import load_comparison
from freshband.federated.settings import Training
from tests.cli.running import Shell

SMALL = ["--model", "mlp", "--clients", 3, "--rounds", 3, "--runs", 2]


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be trained."""

    def train_together(*arguments: Any) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(comparison, "train_together", train_together)


def test_policies_side_by_side(shell: Shell) -> None:
    ask = ["--policies", "random, glr-cucb+priority", *SMALL, "--out", "new/it.nc"]
    done = shell("compare", *ask, "--plot", "it.png")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert "digits over fig3-piecewise: 3 clients, 3 rounds, 2 runs, seed 0" in lines[0]
    for heading in ("accuracy", "spread", "regret", "mean age", "cum. variance", "Jain"):
        assert heading in lines[2]
    rows = [line for line in lines if line.startswith("│")]
    assert [row.split()[1] for row in rows] == ["random", "glr-cucb+priority", "│"]
    assert rows[2].count("±") == 8
    assert "paired difference to random ± its standard error" in done.out
    assert lines[-2:] == ["wrote new/it.nc", "wrote it.png"]
    assert Path("it.png").read_bytes().startswith(b"\x89PNG")
    assert load_comparison("new/it.nc").sizes["run"] == 2


def test_json_and_a_repetition(shell: Shell) -> None:
    ask = ["--policies", "random,glr-cucb", "--set", "glr-cucb.delta=0.2", "--seed", 4]
    ask += ["--set", "client_lr=0.1", "--set", "partition.alpha=0.3"]
    first = shell.answer("compare", *ask, *SMALL, "--out", "it.nc")
    assert list(first["policies"]) == ["random", "glr-cucb"]
    assert first["policy_options"] == {"glr-cucb": {"delta": 0.2}}
    assert first["config"]["client_lr"] == 0.1
    assert first["config"]["partition_options"] == {"alpha": 0.3}
    row = first["policies"]["glr-cucb"]
    assert set(row["regret"]) == set(row["versus_first"]["regret"]) == {"mean", "se"}
    again = shell.answer("compare", "--like", "it.nc")
    for timing in ("seconds",):
        first.pop(timing)
        again.pop(timing)
    assert again == first
    fewer = shell.answer("compare", "--like", "it.nc", "--runs", 1, "--policies", "random")
    assert (fewer["runs"], fewer["policy_options"]) == (1, {})
    assert fewer["policies"]["random"]["regret"]["se"] is None


def test_runs_over_one_recording_say_what_differs(shell: Shell) -> None:
    Path("air.csv").write_text("a,b,c\n" + "1,0,1\n0,1,1\n" * 4)
    air = ["--channels", "trace", "--set", "channels.path=air.csv", "--policies", "random,cucb"]
    found = shell.answer("compare", *air, *SMALL, "--out", "it.nc")
    assert found["same_air"] is True
    assert found["policies"]["cucb"]["regret_fixed"]["se"] == 0
    assert found["policies"]["cucb"]["final_loss"]["se"] > 0
    told = " ".join(shell("compare", *air, *SMALL).out.split())
    assert "all runs met the same states of the channels: it is that of data, weights," in told
    assert shell("report", "it.nc", "--out", "it.html").code == 0
    assert "All runs met the same channel states" in Path("it.html").read_text("utf-8")
    assert (
        shell.answer("compare", *air, "--set", "channels.offset=random", *SMALL)["same_air"]
        is False
    )


def test_settings_of_several_rules_go_together(shell: Shell) -> None:
    ask = ["--policies", "random,random@fedasync,random@fedbuff", *SMALL[:-1], 1, "--quiet"]
    plain = shell.answer("compare", *ask)
    more = ["--set", "mixing=.1", "--set", "buffer_size=1", "--out", "it.nc"]
    found = shell.answer("compare", *ask, *more)
    assert found["config"]["algorithm_options"] == {"mixing": 0.1, "buffer_size": 1}
    loss = {
        name: [each["policies"][name]["final_loss"]["mean"] for each in (plain, found)]
        for name in found["policies"]
    }
    assert [before == after for before, after in loss.values()] == [True, False, False]
    again = shell.answer("compare", "--like", "it.nc", "--quiet")
    assert again["policies"]["random@fedbuff"]["final_loss"]["mean"] == loss["random@fedbuff"][1]
    fewer = shell.answer(
        "compare", "--like", "it.nc", "--policies", "random,random@fedbuff", "--quiet"
    )
    assert fewer["config"]["algorithm_options"] == {"buffer_size": 1}
    Path("mine.toml").write_text('policies = "random@fedasync"\nmixing = 0.1\nmodel = "mlp"\n')
    chosen = ["--config", "mine.toml", "--clients", 2, "--rounds", 3, "--runs", 1, "--quiet"]
    assert shell.answer("compare", *chosen)["config"]["algorithm_options"] == {"mixing": 0.1}
    assert (
        shell.answer("compare", *chosen, "--policies", "random")["config"]["algorithm_options"]
        == {}
    )


def test_one_run_has_no_errors_to_show(shell: Shell) -> None:
    done = shell("compare", "--policies", "random,cucb", *SMALL[:-2], "--runs", 1)
    assert done.code == 0
    assert "±" not in done.out
    assert "1 run, seed 0" in done.out


def test_a_narrow_terminal_does_without_some(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    done = shell("compare", "--policies", "random,cucb", *SMALL, "--quiet")
    text = " ".join(done.out.split())
    assert "no room for Jain, loss" in text
    for kept in ("accuracy", "regret", "cum. variance"):
        assert kept in done.out.splitlines()[2]
    assert all(len(line) <= 80 for line in done.out.splitlines() if line.startswith("│"))


def test_a_file_gives_policies_and_settings(shell: Shell) -> None:
    Path("mine.toml").write_text(
        'policies = ["random", "cucb"]\nruns = 1\nrounds = 2\nclients = 2\nmodel = "mlp"\n'
        '[channels]\nname = "stationary"\nn_channels = 4\n'
    )
    found = shell.answer("compare", "--config", "mine.toml", "--rounds", 3)
    assert list(found["policies"]) == ["random", "cucb"]
    assert (found["runs"], found["rounds"], found["channels"]) == (1, 3, "stationary")
    assert found["config"]["channel_options"] == {"n_channels": 4}


def test_defaults_are_those_of_the_library() -> None:
    defaults = Training()
    command = typer.main.get_command(app).commands["compare"]  # type: ignore[attr-defined]
    for option in command.params:
        if option.name in Training.model_fields:
            assert option.default == getattr(defaults, option.name), option.name


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--policies random,rndom", "unknown scheduler 'rndom'; did you mean 'random'?"),
        ("--policies random,random", "policies must differ, got 'random' twice"),
        ("--policies random@fed", "unknown algorithm 'fed'; did you mean"),
        (
            "--policies random@fedavg+fedbuff",
            "policy 'random@fedavg+fedbuff': 'fedavg+fedbuff' names two rules",
        ),
        ("--policies random@fixed+renorm", "policy 'random@fixed+renorm': 'fixed+renorm' names"),
        ("--policies random@fedavg+eager", "eager belongs to a rule whose clients send again"),
        (
            "--policies random --set mixing=.1",
            "mixing belongs to algorithm 'fedasync', not to 'renorm', got 0.1: no policy compared",
        ),
        (
            "--policies cucb,cucb@fixed --set cucb.mean_window=9",
            "--set cucb.mean_window is for cucb alone and leaves cucb@fixed at None: give ",
        ),
        ("--gpus 0.5", "gpus is the share of a GPU per run on Ray: use it with backend='ray'"),
        ("--runs 0", "runs must be a whole number >= 1, got 0"),
        ("--rounds x", "rounds must be a whole number >= 1, got 'x'"),
        ("--set scheduler.delta=1", "--set scheduler.delta=1: 'scheduler' is unknown; "),
        (
            "--policies cucb --set cubc.x=1",
            "--set cubc.x=1: 'cubc' is unknown; did you mean 'cucb'",
        ),
        ("--policies random --set random.x=1", "RandomScheduler has no parameter 'x'; "),
        ("--set client_l=1", "Training has no parameter 'client_l'; did you mean 'client_lr'?"),
        ("--out .", "cannot write .: it is a folder"),
        ("--plot x.xyz", "the name of a picture must end in one of "),
        ("--plot x.png --out x.png", "--out and --plot must name two files, got x.png twice"),
        ("--like mine.toml", "mine.toml is damaged or not a result"),
        ("--config mine.toml", "mine.toml names a policy: compare takes policies"),
        ("--config nothing.toml", "cannot read nothing.toml: No such file or directory"),
    ],
)
def test_bad_input_is_told_before_any_training(shell: Shell, arguments: str, message: str) -> None:
    Path("mine.toml").write_text('scheduler = "random"\n')
    line = shell.refuses("compare", *arguments.split())
    assert line.startswith(message)
    assert [each.name for each in Path.cwd().iterdir()] == ["mine.toml"]
