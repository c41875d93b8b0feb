"""The program itself: help, versions, exit codes, and how it is installed."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import freshband
from freshband.channels import registry as channels
from freshband.cli import app as app_module
from freshband.cli.app import app
from freshband.errors import FileError
from tests.cli.running import PROGRAM, Shell, assert_refused, spawn

COMMANDS = ["simulate", "train", "compare", "reproduce", "report", "bounds", "show", "list"]
HEAVY = ["numpy", "numba", "pydantic", "xarray", "matplotlib", "scipy", "h5py", "pandas"]


def test_help_tells_where_to_begin(shell: Shell) -> None:
    done = shell("--help")
    assert done.code == 0
    assert done.err == ""
    for command in COMMANDS:
        assert f" {command} " in done.out
    assert "freshband simulate --policies random,bayes --runs 20 --plot regret.png" in done.out


def test_no_arguments_mean_help(shell: Shell) -> None:
    assert shell() == shell("--help") == shell("-h")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_that_begin_with_its_name(command: str, shell: Shell) -> None:
    done = shell(command, "--help")
    assert done.code == 0
    assert done == shell(command, "-h")
    text = done.out.partition("Examples")[2]
    assert text.count(f"freshband {command}") >= 2
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


def test_every_option_is_explained(shell: Shell) -> None:
    for command in COMMANDS:
        for line in shell(command, "--help").out.splitlines():
            if line.startswith("│ --"):
                name, *explained = line.strip("│ ").split()
                assert len(explained) >= 3, f"{command} {name}"


def test_defaults_are_shown(shell: Shell) -> None:
    text = shell("simulate", "--help").out
    for default in (
        "20000",
        "10",
        "piecewise",
        "random,m-exp3,glr-cucb,bayes",
        "(one per core)",
        "table",
    ):
        assert f"[default: {default}]" in text


def test_brackets_in_help_are_not_taken_for_markup(shell: Shell) -> None:
    text = " ".join(shell("compare", "--help").out.replace("│", " ").split())
    assert "scheduler[:preset][+token...][@algorithm]" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize(
    "command", ["", *COMMANDS, "flower", "flower new", "flower up", "flower node"]
)
def test_no_help_page_is_cut_off(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = shell(*command.split(), "--help")
    assert done.code == 0
    assert "…" not in done.out
    assert max(map(len, done.out.splitlines())) <= width
    if command == "simulate" and width >= 80:
        assert "scheduler[:preset][+token...]" in done.out


def test_version(shell: Shell) -> None:
    assert shell("--version") == (0, f"freshband {freshband.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulte"], "No such command 'simulte'. Did you mean 'simulate'?"),
        (["flower", "ne"], "No such command 'ne'. Did you mean 'new', 'node'?"),
        (["--versoin"], "No such option '--versoin'. Did you mean '--version'?"),
        (["simulate", "--rouns", "5"], "No such option '--rouns'. (Did you mean one of: "),
        (["simulate", "extra"], "Got unexpected extra argument"),
        (["simulate", "--rounds"], "Option '--rounds' requires an argument"),
        (["simulate", "--format", "yaml"], "'yaml' is not one of 'table', 'json', 'csv', 'latex'"),
        (["simulate", "--measure", "rgret"], "'rgret' is not one of 'regret', "),
        (["list", "one", "two"], "Got unexpected extra argument"),
    ],
)
def test_usage_errors_take_one_line(arguments: list[str], message: str, shell: Shell) -> None:
    line = shell.refuses(*arguments)
    assert message in line
    assert line.count("Did you mean") <= 1


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (FileError("two\nlines"), "two lines"),
        (MemoryError("Unable to allocate 7 TiB"), "Unable to allocate 7 TiB"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_errors_take_one_line(
    problem: Exception, message: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **settings: object) -> None:
        raise problem

    monkeypatch.setattr(app_module, "_program", lambda: fail)
    assert shell.refuses("list") == message


def test_an_interrupt_is_told_and_gives_130(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("freshband.simulate", interrupt, raising=False)
    kept = "stopped; 0 runs are kept in x.nc.runs: the same command goes on from them"
    assert shell("simulate", "--out", "x.nc") == (130, "", f"{kept}\ninterrupted\n")
    assert not list(Path.cwd().iterdir())


# --------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize(
    "said", [{}, {"COMP_WORDS": "freshband sim"}, {"COMP_WORDS": "freshband", "COMP_CWORD": "x"}]
)
def test_bash_must_say_what_to_complete(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    monkeypatch.setenv("_FRESHBAND_COMPLETE", "complete_bash")
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert shell.refuses().startswith("_FRESHBAND_COMPLETE=complete_bash is for bash, which also")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish", "powershell"])
def test_shells_are_told_how_to_complete(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("_FRESHBAND_COMPLETE", f"source_{name}")
    done = shell()
    assert (done.code, done.err) == (0, "")
    assert f"complete_{name}" in done.out
    monkeypatch.setenv("_FRESHBAND_COMPLETE", f"complete_{name}")
    for variable, value in {
        "COMP_WORDS": "freshband sim",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "freshband sim",
        "_TYPER_COMPLETE_WORD_TO_COMPLETE": "sim",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }.items():
        monkeypatch.setenv(variable, value)
    done = shell()
    assert (done.code, done.err) == (0, "")
    assert "simulate" in done.out
    assert "train" not in done.out


def test_bash_completes(tmp_path: Path) -> None:
    script = f"""
        freshband() {{ {shlex.quote(str(PROGRAM))} "$@"; }}
        eval "$(_FRESHBAND_COMPLETE=source_bash freshband)"
        COMP_WORDS=(freshband simulate --pol) COMP_CWORD=2
        _freshband_completion {shlex.quote(str(PROGRAM))}
        echo "${{COMPREPLY[@]}}"
    """
    done = spawn("bash", "-c", script, folder=tmp_path)
    assert (done.code, done.out, done.err) == (0, "--policies\n", "")


# ------------------------------------------------------------------------------- files of one's own

PLUGIN = """
from freshband.channels import Stationary, register

@register("quiet-air")
class QuietAir:
    '''Nothing ever gets lost [here].'''

    def __new__(cls, **options):
        return Stationary(means=[1.0, 1.0], **options)
"""


@pytest.fixture
def _no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a test imports and registers."""
    channels.names()
    monkeypatch.setattr(channels, "_things", dict(channels._things))
    yield
    for name in ("quiet", "plugin"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("_no_trace")
def test_a_file_of_ones_own_is_imported_first(shell: Shell) -> None:
    Path("quiet.py").write_text(PLUGIN)
    out = shell("--import", "quiet.py", "list", "channels").out
    assert "Nothing ever gets lost [here]." in out
    ask = ["--channels", "quiet-air", "--policies", "random", "--rounds", 50, "--runs", 1]
    done = shell("--import", "quiet.py", "simulate", *ask, "--format", "json")
    assert json.loads(done.out)["policies"]["random"]["mean_age"]["mean"] == 1


@pytest.mark.usefixtures("_no_trace")
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nothing.py", None, "cannot import nothing.py: no such file"),
        ("plugin.txt", "", "cannot import plugin.txt: not a Python file"),
        ("my plugin.py", "", "cannot import my plugin.py: not a Python file with the name of a"),
        ("json.py", "", "cannot import json.py: there is a module 'json' already, rename it"),
        ("antigravity.py", "", "cannot import antigravity.py: there is a module 'antigravity'"),
        ("plugin.py", "1 / 0", "cannot import plugin.py: ZeroDivisionError in "),
        ("plugin.py", "def f(:", "cannot import plugin.py: SyntaxError in "),
        ("plugin.py", "import no_such_module", "cannot import plugin.py: ModuleNotFoundError in "),
        (
            "plugin.py",
            "from freshband.channels import register\n@register('jammer')\nclass Mine: pass",
            "channel model 'jammer' is registered already, by ",
        ),
    ],
)
def test_files_that_cannot_be_imported(
    shell: Shell, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        Path(name).write_text(text)
    assert shell.refuses("--import", name, "list").startswith(message)


# ------------------------------------------------------------------------ in a process of its own


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import json, sys; from freshband.cli.app import main\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        f"print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]))"
    )
    for arguments in (["--help"], ["--version"]):
        done = spawn(sys.executable, "-c", script, *arguments, folder=tmp_path)
        assert json.loads(done.out.splitlines()[-1]) == [0, []], done.err
    done = spawn(sys.executable, "-c", script, "simulate", "--help", folder=tmp_path)
    code, heavy = json.loads(done.out.splitlines()[-1])
    assert code == 0
    assert set(heavy) <= {"pydantic"}  # typer's own, for the types of options


def test_the_installed_program(tmp_path: Path) -> None:
    done = spawn(PROGRAM, "simulate", "--rounds", "0", folder=tmp_path)
    assert_refused(done)
    assert done.err == "error: rounds must be a whole number >= 1, got 0\n"
    ask = shlex.split("--policies random,cucb --rounds 200 --runs 2 --format json --out result.nc")
    done = spawn(PROGRAM, "simulate", *ask, folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert list(json.loads(done.out)["policies"]) == ["random", "cucb"]
    assert [each.name for each in tmp_path.iterdir()] == ["result.nc"]


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    done = spawn("bash", "-c", f"{PROGRAM} list | head -n 1", folder=tmp_path)
    assert done.code == 0
    assert done.out.strip() == "schedulers"
    assert done.err == ""
