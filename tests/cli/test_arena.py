"""The arena on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.cli.running import Shell

SMALL = ["--runs", "2", "--rounds", "200", "--quiet"]


def test_one_family_as_json(shell: Shell) -> None:
    found = shell.answer("arena", "--family", "stationary", "--policies", "random,cucb", *SMALL)
    assert found["schema"] == 1
    assert list(found["families"]) == ["stationary"]
    assert set(found["families"]["stationary"]["policies"]) == {"random", "cucb"}


def test_a_folder_gets_everything(shell: Shell, tmp_path: Path) -> None:
    ask = ["arena", "--family", "jammer-s*", "--policies", "random,cucb", *SMALL, "--out", "it"]
    done = shell(*ask)
    assert done.code == 0
    assert "jammer-sweep" in done.out
    written = {path.name for path in (tmp_path / "it").iterdir()}
    assert written == {
        "arena.nc", "arena.json", "arena.csv", "arena.tex", "arena.md", "age.png", "regret.png",
        "pieces",
    }  # fmt: skip
    assert json.loads((tmp_path / "it" / "arena.json").read_text())["ranking"]
    for form, begin in {"csv": "family,policy,", "latex": r"\begin{tabular}"}.items():
        assert shell(*ask, "--format", form).out.startswith(begin)
    assert "wrote" in shell("report", "it").out


def test_a_recording_takes_part(shell: Shell, tmp_path: Path) -> None:
    states = np.random.default_rng(0).random((400, 4)) < 0.6
    np.savez(tmp_path / "air.npz", received=states.astype(np.uint8), other=np.zeros(3))
    ask = ["arena", "--trace", "air.npz", "--policies", "random", *SMALL]
    found = shell.answer(*ask, "--set", "key=received")
    row = found["families"]["trace-air"]["policies"]["random"]
    assert row["regret"] is None  # nobody knows the means
    assert row["mean_age"]["se"] > 0  # each instance begins elsewhere
    assert "--set is for recordings" in shell.refuses("arena", "--set", "key=received")


def test_a_file_repeats_and_resumes_every_kind_of_family(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "air.csv").write_text("a,b,c\n" + "1,0,1\n0,1,1\n" * 30)
    names = ("stationary", "against-cucb", "jammer-reacting", "fig3-extreme")
    kinds = [word for name in names for word in ("--family", name)]
    who = ["--policies", "random,slow=cucb{mean_window=30}"]
    ask = ["arena", *kinds, "--trace", "air.csv", *who, "--runs", 2, "--rounds", 60, "--quiet"]
    made = shell.answer(*ask, "--out", "it")
    assert list(made["families"]) == [*names, "trace-air"]
    (tmp_path / "it").rename(tmp_path / "moved")
    again = ["arena", "--like", "moved/arena.nc", "--quiet"]
    assert shell.answer(*again, "--out", "moved") == made  # with its times: nothing ran again
    assert ages(shell.answer(*again)) == ages(made)
    assert ages(shell.answer(*again, "--seed", 1)) != ages(made)
    assert "leave out --policies" in shell.refuses(*again, *who)


def ages(found: dict[str, Any]) -> list[Any]:
    rows = [each["policies"].values() for each in found["families"].values()]
    return [row["mean_age"] for family in rows for row in family]


def test_a_table_against_a_policy_is_repeated(shell: Shell) -> None:
    ask = ["simulate", "--policies", "cucb,random", "--runs", 1, "--rounds", 50, "--clients", 3]
    made = shell.answer(*ask, "--channels", "against-cucb", "--out", "it.nc")
    assert made["channel_options"] == {"n_clients": 3, "policy": "cucb"}
    assert made["policies"]["cucb"]["delivered"]["mean"] == 0
    again = shell.answer("simulate", "--like", "it.nc")
    assert again["policies"]["random"]["mean_age"] == made["policies"]["random"]["mean_age"]


def test_what_is_wrong_is_one_line(shell: Shell) -> None:
    assert "did you mean 'near-ties'" in shell.refuses("arena", "--family", "near-tie")
    assert "did you mean 'bayes'" in shell.refuses(
        "arena", "--family", "short", "--policies", "bays"
    )
    assert "no such file" in shell.refuses("arena", "--trace", "none.csv").lower()


def test_families_are_listed_and_simulated(shell: Shell) -> None:
    assert "near-ties" in shell("list", "families").out
    assert "between 0.45 and 0.55" in shell("list", "near-ties").out
    ask = ["simulate", "--policies", "random", "--runs", "1", "--rounds", "100"]
    found = shell.answer(*ask, "--channels", "size-6-4", "--set", "mean_low=0.5")
    assert (found["clients"], found["rounds"]) == (4, 100)
    assert found["channel_options"] == {"n_channels": 6, "hazard": 0.001, "mean_low": 0.5}
    assert "did you mean 'near-ties'" in shell.refuses("simulate", "--channels", "near-tie")
