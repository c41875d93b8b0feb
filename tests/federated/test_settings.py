"""What a training run may be asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freshband.errors import ParameterError, UnknownNameError
from freshband.federated import Training
from freshband.federated.comparison import _read_comparison, load_comparison, settings_of
from tests.simulation.refusing import refused


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
        ({"algorithm_options": {"server_lr": True}}, "server_lr must be .*got True"),
        ({"algorithm_options": [1]}, "algorithm_options must be"),
        ({"held_out": 1}, r"held_out must be .* in \[0, 1\), got 1"),
        ({"val_fraction": 1}, r"val_fraction must be .* in \[0, 1\), got 1"),
        ({"algorithm": "fedasync", "mixing": 0}, r"mixing must be .* in \(0, 1\], got 0"),
        ({"algorithm": "fedasync", "mixing": 1.5}, r"mixing must be .* in \(0, 1\], got 1.5"),
        ({"algorithm": "fedbuff", "staleness_b": -1}, "staleness_b must be .*>= 0, got -1"),
        ({"algorithm": "fedbuff", "buffer_size": 0}, "buffer_size must be .*>= 1"),
        ({"algorithm": "average", "algorithm_options": {"recency": -1}}, "recency must be .*>= 0"),
        ({"local_rounds": 0}, "local_rounds must be .*>= 1, got 0"),
        ({"served": "mean"}, "served must be 'last' or 'average', got 'mean'"),
        ({"clip_norm": 0}, "clip_norm must be .*> 0"),
        ({"error_samples": 0}, "error_samples must be .*>= 1"),
        ({"eval_every": 0}, "eval_every must be .*>= 1"),
        ({"workers": 0}, "workers must be .*>= 1"),
        ({"algorithm": "fedprox"}, "unknown algorithm 'fedprox'; "),
        ({"algorithm": 3}, "algorithm must be text like 'fedbuff\\+average', got 3"),
        ({"algorithm": "fedavg+fedbuff"}, "names two rules, 'fedavg' and 'fedbuff': an algorithm "),
        ({"algorithm": "fixed+eager+eager"}, "names 'eager' twice"),
        ({"aggregation": "sum"}, "aggregation must be .*renorm.*got 'sum'"),
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
        ({"polic": "random"}, "did you mean 'policy'"),
        ({"algorithm": "fedbuf"}, "did you mean 'fedbuff'"),
        ({"algorithm_options": {"mixin": 0.1}}, "no algorithm has an option 'mixin'; did you mean"),
        ({"valuation_options": {"lo": "buffer"}}, "did you mean 'loo'"),
        ({"scheduler": "glr-cubc"}, "did you mean 'glr-cucb'"),
        ({"matching": "priorty"}, "did you mean 'priority'"),
        ({"channels": "stationry"}, "did you mean 'stationary'"),
    ],
)
def test_unknown_names_get_the_nearest(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Training(**options)


def test_there_may_be_more_clients_than_channels() -> None:
    for options in ({"n_channels": 3}, {"means": [0.5, 0.6, 0.7]}):
        settings = Training(clients=4, channels="stationary", channel_options=options)
        assert settings.build_channels().n_channels == 3


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
    assert chosen.build_policy().name == "glr-cucb+priority"
    assert chosen.build_policy().matching.beta == 0.25
    with pytest.raises(ParameterError, match="two matchings"):
        Training(scheduler="cucb+age", matching="priority")
    with pytest.raises(ParameterError, match="beta"):
        Training(matching="priority", policy_options={"beta": 2})
    with pytest.raises(ParameterError):
        Training(scheduler="random", policy_options={"gamma": 1})


def test_error_samples_are_half_of_what_a_client_trains_on() -> None:
    assert Training(local_steps=5, batch_size=32).n_error_samples == 80
    assert Training(local_steps=1, batch_size=1).n_error_samples == 1
    assert Training(error_samples=7, contribution="paper").n_error_samples == 7


def test_settings_survive_a_file() -> None:
    chosen = Training(
        dataset="synthetic", dataset_options={"shape": (1, 4, 4)}, clients=3, matching="priority",
        channels="stationary", channel_options={"means": (0.5, 0.6, 0.7)}, clip_norm=0.5,
        policy_options={"beta": 0.5},
    )  # fmt: skip
    read = Training(**json.loads(json.dumps(chosen.model_dump(mode="json"))))
    assert read.model_dump(mode="json") == chosen.model_dump(mode="json")
    assert read.build_policy().name == chosen.build_policy().name
    assert read.build_channels() == chosen.build_channels()
    with pytest.raises(Exception, match="frozen"):
        chosen.clients = 4  # type: ignore[misc]


# --------------------------------------------------------------------- settings that have no effect

UNUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"mixing": 0.1}, "mixing", "algorithm 'fedasync', not to 'renorm', got 0.1"),
    ({"buffer_size": 3}, "buffer_size", "algorithm 'fedbuff', not to 'renorm', got 3"),
    (
        {"algorithm_options": {"buffer_size": 3}},
        "buffer_size",
        "algorithm 'fedbuff', not to 'renorm', got 3",
    ),
    ({"buffer_size": 3, "algorithm": "fedasync"}, "buffer_size", "'fedbuff', not to 'fedasync'"),
    ({"mixing": 0.1, "algorithm": "fedbuff"}, "mixing", "'fedasync', not to 'fedbuff', got 0.1"),
    (
        {"algorithm": "fixed+average", "algorithm_options": {"mixing": 0.1}},
        "mixing",
        r"algorithm 'fedasync', not to 'fixed\+average', got 0.1",
    ),
    (
        {"algorithm_options": {"recency": 3}},
        "recency",
        "algorithm 'average', not to 'renorm', got 3",
    ),
    (
        {"algorithm_options": {"local_rounds": 3}},
        "local_rounds",
        "algorithm 'eager', not to 'renorm', got 3",
    ),
    (
        {"algorithm_options": {"weighting": "fixed"}},
        "weighting",
        "algorithm 'fedavg', not to 'renorm', got 'fixed'",
    ),
    ({"staleness": "hinge"}, "staleness", "algorithm 'fedasync' or 'fedbuff', not to 'renorm'"),
    ({"staleness_a": 1}, "staleness_a", "algorithm 'fedasync' or 'fedbuff', not to 'renorm'"),
    ({"staleness_b": 1, "algorithm": "fedavg"}, "staleness_b", "or 'fedbuff', not to 'fedavg'"),
    (
        {"staleness_a": 1, "staleness": "constant", "algorithm": "fedasync"},
        "staleness_a",
        "staleness 'polynomial' or 'hinge', not to 'constant', got 1.0",
    ),
    (
        {"staleness_b": 1, "algorithm": "fedbuff+average"},
        "staleness_b",
        "staleness 'hinge', not to 'polynomial', got 1.0",
    ),
    (
        {"aggregation": "fixed", "algorithm": "fedbuff"},
        "weighting",
        "algorithm 'fedavg', not to 'fedbuff', got 'fixed'",
    ),
    (
        {"server_lr": 2, "algorithm": "fedasync"},
        "server_lr",
        "algorithm 'bounded', 'fedavg', 'fedbuff', .* or 'uniform', not to 'fedasync', got 2",
    ),
    (
        {"local_rounds": 3, "algorithm": "fedavg"},
        "eager",
        "a rule whose clients send again what was lost, .*, got local_rounds 3",
    ),
    (
        {"weights": "size", "algorithm": "fedasync"},
        "weights",
        "an algorithm that weighs updates, not to 'fedasync', got 'size'",
    ),
    ({"weights": "contribution", "algorithm": "fedbuff"}, "weights", "not to 'fedbuff', got "),
    ({"weights": "size", "aggregation": "uniform"}, "weights", "not to 'uniform', got 'size'"),
    (
        {"weights": "size", "algorithm": "fedavg", "algorithm_options": {"weighting": "uniform"}},
        "weights",
        "not to 'fedavg', got 'size'",
    ),
    ({"loo": "literal"}, "loo", "contributions, which matching 'priority', weights or contribu"),
    ({"cold_start": "max"}, "cold_start", "contributions, which matching 'priority', weights or"),
    (
        {"valuation_options": {"error_samples": 9}},
        "error_samples",
        "contributions, which matching 'priority', weights",
    ),
]


@pytest.mark.parametrize(("options", "name", "home"), UNUSED, ids=str)
def test_a_setting_without_effect_names_where_it_belongs(
    options: dict[str, Any], name: str, home: str
) -> None:
    with refused(ParameterError, f"{name} belongs to .*{home}"):
        Training(**options)
    stored = Training.as_stored(options)  # as files of earlier versions may hold it
    assert list(stored.unused()) == [name]
    assert Training(**stored.without([name])).unused() == {}


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "fedasync", "mixing": 0.1, "staleness": "hinge", "staleness_b": 2},
        {"algorithm": "fedasync", "weights": "size", "contribution": "paper"},
        {"algorithm": "fedbuff", "buffer_size": 3, "server_lr": 2, "staleness": "constant"},
        {"algorithm": "fedbuff", "weights": "contribution", "matching": "priority"},
        {"algorithm": "fedavg", "aggregation": "fixed", "weights": "size", "server_lr": 2},
        {"aggregation": "uniform", "weights": "size", "contribution": "fedce"},
        {"loo": "literal", "cold_start": "max", "error_samples": 9, "matching": "priority"},
        {"loo": "buffer", "weights": "contribution"},
        {"loo": "buffer", "contribution": "fedce"},
        {"cold_start": "zero", "scheduler": "cucb+priority"},
        {"local_rounds": 3, "algorithm": "fedasync"},
    ],
    ids=str,
)
def test_a_setting_with_effect_is_taken(options: dict[str, Any]) -> None:
    chosen = Training(**options)
    assert chosen.unused() == {}
    assert Training(**chosen.model_dump()) == chosen  # defaults that are written out are none's


FLAT = {  # the settings of a run as the first version wrote them, where nobody chose anything
    "scheduler": "glr-cucb", "local_rounds": 1, "server_lr": 1.0, "algorithm": "async",
    "aggregation": "renorm", "served": "last", "mixing": 0.6, "staleness": "polynomial",
    "staleness_a": 0.5, "staleness_b": 4.0, "buffer_size": 10, "loo": "global_minus",
    "cold_start": "mean", "error_samples": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "algorithm", "options"),
    [
        ({}, "renorm", {}),
        ({"aggregation": "fixed"}, "fixed", {}),
        ({"algorithm": "fedasync", "mixing": 0.1}, "fedasync", {"mixing": 0.1}),
        ({"algorithm": "fedbuff", "server_lr": 2}, "fedbuff", {"server_lr": 2.0}),
        ({"algorithm": "fedavg", "aggregation": "fixed"}, "fedavg", {"weighting": "fixed"}),
        ({"local_rounds": 3}, "renorm+eager", {"local_rounds": 3}),
        ({"served": "average"}, "renorm+average", {}),
        (
            {"algorithm": "fedbuff", "local_rounds": 2, "served": "average"},
            "fedbuff+eager+average",
            {"local_rounds": 2},
        ),
    ],
)
def test_the_old_spelling_is_read(
    changed: dict[str, Any], algorithm: str, options: dict[str, Any]
) -> None:
    found = Training(**{**FLAT, **changed})
    assert found == Training(policy="glr-cucb", algorithm=algorithm, algorithm_options=options)
    assert Training.as_stored({**FLAT, **changed}) == found
    assert json.loads(json.dumps(found.model_dump(mode="json")))["algorithm"] == algorithm


def test_the_old_spelling_of_the_valuation_is_read() -> None:
    old = {**FLAT, "loo": "buffer", "cold_start": "zero", "error_samples": 7}
    options = {"loo": "buffer", "cold_start": "zero", "error_samples": 7}
    found = Training(**old, contribution="paper")
    assert found == Training(policy="glr-cucb", contribution="paper", valuation_options=options)
    assert found.valuing.model_dump() == options


def test_two_spellings_of_one_setting_are_refused() -> None:
    with refused(ParameterError, "policy was called scheduler before: give one of them"):
        Training(policy="random", scheduler="cucb")
    with refused(ParameterError, "mixing is given twice, by itself and in algorithm_options"):
        Training(algorithm="fedasync", mixing=0.1, algorithm_options={"mixing": 0.2})


def test_what_is_stored_is_checked_otherwise() -> None:
    with refused(ParameterError, r"mixing must be a number in \(0, 1\], got 3"):
        Training.as_stored({"algorithm": "fedasync", "mixing": 3})
    with refused(UnknownNameError, "Training has no parameter 'dataste'; did you mean 'dataset'"):
        Training.as_stored({"dataste": 0.3})
    with refused(ParameterError, "rounds must be a whole number >= 1, got True"):
        Training.as_stored({"rounds": True})


def test_settings_of_the_published_results_are_read() -> None:
    files = sorted(Path("docs/reproduction").rglob("training-*.nc"))
    assert len(files) > 30
    for path in files:
        notes: list[str] = []
        saved = _read_comparison(load_comparison(path), path.parent, notes)
        assert notes == []
        assert saved["settings"].unused() == {}
        for policy in saved["policies"]:
            settings_of(saved["settings"], policy, saved["policy_options"].get(policy))
