"""Run the command line, in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from freshband.cli.app import main

PROGRAM = Path(sys.executable).with_name("freshband")


class Done(NamedTuple):
    """What a command leaves behind."""

    code: Any
    out: str
    err: str


class Shell:
    """Calls `main` as the installed program does, in a folder of its own."""

    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._captured = captured

    def __call__(self, *arguments: object) -> Done:
        self._patch.setattr(sys, "argv", ["freshband", *map(str, arguments)])
        self._captured.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        return Done(caught.value.code, *self._captured.readouterr())

    def answer(self, *arguments: object) -> dict[str, Any]:
        """The one JSON object a command prints, and nothing else."""
        done = self(*arguments, "--format", "json")
        assert done.code == 0, done.err
        assert done.err == ""
        parsed: dict[str, Any] = json.loads(done.out)
        assert "NaN" not in done.out
        return parsed

    def refuses(self, *arguments: object) -> str:
        """Expect exit code 2, one line on stderr, nothing on stdout; return the line."""
        done = self(*arguments)
        assert_refused(done)
        return done.err.removeprefix("error: ").rstrip("\n")


def assert_refused(done: Done) -> None:
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.endswith("\n")
    assert len(done.err.splitlines()) == 1
    assert "Traceback" not in done.err


def spawn(*arguments: object, folder: Path, **environment: str) -> Done:
    """Run the installed program, or whatever is called so, in a process of its own."""
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
