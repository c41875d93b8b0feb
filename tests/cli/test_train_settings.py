"""``freshband train``: settings from files, the command line and earlier results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from freshband.cli._training import Layer, merge_layers, read_file, read_sets
from freshband.cli.app import app
from freshband.errors import ParameterError
from freshband.federated.result import _read_settings, load_training
from freshband.federated.runs import start_run
from freshband.federated.settings import Training
from tests.cli.running import Shell
from tests.simulation.refusing import refused

# --------------------------------------------------------------------------------------- settings


def test_defaults_are_those_of_the_library() -> None:
    defaults = Training()
    command = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    for option in command.params:
        if option.name in Training.model_fields:
            assert option.default == getattr(defaults, option.name), option.name


def test_a_file_gives_settings(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "rounds = 7\nclients = 4\nclient_lr = 0.1\npartition = 'iid'\n"
        "[channels]\nname = 'stationary'\nn_channels = 8\n"
        "[scheduler]\nname = 'glr-cucb:paper'\ndelta = 0.01\n"
        "[matching]\nname = 'priority'\nbeta = 0.5\n"
        "[model]\nwidths = [4, 8]\n"
    )
    assert merge_layers({}, [read_file(tmp_path / "mine.toml")]) == Training(
        rounds=7,
        clients=4,
        client_lr=0.1,
        partition="iid",
        channels="stationary",
        channel_options={"n_channels": 8},
        scheduler="glr-cucb:paper",
        matching="priority",
        policy_options={"delta": 0.01, "beta": 0.5},
        model_options={"widths": [4, 8]},
    )


def test_a_file_gives_options_of_policy_algorithm_and_valuation(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "[policy]\nname = 'glr-cucb+priority'\ndelta = 0.01\n"
        "[algorithm]\nname = 'fedbuff+average'\nbuffer_size = 5\nrecency = 8\n"
        "[valuation]\nloo = 'buffer'\n"
    )
    expected = Training(
        policy="glr-cucb+priority",
        policy_options={"delta": 0.01},
        algorithm="fedbuff+average",
        algorithm_options={"buffer_size": 5, "recency": 8},
        valuation_options={"loo": "buffer"},
    )
    assert merge_layers({}, [read_file(tmp_path / "mine.toml")]) == expected
    line = read_sets(
        ["policy.delta=0.01", "algorithm.buffer_size=5", "algorithm.recency=8", "loo=buffer"]
    )
    line.put("", "scheduler", "glr-cucb+priority")
    line.put("", "algorithm", "fedbuff+average")
    assert merge_layers({}, [line]) == expected
    with refused(ParameterError, "the command line gives 'algorithm.mixing' twice"):
        read_sets(["mixing=0.1", "algorithm.mixing=0.2"])


def test_the_command_line_wins_over_the_file(shell: Shell) -> None:
    Path("mine.toml").write_text(
        'rounds = 7\nclients = 2\nmodel = "mlp"\n[channels]\nname = "stationary"\n'
        "n_channels = 8\nmean_low = 0.5\n[scheduler]\nname = 'glr-cucb'\ndelta = 0.01\n"
    )
    ask = ["--config", "mine.toml", "--rounds", 2, "--scheduler", "random"]
    config = shell.answer("train", *ask, "--set", "channels.n_channels=4")["config"]
    same = [*ask[:-2], "--policy", "random", "--set", "channels.n_channels=4"]
    assert shell.answer("train", *same)["config"] == config
    assert (config["rounds"], config["clients"], config["model"]) == (2, 2, "mlp")
    assert config["channels"] == "stationary"
    assert config["channel_options"] == {"n_channels": 4, "mean_low": 0.5}
    assert config["policy"] == "random"
    assert config["policy_options"] == {}  # delta was another scheduler's


def given(source: str, **fields: Any) -> Layer:
    layer = Layer(source)
    for name, value in fields.items():
        layer.put("", name, value)
    return layer


def test_settings_without_effect_are_refused_from_a_file_and_the_command_line() -> None:
    message = "mixing belongs to algorithm 'fedasync', not to 'renorm', got 0.1"
    for layers in (
        [given("a file", mixing=0.1)],
        [given("a file"), given("the command line", mixing=0.1)],
        [given("a file", mixing=0.1), given("the command line", rounds=3)],
        [given("a file", algorithm="fedasync"), given("the line", algorithm="async", mixing=0.1)],
    ):
        with refused(ParameterError, message):
            merge_layers({}, layers)
    file = given("a file", mixing=0.1)
    assert merge_layers({}, [file, given("the line", algorithm="fedasync")]) == Training(
        algorithm="fedasync", algorithm_options={"mixing": 0.1}
    )


def test_settings_stay_behind_with_what_used_them() -> None:
    file = given("a file", algorithm="fedasync", mixing=0.1)
    assert merge_layers({}, [file]).algorithm_options == {"mixing": 0.1}
    for algorithm in ("async", "renorm"):
        left = merge_layers({}, [file, given("the line", algorithm=algorithm)])
        assert (left.algorithm, left.algorithm_options) == ("renorm", {})
    file = given("a file", matching="priority", loo="buffer")
    assert merge_layers({}, [file]).valuation_options == {"loo": "buffer"}
    assert merge_layers({}, [file, given("the line", matching="age")]).valuation_options == {}
    saved = Training(algorithm="fedbuff", buffer_size=3, staleness="constant").model_dump()
    assert merge_layers(saved, []).algorithm_options == {"buffer_size": 3, "staleness": "constant"}
    other = merge_layers(saved, [given("the line", algorithm="fedasync")])
    assert other.algorithm_options == {"staleness": "constant"}
    assert merge_layers(saved, [given("the line", algorithm="async")]) == Training()
    file = given("a file", local_rounds=3, served="average")
    assert merge_layers({}, [file]).algorithm == "renorm+eager+average"
    other = merge_layers({}, [file, given("the line", algorithm="fedavg")])
    assert (other.algorithm, other.algorithm_options) == ("fedavg+average", {})
    saved = Training(algorithm="fixed+average").model_dump()
    assert merge_layers(saved, [given("the line", served="last")]).algorithm == "fixed"


def test_options_of_a_matching_stay_with_the_matching() -> None:
    options = {"beta": 0.5, "delta": 0.01}
    saved = Training(policy="glr-cucb", matching="priority", policy_options=options).model_dump()
    assert merge_layers(saved, []).policy_options == options
    line = read_sets(["matching.beta=.9"])
    assert merge_layers(saved, [line]).policy_options == {"beta": 0.9, "delta": 0.01}
    line = read_sets(["scheduler.beta=.8"])  # by the other name
    assert merge_layers(saved, [line]).policy_options == {"beta": 0.8, "delta": 0.01}
    other = merge_layers(saved, [given("the line", matching="age")])
    assert (other.matching, other.policy_options) == ("age", {"delta": 0.01})
    other = merge_layers(saved, [given("the line", scheduler="cucb")])
    assert (other.policy, other.policy_options) == ("cucb", {"beta": 0.5})
    token = Training(scheduler="glr-cucb+priority", policy_options=options).model_dump()
    other = merge_layers(token, [given("the line", scheduler="cucb")])
    assert (other.policy, other.policy_options) == ("cucb", {})
    with refused(
        ParameterError, "the command line gives 'beta' twice, for matching and for policy"
    ):
        merge_layers(saved, [read_sets(["matching.beta=.9", "scheduler.beta=.8"])])


def test_a_result_with_a_setting_that_had_no_effect_is_repeated_without(shell: Shell) -> None:
    """Earlier versions let such settings through."""
    ask = {"model": "mlp", "clients": 3, "rounds": 3, "device": "cpu"}
    with start_run(Training.as_stored({**ask, "mixing": 0.1}), "run") as run:
        list(run)
    stored = _read_settings(load_training("run/result.nc"))
    assert stored.algorithm_options == {"mixing": 0.1}
    done = shell("train", "--like", "run/result.nc", "--format", "json", "--quiet")
    assert done.code == 0
    assert done.err == (
        "note: left out: mixing belongs to algorithm 'fedasync', not to 'renorm', got 0.1\n"
    )
    assert json.loads(done.out)["config"]["algorithm_options"] == {}
    assert json.loads(done.out)["final_loss"] == run.records[-1].loss
    Path("run/result.nc").unlink()
    done = shell("train", "--resume", "run", "--format", "json")  # goes on as it began
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["config"]["algorithm_options"] == {"mixing": 0.1}


def test_options_go_where_they_belong() -> None:
    layer = read_sets(
        [
            "client_lr=0.2",
            "channels.n_channels=15",
            "scheduler.optimism=0.9",
            "matching.beta=0.5",
            "dataset.data_dir=/data",
            "partition.alpha=0.1",
            "model.hidden=[8, 8]",
        ]
    )
    layer.put("", "matching", "priority")
    settings = merge_layers({}, [layer])
    assert settings.client_lr == 0.2
    assert settings.channel_options == {"n_channels": 15}
    assert settings.policy_options == {"optimism": 0.9, "beta": 0.5}
    assert settings.dataset_options == {"data_dir": "/data"}
    assert settings.partition_options == {"alpha": 0.1}
    assert settings.model_options == {"hidden": [8, 8]}


def test_a_setting_is_given_once() -> None:
    layer = Layer("the command line")
    layer.put("", "rounds", 3)
    with refused(ParameterError, "the command line gives 'rounds' twice"):
        layer.put("", "rounds", 4)
    with refused(ParameterError, "the command line gives 'channels.hazard' twice"):
        read_sets(["channels.hazard=0.1", "channels.hazard=0.2"])
