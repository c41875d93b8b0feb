"""The contract as ``freshband check`` runs it: the package keeps it, and broken files are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from freshband import contract, simulate
from freshband._plugins import import_file
from freshband._policy import parse_policy
from freshband.errors import RuleError
from freshband.schedulers.base import registry
from tests.cli.running import Shell
from tests.playing import POLICIES, SCHEDULERS

HEAD = """
from typing import Any, ClassVar, NamedTuple
import numpy as np
from freshband.parameters import Parameters
from freshband.schedulers.base import Presets, means, ranks_by_means, register, select, update

class {kind}State(NamedTuple):
    seen: Any

@select.register({kind}State)
def _select(scheduler, t, ages, rng, chosen):
    for j in range(len(chosen)):
        chosen[j] = {choice}

@means.register({kind}State)
def _means(scheduler, out):
    for k in range(len(out)):
        out[k] = scheduler.seen[0]

@update.register({kind}State)
def _update(scheduler, t, assignment, outcome, overridden):
    {learn}

@register("{name}")
class {kind}(Parameters):
    presets: ClassVar[Presets] = {{"other": {{}}}}
    def start(self, n_clients, n_channels, rng, horizon):
        return {kind}State({state})
"""
GOOD: dict[str, Any] = {"choice": "j", "learn": "return -1", "state": "np.zeros(1)"}
CASES = {
    "sharing": ({"choice": "0"}, "select must choose 2 different channels from 0 to 4, got [0, 0]"),
    "absent": ({"choice": "99"}, "select must choose 2 different channels from 0 to 4, got [99, "),
    "mute": ({"learn": "pass"}, "'update' returns nothing: end it with 'return -1'"),
    "scalar": ({"state": "0.5"}, "field 'seen' of the ScalarState of policy 'scalar' must be an"),
    "alarming": ({"learn": "return 17"}, "update must return a channel from 0 to 4, or -1, got 17"),
    "typo": ({"choice": "jj"}, "NameError: name 'jj' is not defined (typo.py, line 13)"),
    "writing": (
        {"choice": "j\n    ages[0] = 1"},
        "may only read, such as ages, assignment or",
    ),
    "lying": ({"learn": "outcome[0] = 1; return -1"}, "the state (lying.py, line 22)"),
    "wild": ({"state": "np.full(1, 7.0)"}, "'means' must write success rates in [0, 1], got 7.0"),
}


def write(folder: Path, name: str, **changes: Any) -> Path:
    path = folder / f"{name}.py"
    path.write_text(HEAD.format(name=name, kind=name.capitalize(), **{**GOOD, **changes}))
    return path


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """A shell whose imported schedulers are forgotten afterwards."""
    registry.names()
    monkeypatch.setattr(registry, "_things", dict(registry._things))
    return Shell(monkeypatch, capsys)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "run_block", contract._SOURCE)


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_one_line(
    name: str, tmp_path: Path, shell: Shell, uncompiled: None
) -> None:
    changes, message = CASES[name]
    done = shell("check", write(tmp_path, name, **changes))
    assert done.code == 1
    line, *again = done.out.splitlines()
    assert all("preset 'other'" in each for each in again)
    assert line.startswith(f"{tmp_path / name}.py: {name}: ")
    assert message in line


def test_what_is_missing_is_told(tmp_path: Path, shell: Shell, uncompiled: None) -> None:
    path = write(tmp_path, "bare")
    text = path.read_text().replace('presets: ClassVar[Presets] = {"other": {}}', "width: int = 1")
    path.write_text(text.replace("@means.register(BareState)", ""))
    done = shell("check", path)
    assert done.code == 1
    first, second = done.out.splitlines()
    assert "BareState registers no version of 'means', so that '+aa' cannot be used" in first
    assert "bare: it has parameters (width), but no presets: name settings, such as" in second


def test_a_scheduler_that_is_shown_the_channels_or_cannot_choose_is_told(
    tmp_path: Path, shell: Shell, uncompiled: None
) -> None:
    path = write(tmp_path, "seer")
    shown = "from freshband.schedulers.base import reveal\n@reveal.register(SeerState)\n"
    shown += "def _reveal(scheduler, true_means, states):\n    scheduler.seen[0] = true_means[0]\n"
    path.write_text(path.read_text().replace("@update", shown + "@update"))
    done = shell("check", path)
    assert done.code == 1
    assert "SeerState registers a version of 'reveal': its class must say 'sees_" in done.out
    path = write(tmp_path, "helpless")
    path.write_text(path.read_text().replace("@select.register(HelplessState)\n", ""))
    done = shell("check", path)
    assert done.code == 1
    assert "HelplessState registers no version of 'select'" in done.out


def test_a_verb_with_other_parameters_is_told_with_the_users_line(
    tmp_path: Path, shell: Shell
) -> None:
    path = write(tmp_path, "misnamed")
    path.write_text(path.read_text().replace("(scheduler, t, ages,", "(state, t, ages,"))
    done = shell("check", path)
    assert done.code == 1
    assert f"in {path}, line 10: 'select' must have the parameters (scheduler, t, " in done.out


def test_files_without_schedulers_and_files_that_fail(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "empty_file.py").write_text("")
    (tmp_path / "failing_file.py").write_text("1 / 0\n")
    done = shell("check", tmp_path / "empty_file.py", tmp_path / "failing_file.py")
    assert done.code == 1
    assert "it registers no scheduler" in done.out
    assert "ZeroDivisionError in" in done.out
    assert "no such file" in shell.refuses("check", tmp_path / "none.py")


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="about compiled code")
def test_a_good_file_passes_compiled_too_and_the_compiler_names_its_line(
    tmp_path: Path, shell: Shell
) -> None:
    done = shell("check", write(tmp_path, "fine"))
    assert (done.code, done.out) == (0, f"{tmp_path}/fine.py: fine: keeps the contract\n")
    assert done.err == "playing fine, in plain Python and compiled\n"  # it may take a while
    odd = "list({0: j, 'a': 1})[0] + j"  # Python takes it, the compiler does not
    done = shell("check", write(tmp_path, "mixed", choice=odd))
    assert done.code == 1
    assert "policy 'mixed' cannot be compiled: " in done.out
    assert done.out.endswith("(mixed.py, line 13)\n")


UNREADABLE = {
    "context": ("learn", "with open('x') as file: return -1"),
    "importing": ("learn", "import os; return -1"),
    "wordy": ("learn", "return 'none'"),  # read, but of no use: the line is that of its decorator
    "unnamed": ("choice", "missing + j"),
}


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="about compiled code")
@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("name", UNREADABLE)
def test_whatever_the_compiler_cannot_read_has_a_line(name: str, tmp_path: Path) -> None:
    where, code = UNREADABLE[name]
    path = write(tmp_path, name, **{where: code})
    lines = path.read_text().splitlines()
    marked = next(n for n, line in enumerate(lines, start=1) if code in line)
    import_file(path)
    with pytest.raises(RuleError, match=f"^policy '{name}' cannot be compiled: ") as told:
        simulate("stationary", [name], rounds=5, runs=1)
    line = marked - 2 if name == "wordy" else marked
    assert str(told.value).endswith(f" ({name}.py, line {line})")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_of_the_package_declare_what_they_must(name: str) -> None:
    assert list(contract.declaration_problems(registry[name])) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_of_the_package_keep_the_contract(policy: str) -> None:
    assert contract.plain_problems(parse_policy(policy), 2, 5, rounds=40).said == []


def test_assignments_are_checked_in_every_round() -> None:
    log = np.array([[0, 1], [1, 2], [2, 5]])
    assert list(contract.assignment_problems(log, 6)) == []
    assert list(contract.assignment_problems(log, 5)) != []
    assert list(contract.assignment_problems(log - 1, 5)) != []
