"""What the page about adding things says holds: its examples can become part of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    """Run a tool of this environment on the copy; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
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


def test_examples_get_their_place_on_the_command_line(grown: Path) -> None:
    said = run(grown, "freshband", "list")
    for name in NAMES:
        assert re.search(rf"^ *{name.replace('_', '-')} ", said, re.MULTILINE)
