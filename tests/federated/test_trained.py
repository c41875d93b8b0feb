"""The trained model as a file, one call that trains, loggers, and files that register things."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, load_model
from torch import nn

from freshband.errors import FreshbandError, ParameterError, RuleError
from freshband.federated import Federation, export_model, resume_run, start_run, train
from freshband.federated.algorithms import Arrivals, Rule
from freshband.federated.loggers import MLflow, Wandb, registry
from freshband.federated.loggers.base import flat_settings
from tests.federated.playing import TINY, assert_identical, play, tiny


class Tied(nn.Module):
    """Tied weights, a statistic, a constant, and a parameter that stays local."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(16)
        self.register_buffer("table", torch.ones(16))
        self.head = nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.second(self.first(images.flatten(1)).relu()) + self.table
        return self.head(self.norm(found).relu())


def test_a_run_writes_its_model_and_one_line_loads_it(tmp_path: Path) -> None:
    settings = tiny(model=None, model_options={}, rounds=3, precision="float32")
    trained = train(settings, out=tmp_path / "run", model=Tied())
    loaded = Tied()
    load_model(loaded, tmp_path / "run" / "model.safetensors")
    for name, value in trained.module.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name
    assert loaded.second.weight is loaded.first.weight
    names = {"first.weight", "first.bias", "second.bias", "head.weight", "head.bias", "table"}
    assert {*load_file(tmp_path / "run" / "model.safetensors")} - names == {
        f"norm.{name}"
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    assert trained.result.sizes["round"] == 3


def test_old_and_unfinished_runs_and_single_clients_are_exported(tmp_path: Path) -> None:
    settings = tiny(rounds=6, stays_local=["3.*"])
    with start_run(settings, tmp_path / "run") as run:
        for record in run:
            if record.round == 2:
                run.stop()
        half = run.federation.module()
        own = run.federation.module(client=2)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    path = export_model(tmp_path / "run")
    assert path == tmp_path / "run" / "model.safetensors"
    assert torch.equal(load_file(path)["1.weight"], half[1].weight)
    single = export_model(tmp_path / "run", client=2)
    assert single.name == "model-client-2.safetensors"
    assert torch.equal(load_file(single)["3.weight"], own[3].weight)
    assert not torch.equal(load_file(single)["3.weight"], half[3].weight)
    with pytest.raises(ParameterError, match=r"client must be in \[0, 3\], got 4"):
        export_model(tmp_path / "run", client=4)
    with resume_run(tmp_path / "run") as run:
        assert run.round == 2  # looking changes nothing


# ---------------------------------------------------------------------------------- loggers


class Heard:
    """A logger in three lines."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def start(self, settings: Any, folder: Path | None, done: int) -> None:
        self.heard.append((settings.rounds, folder, done))

    def log(self, record: Any) -> None:
        self.heard.append(record.round)

    def close(self) -> None:
        self.heard.append("end")


def test_loggers_hear_every_round_and_the_end(tmp_path: Path) -> None:
    mine, rounds = Heard(), []
    train(tiny(rounds=3), loggers=[mine, lambda record: rounds.append(record.round)])
    assert mine.heard == [(3, None, 0), 1, 2, 3, "end"]
    assert rounds == [1, 2, 3]
    train(tiny(rounds=2), out=tmp_path / "run", loggers=["tensorboard"])
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert {"mlflow", "tensorboard", "wandb"} <= {*registry}


def test_a_logger_that_breaks_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    def full(record: Any) -> None:
        if record.round == 4:
            raise OSError("the disk is full")

    mine = Heard()
    with pytest.raises(OSError, match="the disk is full"):
        train(tiny(rounds=6), out=tmp_path / "run", loggers=[mine, full])
    assert mine.heard[-2:] == [4, "end"]
    with resume_run(tmp_path / "run") as run:
        assert run.round == 4


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        (Heard, "a logger must be a name, have .*got <class .*; give an object, not its class"),
        (3, "a logger must be a name, have the methods start, log and close, or be a function"),
        ("tensorbord", "unknown logger 'tensorbord'; did you mean 'tensorboard'?"),
    ],
)
def test_what_is_no_logger_is_refused(logger: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=message):
        train(tiny(rounds=1), loggers=[logger], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ParameterError, match=r"loggers must be a list, got .*; put it into one$"):
        train(tiny(rounds=1), loggers=logger)


def test_settings_as_tables_of_runs_show_them() -> None:
    flat = flat_settings(tiny(optimiser_options={"momentum": 0.5}))
    assert (flat["clients"], flat["optimiser.momentum"], flat["model.hidden"]) == (4, 0.5, [5])
    assert "held_out" not in flat


@pytest.mark.parametrize(("library", "logger"), [("mlflow", MLflow), ("wandb", Wandb)])
def test_loggers_that_are_not_installed_say_how_to_get_them(
    library: str, logger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(FreshbandError, match=rf"is missing; .*'freshband\[{library}\]'"):
        train(tiny(rounds=1), loggers=[logger()])


@pytest.mark.filterwarnings("default")  # theirs are not ours to mend
def test_mlflow_has_every_round_also_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    _stop_and_resume(tmp_path / "run", lambda: MLflow(tracking_uri=uri))
    client = mlflow.MlflowClient(uri)
    home = client.get_experiment_by_name("freshband").experiment_id
    [run] = client.search_runs([home])
    assert run.info.status == "FINISHED"
    assert run.data.params["clients"] == "4"
    history = client.get_metric_history(run.info.run_id, "age/mean")
    assert [each.step for each in history] == [1, 2, 3, 4]


@pytest.mark.filterwarnings("default")
def test_wandb_has_every_round_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    _stop_and_resume(tmp_path / "run", Wandb)
    written = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(written) == 2
    identifier = (tmp_path / "run" / "wandb.id").read_text().strip()
    assert all(identifier in path.name for path in written)
    assert b"age/mean" in b"".join(path.read_bytes() for path in written)


def _stop_and_resume(home: Path, make: Any) -> None:
    from freshband.federated.loggers import logging_to

    for begin in (lambda: start_run(tiny(rounds=4), home), lambda: resume_run(home)):
        with (
            begin() as run,
            logging_to([make()], run.settings, home, done=run.round) as log,
        ):
            for record in run:
                log(record)
                if record.round == 2:
                    run.stop()


# ------------------------------------------------------------------------- a rule that breaks


class Brittle(Rule):
    """Moves the model, and then breaks in round 5, unless it is mended."""

    how: str = ""

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> tuple[Any, int]:
        for client in arrivals.clients:
            model.sub_(arrivals.updates[client], alpha=arrivals.client_lr / 4)
        if arrivals.round == 5 and HOW[0] == "NaN":
            model.fill_(float("nan"))
        if arrivals.round == 5 and HOW[0] == "raises":
            raise KeyError("lost")
        steps = np.where(arrivals.delivered, arrivals.client_lr / 4, 0.0)
        return (steps[:2] if arrivals.round == 5 and HOW[0] == "shape" else steps), 1


HOW = [""]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "KeyError: 'lost'"),
        ("NaN", "Brittle.apply made a model that is not finite"),
        ("shape", "Brittle.apply must return 4 steps as a float array first"),
    ],
)
def test_a_rule_that_breaks_is_named_and_can_be_mended(
    how: str, message: str, tmp_path: Path
) -> None:
    HOW[0] = ""
    expected, model = play(tiny(), algorithm=Brittle())
    HOW[0] = how
    told = rf"^{message}, in round 5 with updates of client .*; round 4 of 12 is safe: go on from"
    with (
        start_run(tiny(), tmp_path / "run", algorithm=Brittle()) as run,
        pytest.raises(RuleError, match=told),
    ):
        list(run)
    HOW[0] = ""
    with resume_run(tmp_path / "run", algorithm=Brittle()) as run:
        assert run.round == 4
        list(run)
        assert torch.equal(run.federation.state.model, model)
        assert_identical(run.records, expected)


# ------------------------------------------------------------------------------- registration

FILE = '''
from typing import ClassVar

import numpy as np
import torch
from freshband.federated import Dataset, data, losses, metrics, models, optimisers, partition
from freshband.federated.algorithms import Rule, register
from freshband.federated.loggers import register as register_logger
from freshband.parameters import Parameters


@data.register("{tag}-data")
class Lines(Parameters):
    """Numbers on a line."""

    n: int = 40

    def load(self, rng):
        rows = rng.normal(size=(self.n, 2)).astype(np.float32)
        pair = (rows, rows.sum(axis=1))
        return Dataset.of_samples(pair, pair, name="lines")


@models.register("{tag}-model")
class Plane(Parameters):
    """One plane."""

    any_shape: ClassVar[bool] = True

    def build(self, shape, n_classes):
        return torch.nn.Linear(shape[0], 1)


@losses.register("{tag}-loss")
class Absolute(Parameters):
    """The mean absolute error."""

    def __call__(self, outputs, targets):
        return (outputs[:, 0] - targets).abs().mean()


@metrics.register("{tag}-metric")
class Near(Parameters):
    """The share of answers that are near."""

    near: float = 0.5

    def __call__(self, outputs, targets):
        return float(((outputs[:, 0] - targets).abs() < self.near).float().mean())


@optimisers.register("{tag}-optimiser")
class Signs(Parameters):
    """Steps by the sign of the gradient."""

    def build(self, parameters, lr):
        return torch.optim.Rprop(parameters, lr=lr)


@partition.register("{tag}-partition")
class Halves(Parameters):
    """Neighbours together."""

    def split(self, labels, n_clients, rng):
        return np.array_split(np.arange(len(labels)), n_clients)


@register("{tag}-rule")
class Half(Rule):
    """Half of every update."""

    def apply(self, model, memory, arrivals):
        steps = np.where(arrivals.delivered, arrivals.client_lr / 8, 0.0)
        for client in arrivals.clients:
            model.sub_(arrivals.updates[client], alpha=steps[client])
        return steps, 1


@register_logger("{tag}-logger")
class Lines:
    """Writes a line per round."""

    def start(self, settings, folder, done):
        self.file = (folder / "lines.txt").open("a")

    def log(self, record):
        self.file.write(f"{{record.round}}\\n")

    def close(self):
        self.file.close()
'''


def test_a_file_registers_everything_for_the_command_line(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from freshband.cli.app import app

    (tmp_path / "my_federated_things.py").write_text(FILE.format(tag="my"))
    imported = ["--import", str(tmp_path / "my_federated_things.py")]
    names = ["dataset", "model", "loss", "metric", "optimiser", "partition"]
    options = [part for name in names for part in ("--set", f"{name}=my-{name}")]
    options[1] = "dataset=my-data"
    more = ["--set", "metric.near=0.7", "--set", "val_fraction=0.3", "--algorithm", "my-rule"]
    more += ["--clients", "3", "--rounds", "4", "--out", str(tmp_path / "run"), "--quiet"]
    done = CliRunner().invoke(
        app, [*imported, "train", *options, *more, "--log", "my-logger", "--format", "json"]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert json.loads(done.stdout)["config"]["metric_options"] == {"near": 0.7}
    assert (tmp_path / "run" / "lines.txt").read_text().split() == ["1", "2", "3", "4"]
    assert {*load_file(tmp_path / "run" / "model.safetensors")} == {"weight", "bias"}
    shown = CliRunner().invoke(app, [*imported, "list", "my-loss"])
    assert "my-loss (loss)" in shown.output
    again = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--out", str(tmp_path / "m")])
    assert again.exit_code == 0
    assert "wrote" in again.output
    policies = ["--policies", "random,cucb", "--runs", "1", "--rounds", "4", "--clients", "3"]
    done = CliRunner().invoke(app, [*imported, "compare", *options, *more[:4], *policies])
    assert done.exit_code == 0, (done.output, done.exception)


def test_settings_of_the_things_survive_a_file(tmp_path: Path) -> None:
    changes = {
        "loss": "cross-entropy", "loss_options": {"label_smoothing": 0.1}, "optimiser": "adam",
        "optimiser_options": {"clip": 1.0}, "stays_local": ["3.*"], "client_lr": 0.01,
    }  # fmt: skip
    with start_run(tiny(**changes, rounds=4), tmp_path / "run") as run:
        for record in run:
            if record.round == 2:
                run.stop()
    with resume_run(tmp_path / "run") as run:
        list(run)
        assert_identical(run.records, play(tiny(**changes, rounds=4))[0])
    with Federation(tiny(**changes)) as run:
        assert {**TINY, **changes}["clients"] == run.settings.clients
