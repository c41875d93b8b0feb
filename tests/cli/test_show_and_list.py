"""``freshband show`` and ``freshband list``."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from freshband.channels.base import registry as channels
from freshband.federated.contribution import ValuationOptions
from freshband.federated.settings import Training
from freshband.matching.base import registry as matchings
from freshband.schedulers.base import registry as schedulers
from tests.cli.running import Shell


def test_show_draws_a_picture(shell: Shell) -> None:
    done = shell("show", "piecewise", "--set", "n_channels=3", "--rounds", "5e2", "--out", "a.svg")
    assert done == (0, "wrote a.svg\n", "")
    assert Path("a.svg").read_text().startswith("<?xml")


def test_show_has_defaults(shell: Shell) -> None:
    assert shell("show", "--rounds", 100) == (0, "wrote channels.png\n", "")
    assert [each.name for each in Path.cwd().iterdir()] == ["channels.png"]


def test_runs_and_seeds_show_different_air(shell: Shell) -> None:
    pictures = set()
    for ask in ([], ["--run", 1], ["--seed", 1], []):
        assert shell("show", "stationary", "--rounds", 60, *ask, "--out", "air.png").code == 0
        pictures.add(Path("air.png").read_bytes())
    assert len(pictures) == 3


def test_show_draws_every_client_where_links_differ(shell: Shell) -> None:
    ask = ["--set", "per_client=true", "--rounds", 60, "--clients", 3, "--out", "a.svg"]
    assert shell("show", "stationary", *ask) == (0, "wrote a.svg\n", "")
    drawn = Path("a.svg").read_text()
    assert all(f"<!-- client {client} -->" in drawn for client in range(3))
    assert "client 3" not in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("jamer", "unknown channel model 'jamer'; did you mean 'jammer'?"),
        ("--rounds 0", "rounds must be a whole number >= 1, got 0"),
        ("--rounds many", "rounds must be a whole number >= 1, got 'many'"),
        ("--seed -1", "seed must be an integer >= 0, got -1"),
        ("--run -1", "run must be a whole number >= 0, got -1"),
        ("--set random.x=1", "show has no policies: --set must be key=value"),
        ("--set n_chanels=1", "Piecewise has no parameter 'n_chanels'; did you mean"),
        ("trace", "Trace needs a value for 'path'"),
        ("--set per_client=true", "clients must be given, because the links of Piecewise differ"),
        ("--set per_client=true --clients 0", "clients must be a whole number >= 1, got 0"),
        ("--out air", "the name of a picture must end in one of png, pdf, svg, "),
        ("--out air.xyz", "the name of a picture must end in one of png, pdf, svg, "),
        ("--out .", "cannot write .: it is a folder"),
        ("--out file/air.png", "cannot write file/air.png: file is not a writable folder"),
    ],
)
def test_show_refuses_bad_input(shell: Shell, arguments: str, message: str) -> None:
    Path("file").write_text("kept")
    assert shell.refuses("show", *arguments.split()).startswith(message)
    assert [each.name for each in Path.cwd().iterdir()] == ["file"]


def test_list_names_everything_with_a_line(shell: Shell) -> None:
    done = shell("list")
    assert (done.code, done.err) == (0, "")
    for registry in (schedulers, channels, matchings):
        for name in registry:
            first = (registry[name].__doc__ or "").strip().splitlines()[0]
            assert any(
                line.startswith(f"{name} ") and first in line for line in done.out.splitlines()
            ), name
    assert "Explain one: freshband list NAME" in done.out


@pytest.mark.parametrize("kind", ["schedulers", "channels", "matchings"])
def test_list_of_one_kind(shell: Shell, kind: str) -> None:
    out = shell("list", kind).out
    assert out.startswith(kind)
    assert "Explain one" not in out
    assert ("glr-cucb" in out) == (kind == "schedulers")


def test_list_explains_everything_there_is(shell: Shell) -> None:
    for registry in (schedulers, channels, matchings):
        for name in registry:
            done = shell("list", name)
            assert (done.code, done.err) == (0, "")
            assert (registry[name].__doc__ or "").strip().splitlines()[0] in done.out


def test_list_explains_parameters_and_presets(shell: Shell) -> None:
    out = shell("list", "glr-cucb").out
    assert out.startswith("glr-cucb (scheduler)")
    assert "delta : float in (0, 1), default 0.001" in out
    assert "preset glr-cucb:default  the defaults" in out
    assert "preset glr-cucb:paper  alpha='paper', explore_fill='random'" in out


def test_one_name_of_two_things_explains_both(shell: Shell) -> None:
    out = shell("list", "random").out
    assert "random (scheduler)" in out
    assert "random (matching)" in out


def test_list_of_nothing_known(shell: Shell) -> None:
    assert shell.refuses("list", "glr-cubc") == "nothing is called 'glr-cubc'; did you mean " + (
        "'glr-cucb'?"
    )
    assert shell.refuses("list", "scheduler").endswith("did you mean 'schedulers'?")
    known = shell.refuses("list", "sw").partition("known: ")[2].split(", ")
    assert len(known) == len(set(known))  # 'random' is a scheduler and a matching


def test_settings_of_a_run_are_explained(shell: Shell) -> None:
    out = shell("list", "training").out
    for name in Training.model_fields:
        if not name.endswith("_options"):
            assert f"\n{name}" in out or f", {name}" in out, name
    for name in ValuationOptions.model_fields:  # settings of the run in the first version
        assert f"\n{name} :" in out, name
    assert "freshband list algorithms" in out
    assert shell("list", "valuation").out in out
    assert shell("list", "fleet").out in out


@pytest.mark.parametrize(
    ("kind", "name"), [("datasets", "cifar10"), ("models", "resnet18"), ("partitions", "shards")]
)
def test_things_of_training_are_listed_on_demand(shell: Shell, kind: str, name: str) -> None:
    assert name not in shell("list").out
    assert f"\n{name} " in shell("list", kind).out
    assert f"{name} ({kind.removesuffix('s')})" in shell("list", name).out


def test_without_torch_only_the_rest_is_listed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, load = importlib.util.find_spec, importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name.startswith("freshband.federated."):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return load(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    assert shell.refuses("list", "models").startswith("training needs PyTorch; install it with: ")
    assert shell.refuses("list", "resnet18").startswith("nothing is called 'resnet18'; ")
