"""A shell in an empty folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshband.simulation import monte_carlo
from tests.cli.running import Shell


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Shell:
    """The command line, run where nothing is; wide, so that help is not folded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return Shell(monkeypatch, capfd)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run may begin."""

    def play_run(*arguments: Any) -> None:
        raise AssertionError("a run began")

    monkeypatch.setattr(monte_carlo, "_play_run", play_run)
