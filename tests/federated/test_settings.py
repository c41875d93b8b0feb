"""What a training run may be asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from freshband.errors import ParameterError
from freshband.federated import Training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 0}, "clients must be .*>= 1, got 0"),
        ({"clients": 2.5}, "clients must be .*got 2.5"),
        ({"rounds": -3}, "rounds must be .*>= 1, got -3"),
        ({"rounds": True}, "rounds must be .*got True"),
        ({"seed": -1}, "seed must be .*>= 0, got -1"),
        ({"client_lr": 0}, "client_lr must be .*> 0, got 0"),
        ({"client_lr": float("inf")}, "client_lr must be .*got inf"),
        ({"server_lr": float("nan")}, "server_lr must be .*got nan"),
        ({"val_fraction": 1}, r"val_fraction must be .* in \[0, 1\), got 1"),
        ({"mixing": 0}, r"mixing must be .* in \(0, 1\], got 0"),
        ({"mixing": 1.5}, r"mixing must be .* in \(0, 1\], got 1.5"),
        ({"staleness_b": -1}, "staleness_b must be .*>= 0, got -1"),
        ({"buffer_size": 0}, "buffer_size must be .*>= 1"),
        ({"clip_norm": 0}, "clip_norm must be .*> 0"),
        ({"error_samples": 0}, "error_samples must be .*>= 1"),
        ({"eval_every": 0}, "eval_every must be .*>= 1"),
        ({"workers": 0}, "workers must be .*>= 1"),
        ({"algorithm": "fedprox"}, "algorithm must be .*'async'.*got 'fedprox'"),
        ({"aggregation": "sum"}, "aggregation must be .*'renorm'.*got 'sum'"),
        ({"weights": "samples"}, "weights must be .*'size'.*got 'samples'"),
        ({"contribution": "shapley"}, "contribution must be .*got 'shapley'"),
        ({"loo": "minus"}, "loo must be .*'buffer'.*got 'minus'"),
        ({"cold_start": "min"}, "cold_start must be .*got 'min'"),
        ({"precision": "half"}, "precision must be .*'bf16'.*got 'half'"),
        ({"path": "loop"}, "path must be .*'threads'.*got 'loop'"),
    ],
)
def test_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Training(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedulr": "random"}, "did you mean 'scheduler'"),
        ({"scheduler": "glr-cubc"}, "did you mean 'glr-cucb'"),
        ({"matching": "priorty"}, "did you mean 'priority'"),
        ({"channels": "stationry"}, "did you mean 'stationary'"),
    ],
)
def test_unknown_names_get_the_nearest(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Training(**options)


def test_every_client_needs_a_channel() -> None:
    with pytest.raises(ParameterError, match=r"clients must be at most .* channels, 3, got 4"):
        Training(clients=4, channels="stationary", channel_options={"n_channels": 3})
    with pytest.raises(ParameterError, match="channels, 2, got 4"):
        Training(clients=4, channels="stationary", channel_options={"means": [0.5, 0.6]})
    Training(clients=3, channels="stationary", channel_options={"n_channels": 3})


@pytest.mark.parametrize(("clients", "channels"), [(1, 2), (4, 6), (5, 8), (20, 30)])
def test_one_and_a_half_channels_a_client(clients: int, channels: int) -> None:
    for name in ("fig3-piecewise", "stationary", "piecewise"):
        assert Training(clients=clients, channels=name).build_channels().n_channels == channels


@pytest.mark.parametrize(
    "options", [{"matching": "priority"}, {"weights": "contribution"}, {"contribution": "fedce"}]
)
def test_contributions_need_validation(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="val_fraction must be > 0"):
        Training(val_fraction=0, **options)
    Training(val_fraction=0)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, None),
        ({"weights": "size"}, None),
        ({"matching": "age"}, None),
        ({"matching": "priority"}, "paper"),
        ({"scheduler": "cucb+priority"}, "paper"),
        ({"weights": "contribution"}, "paper"),
        ({"contribution": "fedce"}, "fedce"),
        ({"matching": "priority", "contribution": "fedce"}, "fedce"),
    ],
)
def test_contributions_are_computed_where_somebody_asks(
    options: dict[str, Any], rule: str | None
) -> None:
    assert Training(**options).contribution_rule == rule


def test_the_policy_is_put_together() -> None:
    chosen = Training(scheduler="glr-cucb", matching="priority", policy_options={"beta": 0.25})
    assert chosen.policy().name == "glr-cucb+priority"
    assert chosen.policy().matching.beta == 0.25
    with pytest.raises(ParameterError, match="two matchings"):
        Training(scheduler="cucb+age", matching="priority")
    with pytest.raises(ParameterError, match="beta"):
        Training(matching="priority", policy_options={"beta": 2})
    with pytest.raises(ParameterError):
        Training(scheduler="random", policy_options={"gamma": 1})


def test_error_samples_are_half_of_what_a_client_trains_on() -> None:
    assert Training(local_steps=5, batch_size=32).n_error_samples == 80
    assert Training(local_steps=1, batch_size=1).n_error_samples == 1
    assert Training(error_samples=7).n_error_samples == 7


def test_settings_survive_a_file() -> None:
    chosen = Training(
        dataset="synthetic", dataset_options={"shape": (1, 4, 4)}, clients=3, matching="priority",
        channels="stationary", channel_options={"means": (0.5, 0.6, 0.7)}, clip_norm=0.5,
        policy_options={"beta": 0.5},
    )  # fmt: skip
    read = Training(**json.loads(json.dumps(chosen.model_dump(mode="json"))))
    assert read.model_dump(mode="json") == chosen.model_dump(mode="json")
    assert read.policy().name == chosen.policy().name
    assert read.build_channels() == chosen.build_channels()
    with pytest.raises(Exception, match="frozen"):
        chosen.clients = 4  # type: ignore[misc]
