"""``freshband reproduce``: what is registered, in the package's files and in the user's."""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from scipy import stats

from freshband.cli._options import Format
from freshband.cli.app import app
from freshband.cli.reproduce import choose
from freshband.errors import UnknownNameError
from freshband.experiments._choice import SEARCHES, Search, Setting, best_of, read_trials
from freshband.experiments.base import _COMMANDS, Machine, _experiment_names, registry
from freshband.reporting.report import write_report
from freshband.simulation.result import load_result
from freshband.statistics import holm
from tests.cli.running import Shell
from tests.experiments.searching import as_trials, walk

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "my_experiment.py"
QUIET = Machine(device="cpu", progress=False)
SEARCH = {
    "searches": {("digits", "extreme"): Search(4, (4,), (1e-6, 0.1))},
    "changes": {"model": "mlp", "rounds": 30, "eval_every": 15},
}


def test_the_command_line_follows_from_the_registration(shell: Shell) -> None:
    page = " ".join(shell("reproduce", "--help").out.replace("│", " ").split())
    listed = shell("list", "experiments").out
    for name in _experiment_names():
        assert f"{name}: {registry[name].title};" in page
        assert re.search(rf"^{name} ", listed, re.MULTILINE)
        assert registry[name].needs() in shell("list", name).out
    assert all(f"{command}: " in page for command in _COMMANDS)
    unknown = "unknown experiment 'fig2d'; did you mean"
    assert shell.refuses("reproduce", "fig2d").startswith(unknown)
    with pytest.raises(UnknownNameError, match=unknown):
        registry["fig2d"]


def test_a_page_of_nothing_is_refused(shell: Shell) -> None:
    told = "nothing holds neither verdicts nor trials of freshband reproduce"
    assert shell.refuses("reproduce", "page", "--out", "nothing") == told
    Path("damaged").mkdir()
    Path("damaged/fig2a-full.json").write_text("[{")
    told = "damaged/fig2a-full.json is damaged or not a result"
    assert shell.refuses("reproduce", "page", "--out", "damaged") == told
    assert not Path("damaged.md").exists()


def test_verdicts_of_one_data_set_follow_from_its_pieces(shell: Shell) -> None:
    """From the runs of the documentation, so that nothing is trained."""
    kept = ROOT / "docs" / "reproduction"
    Path("it").mkdir()
    for path in kept.glob("training-full-cifar10-*.nc"):
        Path("it", path.name).symlink_to(path)
    command = ("reproduce", "fig3", "--scale", "full", "--dataset", "cifar10", "--out", "it")
    done = shell(*command, "--format", "json")
    assert (done.code, {line.split()[0] for line in done.err.splitlines()}) == (0, {"kept"})
    claims = json.loads(kept.joinpath("fig3-full-cifar10.json").read_text())["claims"]
    assert json.loads(done.out)["fig3"] == claims
    assert Path("it/accuracy-full-cifar10.png").read_bytes().startswith(b"\x89PNG")
    assert shell("reproduce", "page", "--out", "it").out == "wrote it.md\n"
    page = Path("it.md").read_text(encoding="utf-8")
    assert "## Fig. 3: Accuracy over rounds, cifar10\n" in page
    assert "freshband reproduce fig3 --scale full --dataset cifar10 --out reproduction" in page
    assert "it/accuracy-by-work-full-cifar10.png" in page
    told = "experiment 'fig3' does not train on 'cifar100' at the scale quick"
    assert shell.refuses("reproduce", "fig3", "--dataset", "cifar100").startswith(told)
    told = "--dataset limits experiments, and 'page' is none"
    assert shell.refuses("reproduce", "page", "--dataset", "cifar10") == told
    assert shell.refuses("reproduce", "choice", "--air", "extreme").startswith("--air limits exp")
    done = shell(*command, "--air", "extreme", "--format", "json")
    claims = json.loads(done.out)["fig3"]
    assert all(claim["what"].startswith("cifar10, extreme: ") for claim in claims)
    assert Path("it/accuracy-full-cifar10-extreme.png").exists()


def test_names_can_be_completed() -> None:
    (command,) = [
        each for name, each in typer.main.get_command(app).commands.items() if name == "reproduce"
    ]
    found = command.params[0].shell_complete(command.make_context("it", ["all"]), "fig2")
    assert [each.value for each in found] == ["fig2a", "fig2b", "fig2c"]


# ---------------------------------------------------------------------- an experiment of one's own


@pytest.fixture
def own(shell: Shell) -> Iterator[Shell]:
    """A shell after which the experiments of a user's files are forgotten."""
    before = {name: registry[name] for name in registry}
    yield shell
    registry._things.clear()
    registry._things.update(before)
    for name in ("my_experiment", "half"):
        sys.modules.pop(name, None)


def test_an_experiment_of_ones_own_is_one_file(own: Shell) -> None:
    command = ("--import", EXAMPLE, "reproduce", "oldest-first", "--out", "mine")
    first = own(*command, "--pieces", 2)
    made = ["made oldest-first-quick-2", "made oldest-first-quick-3"]
    assert (first.code, first.err.splitlines()[:2]) == (0, made)
    assert not Path("mine/oldest-first-quick.json").exists()  # judged once all pieces are there
    second = own(*command, "--format", "json")
    assert [line.split()[0] for line in second.err.splitlines()] == ["kept", "kept", "made"]
    schema, claims = json.loads(second.out).values()
    assert schema == "freshband reproduce 1"
    assert [claim["what"].partition(":")[0] for claim in claims] == ["M = 2", "M = 3", "M = 4"]
    assert claims == json.loads(Path("mine/oldest-first-quick.json").read_text())["claims"]
    all_gains: list[list[float]] = []
    for claim, path in zip(claims, sorted(Path("mine").glob("*.nc")), strict=True):
        variance = load_result(path).cumulative_variance.values  # (policy, run)
        gains = (variance[0] - variance[1]).tolist()
        all_gains.append(gains)
        assert claim["ours"] == pytest.approx(statistics.mean(gains))
        low, high = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
        assert (claim["low"], claim["high"]) == (pytest.approx(low), pytest.approx(high))
        clear = claim["ours"] > 0 and claim["p"] < 0.05
        assert claim["verdict"] == ("holds" if clear else "does not hold")
    raw = [stats.ttest_1samp(each, 0).pvalue for each in all_gains]
    assert [claim["p"] for claim in claims] == pytest.approx(holm(raw))
    assert Path("mine/variance-by-clients-quick.png").read_bytes().startswith(b"\x89PNG")
    check_what_tells_of_it(own)


def check_what_tells_of_it(own: Shell) -> None:
    """The page, the report, the help and the list."""
    Path("mine/oldest-first-quick.md").write_text("**Why.** I say so.\n")
    assert own("reproduce", "page", "--out", "mine").out == "wrote mine.md\n"
    page = Path("mine.md").read_text()
    for text in (
        "## Oldest client first, by number of clients",
        "](mine/variance-by-clients-quick.png)",
        "freshband --import my_experiment.py reproduce oldest-first --scale quick",
        "| M = 3: variance of ages, oldest first below random matching | - |",
        "**Why.** I say so.",
    ):
        assert text in page
    assert own("report", "mine").out.startswith("wrote mine/report.html: 4 results, 1 picture, ")
    assert "oldest-first: Oldest" in own("reproduce", "--help").out.replace("│", "")
    assert "oldest-first" in own("list", "experiments").out


def test_an_experiment_that_is_incomplete_is_refused(own: Shell) -> None:
    Path("half.py").write_text(
        "from freshband.experiments.base import Experiment, register\n"
        "@register('half')\nclass Half(Experiment):\n    title = question = 'Half'\n"
    )
    assert "abstract method" in own.refuses("--import", "half.py", "list")


# --------------------------------------------------------------------------------------- the choice


def test_the_choice_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choose(tmp_path, QUIET, 1, Format.table, **SEARCH)
    first = capsys.readouterr()
    assert "client_lr 1e-06, accuracies [" in first.err
    assert first.out == "digits, extreme: local_steps 1, batch_size 4, client_lr 1e-06\n"
    choose(tmp_path, QUIET, None, Format.json, **SEARCH)
    second = capsys.readouterr()
    place = ("digits", "extreme")
    assert json.loads(second.out) == {
        "schema": "freshband choice 1",
        "digits, extreme": best_of(read_trials(tmp_path), place),
    }
    assert "1e-06" not in second.err  # it was tried before
    written = write_report(tmp_path)
    assert (written.shown, written.left_out) == ([tmp_path / "choice.json"], [])
    page = written.path.read_text(encoding="utf-8")
    assert page.count("<td>taken</td>") == 1
    assert "<td>1e-06</td>" in page


def test_the_choice_from_the_command_line(shell: Shell) -> None:
    """Everything was tried before, so that nothing is trained."""
    Path("reproduction").mkdir()

    def score(setting: Setting, run: int) -> float:
        away = abs(math.log2(setting.batch_size / 64)) + abs(math.log2(setting.client_lr / 0.1))
        return setting.local_steps * setting.batch_size / 10_000 - away / 10

    searched = {place: walk(search, score)[0] for place, search in SEARCHES.items()}
    kept = json.dumps([trial for each in searched.items() for trial in as_trials(*each)])
    Path("reproduction/choice.json").write_text(kept, encoding="utf-8")
    done = shell("reproduce", "choice", "--format", "json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert list(found) == ["schema", *(", ".join(place) for place in SEARCHES)]
    assert found["cifar10, extreme"] == {"local_steps": 64, "batch_size": 64, "client_lr": 0.1}
