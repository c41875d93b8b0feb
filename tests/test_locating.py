"""Files that settings name, wherever a command is started and wherever folders have gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshband._locating import absolute, find_again, with_absolute_files


def test_only_what_is_there_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "air.csv").touch()
    monkeypatch.chdir(tmp_path)
    assert absolute("air.csv") == str(tmp_path / "air.csv")
    assert absolute(Path()) == str(tmp_path)
    for value in ("no/such/file.csv", "", 3, None, "\0"):
        assert absolute(value) == value
    options = {"path": "air.csv", "name": "air.csv"}
    assert with_absolute_files(options) == {"path": str(tmp_path / "air.csv"), "name": "air.csv"}


@pytest.mark.parametrize("saved", ["air.csv", "data/air.csv", "/gone/air.csv"])
@pytest.mark.parametrize("place", ["", ".."])
def test_a_file_that_is_gone_is_found_near_the_result(
    saved: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "results"
    home.mkdir()
    monkeypatch.chdir("/")
    there = (home / place).resolve() / "air.csv"
    there.touch()
    found, notes = find_again({"path": saved, "wrap": True}, home)
    assert found == {"path": str(there), "wrap": True}
    assert notes == [f"{saved} is missing, {there} is used instead"]


def test_what_is_found_nowhere_stays_as_it_is() -> None:
    options = {"path": "no/such/file.csv", "wrap": True}
    assert find_again(options, Path()) == (options, [])
