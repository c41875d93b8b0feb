"""What the page about adding things says holds: its examples can become part of the package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from freshband.channels.base import registry as channels
from freshband.matching.base import registry as matchings
from freshband.schedulers.base import registry as schedulers
from tests.playing import PLAIN, assert_same_run, draw, play

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
COPIED = dict(re.findall(r"^cp (examples/\S+) (src/\S+)$", PAGE, re.MULTILINE))
NAMES = [Path(target).stem for target in COPIED.values()]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the examples where the page says that they can be put."""
    folder = tmp_path_factory.mktemp("grown")
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("pyproject.toml", "examples"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)
    for source, target in COPIED.items():
        assert not (folder / target).exists()
        shutil.copy(folder / source, folder / target)
    return folder


def run(folder: Path, *command: str) -> str:
    """Run a tool of this environment on the copy, uncompiled; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_has_an_example_of_each_kind() -> None:
    folders = [Path(target).parent.name for target in COPIED.values()]
    assert folders == ["schedulers", "channels", "matching", "algorithms"]
    for source in COPIED:
        assert f'--8<-- "{source}"' in PAGE


def test_examples_have_the_style_of_the_package(grown: Path) -> None:
    run(grown, "ruff", "check", *COPIED.values())
    run(grown, "ruff", "format", "--check", *COPIED.values())


@pytest.mark.slow
def test_examples_keep_the_contract_of_the_package(grown: Path) -> None:
    files = [
        "tests/test_contract.py", "tests/test_contract_check.py",
        "tests/test_contract_parameters.py",
        "tests/channels/test_contract.py", "tests/federated/test_contract.py", *COPIED.values(),
    ]  # fmt: skip
    said = run(
        grown, "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist",
        "-k", " or ".join({*NAMES, *(name.replace("_", "-") for name in NAMES)}), *files,
    )  # fmt: skip
    for name in NAMES:
        dashed = name.replace("_", "-")
        assert len(re.findall(rf"^PASSED .*\[.*{dashed}", said, re.MULTILINE)) >= 5, said
        assert re.search(rf"^PASSED .*{name}\.py::", said, re.MULTILINE), said  # its own example
    assert "skipped" not in said


def test_examples_play_together_compiled_as_in_plain_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for registry in (schedulers, channels, matchings):
        registry.names()  # load before copying
        # A copy of the registry, so that the test leaves nothing behind.
        monkeypatch.setattr(registry, "_things", dict(registry._things))  # type: ignore[attr-defined]
    for source in COPIED:
        if "rule" not in source:  # nothing of it is compiled
            spec = importlib.util.spec_from_file_location(Path(source).stem, ROOT / source)
            assert spec is not None
            assert spec.loader is not None
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
    policy, air = "epsilon-greedy+youngest", draw(model=channels["shifts"]())
    assert_same_run(play(policy, air), play(policy, air, engine=PLAIN))


def test_examples_get_their_place_on_the_command_line(grown: Path) -> None:
    said = run(grown, "freshband", "list")
    for name in NAMES:
        assert re.search(rf"^ *{name.replace('_', '-')} ", said, re.MULTILINE)
