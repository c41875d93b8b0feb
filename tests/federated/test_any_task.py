"""Tokens, numbers, several inputs, and losses, optimisers and metrics of one's own."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freshband.errors import ParameterError, RuleError
from freshband.federated import Dataset, Federation, Training, compare, resume_run, start_run
from freshband.federated.losses import registry as losses
from freshband.federated.metrics import registry as metrics
from freshband.federated.optimisers import Adam, Sgd, build_optimiser
from freshband.federated.optimisers import registry as optimisers
from tests.federated.playing import PERFECT, TINY, play, tiny

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(240, 3)).astype(np.float32)
NUMBERS = (ROWS @ [1.0, -2.0, 0.5] + 0.1 * RNG.normal(size=240)).astype(np.float32)
LINES = Dataset.of_samples((ROWS[:200], NUMBERS[:200]), (ROWS[200:], NUMBERS[200:]), name="lines")


def own(**changes: Any) -> Training:
    plain = {name: value for name, value in TINY.items() if "dataset" not in name}
    return Training(**{**plain, "model": None, "model_options": {}, **changes})


def test_text_is_learned_by_characters() -> None:
    settings = Training(
        dataset="sayings", dataset_options={"speakers": 8, "samples": 20}, partition="column",
        partition_options={"column": "speaker"}, optimiser="adam", client_lr=0.02, clients=4,
        rounds=12, batch_size=16, model_options={"width": 32, "dropout": 0.1}, workers=1,
    )  # fmt: skip
    with Federation(settings) as run:
        records = list(run)
        module = run.module()
    assert records[-1].accuracy > 0.45 > 3 * records[0].accuracy / 2
    assert np.isfinite(records[-1].client_accuracy).all()
    assert records[-1].accuracy_spread > 0
    assert module.score.weight is module.embed.weight


def test_numbers_are_learned_and_judged_by_r2() -> None:
    torch.manual_seed(0)
    settings = own(rounds=12, client_lr=0.1, model="mlp", model_options={"hidden": []})
    records, _ = play(settings, dataset=LINES)
    assert records[-1].accuracy > 0.9
    assert records[-1].loss < 0.5
    robust, model = play(settings.model_copy(update={"loss": "huber"}), dataset=LINES)
    assert robust[-1].loss < robust[0].loss
    assert model[:3].tolist() == pytest.approx([1.0, -2.0, 0.5], abs=0.6)


class TwoInputs(nn.Module):
    """Embeds a token and adds numbers to it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 2)
        self.dense = nn.Linear(3, 2)
        for weights in self.parameters():
            nn.init.constant_(weights, 0.1)

    def forward(self, tokens: torch.Tensor, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        assert tokens.dtype == torch.int64
        return {"logits": self.embed(tokens) + self.dense(rows)}


def test_several_inputs_and_outputs_that_are_no_tensor() -> None:
    tokens = RNG.integers(0, 5, 240)
    labels = (tokens > 2).astype(np.int64)
    parts = [(tokens[at], ROWS[at], labels[at]) for at in (slice(200), slice(200, None))]
    records, _ = play(
        own(rounds=12), dataset=parts, model=TwoInputs(),
        loss=lambda outputs, targets: nn.functional.cross_entropy(outputs["logits"], targets),
    )  # fmt: skip
    assert records[-1].accuracy > 0.9


# ----------------------------------------------------------------------------------- optimisers


def obvious(make: Any, lr_of: Any = lambda t: 0.3, clip: float | None = None) -> torch.Tensor:
    """Return the model after three rounds of averaging, computed with torch's own optimisers."""
    settings = tiny(**PERFECT, rounds=3)
    with Federation(settings) as run, Federation(settings) as other:
        model = run.module().double()
        for t in range(1, 4):
            states = []
            for job in other.begin():
                client = copy.deepcopy(model)
                steps = make(client.parameters(), lr_of(t))
                for samples in job.batches:
                    images = run.dataset.normalise(run.dataset.train_images[samples]).double()
                    labels = run.dataset.train_labels[samples]
                    steps.zero_grad()
                    nn.functional.cross_entropy(client(images), labels).backward()
                    if clip is not None:
                        nn.utils.clip_grad_norm_(client.parameters(), clip)
                    steps.step()
                states.append(nn.utils.parameters_to_vector(client.parameters()).detach())
            nn.utils.vector_to_parameters(torch.stack(states).mean(dim=0), model.parameters())
            other.pending.updates.zero_()
            other.finish(0.0)
        return nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"momentum": 0.9, "weight_decay": 0.01},
            lambda: obvious(lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=0.01)),
        ),
        ({"clip": 0.1}, lambda: obvious(torch.optim.SGD, clip=0.1)),
        (
            {"schedule": "linear", "warmup": 1},
            lambda: obvious(torch.optim.SGD, lr_of={1: 0.15, 2: 0.3, 3: 0.15}.__getitem__),
        ),
    ],
)
def test_named_optimisers_do_what_torch_does(options: Any, expected: Any) -> None:
    settings = tiny(**PERFECT, rounds=3, optimiser="sgd", optimiser_options=options)
    _, model = play(settings)
    torch.testing.assert_close(model, expected(), rtol=1e-7, atol=1e-9)


def test_optimisers_of_ones_own_and_by_name_are_the_same() -> None:
    _, named = play(tiny(rounds=3, optimiser="adam", client_lr=0.01))
    for given in (
        torch.optim.AdamW,  # with the step of the settings, and its own weight decay
        functools.partial(torch.optim.AdamW, lr=0.01),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    ):
        _, model = play(tiny(rounds=3, client_lr=0.01), optimiser=given)
        _, decayed = play(
            tiny(
                rounds=3, client_lr=0.01, optimiser="adam", optimiser_options={"weight_decay": 0.01}
            )
        )
        torch.testing.assert_close(model, decayed)
        assert not torch.equal(model, named)


class Noisy(torch.optim.SGD):
    """Adds noise to gradients, as differentially private training does."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for each in group["params"]:
                each.grad.add_(torch.randn_like(each.grad), alpha=0.01)
        super().step(closure)


def test_what_an_optimiser_draws_is_the_runs_own() -> None:
    models = []
    for workers in (1, 3):
        torch.manual_seed(workers)  # nothing of it enters
        before = torch.get_rng_state()
        models.append(play(tiny(workers=workers), optimiser=Noisy)[1])
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(*models)
    assert not torch.equal(models[0], play(tiny(), optimiser=torch.optim.SGD)[1])


def test_schedules_fall_to_nothing() -> None:
    assert [Sgd(schedule="cosine").rate(t, 4) for t in (1, 3)] == pytest.approx([1.0, 0.5])
    assert Sgd(schedule="linear").rate(4, 4) == pytest.approx(0.25)
    assert [Adam(warmup=3).rate(t, 9) for t in (1, 2, 4, 9)] == [0.25, 0.5, 1.0, 1.0]
    with pytest.raises(ParameterError, match="nesterov belongs to a momentum > 0"):
        Sgd(nesterov=True)


# ------------------------------------------------------------------------------- bad input


def squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - nn.functional.one_hot(targets, 3)).square().mean()


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (
            {"loss": nn.MSELoss},
            r"^loss must be a name or a function .*; make one with MSELoss\(\)$",
        ),
        ({"loss": "mse"}, r"^loss must be .*the settings, Training\(loss='mse'\)$"),
        ({"loss": 3}, "^loss must be a name or a function of outputs and targets, got 3$"),
        ({"loss": nn.BCELoss()}, r"^loss of targets \(2,\) of int64 and outputs \(2, 3\) fails: "),
        (
            {"loss": nn.CrossEntropyLoss(reduction="none")},
            r"^loss must return the mean of a batch as one number, got shape \(2,\)$",
        ),
        ({"loss": lambda outputs, targets: 1.0}, "^loss must return the mean .*, got 1.0$"),
        ({"loss": lambda o, t: o.sum() * float("nan")}, "^loss must be finite, got nan for the"),
        ({"loss": lambda o, t: o.detach().sum()}, "^loss must depend on the model's outputs"),
        (
            {"optimiser": torch.optim.SGD([torch.ones(1)], lr=0.1)},
            "^optimiser must be a name or a function, got a ready SGD: every client needs one of",
        ),
        ({"optimiser": "adam"}, r"^optimiser must be .*Training\(optimiser='adam'\)$"),
        ({"optimiser": dict}, "^optimiser must be .*; give an object, not its class$"),
        ({"optimiser": lambda parameters: None}, "^optimiser must return an object with a method"),
        (
            {"optimiser": lambda parameters, lr: None},
            "^optimiser fails: TypeError: .*; it is given the list of a client's parameters, as in",
        ),
        ({"optimiser": torch.optim.LBFGS}, "^optimiser fails: .*; its step is called without a cl"),
        (
            {"optimiser": lambda _: torch.optim.SGD([torch.ones(1)], lr=0.1)},
            "^optimiser must change the parameters it is given, SGD holds none of them: ",
        ),
        ({"loss": lambda outputs: outputs.mean()}, "^loss of .*; it is given the model's outputs"),
        (
            {"loss": nn.MSELoss()},
            r"^loss of targets \(2,\) of int64 and outputs \(2, 3\) fails: UserWarning: Using a ta",
        ),
        ({"metric": lambda outputs, targets: outputs}, "^metric must return one number, got tens"),
        ({"metric": lambda o, t: float("inf")}, "^metric must return a finite number, got inf$"),
        ({"metric": 0.5}, "^metric must be a name or a function of outputs and targets, got 0.5$"),
        (
            {"model": nn.Linear(3, 3), "loss": squared, "settings": tiny(model_options={})},
            r"^model must take samples, \(2, 1, 4, 4\) of float32: Linear fails: RuntimeError: ",
        ),
        ({"settings": tiny(loss="huber")}, r"^outputs must have the shape of targets, \(2,\), got"),
        ({"settings": tiny(loss="hubert")}, "^unknown loss 'hubert'; did you mean 'huber'?"),
        ({"settings": tiny(optimiser="sdg")}, "^unknown optimiser 'sdg'; did you mean 'sgd'?"),
        (
            {"settings": tiny(optimiser_options={"momemtum": 1})},
            "^Sgd has no parameter 'momemtum'; did you mean 'momentum'?",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_trained(
    objects: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message) as told:
        Federation(**{"settings": tiny(), **objects})
    assert "\n" not in str(told.value)


def test_samples_with_the_largest_numbers_are_tried_before_anything_is_trained() -> None:
    tokens = torch.arange(40).reshape(20, 2)
    settings = tiny(model=None, model_options={}, partition="iid", partition_options={})
    model = nn.Sequential(nn.Embedding(40, 4), nn.Linear(4, 40))
    with Federation(settings, dataset=((tokens, tokens), (tokens, tokens)), model=model) as run:
        run.step()
    for inputs, targets, message in (
        (
            tokens + 2,
            tokens,
            r"^model must take samples, .* of int64 in \[2, 41\]: Sequential fails",
        ),
        (tokens, tokens + 2, r"^loss of targets .* of int64 in \[2, 41\] and outputs .* fails: "),
    ):
        for part in (0, 1):
            parts = [(tokens, tokens), (tokens, tokens)]
            parts[part] = (inputs, targets)
            with pytest.raises(ParameterError, match=message):
                Federation(settings, dataset=tuple(parts), model=model)


def test_classes_are_the_last_dimension_and_outputs_may_name_their_scores() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(16, 3)
            nn.init.zeros_(self.dense.weight)
            nn.init.zeros_(self.dense.bias)

        def forward(self, images: torch.Tensor) -> Any:
            return {"hidden": None, "logits": self.dense(images.flatten(1))}

    class Bare(Named):
        def forward(self, images: torch.Tensor) -> Any:
            return super().forward(images)["logits"]

    settings = tiny(model=None, model_options={}, path="threads")
    (found, _), (expected, _) = play(settings, model=Named()), play(settings, model=Bare())
    assert [one.accuracy for one in found] == [one.accuracy for one in expected]
    masks = torch.rand(60, 1, 4, 4), torch.zeros(60, 4, 4, dtype=torch.int64)
    with pytest.raises(
        ParameterError, match=r"^outputs must have the shape of targets, \(2, 4, 4\)"
    ):
        Federation(settings, dataset=(masks, masks), model=nn.Conv2d(1, 2, 1))


def test_models_of_images_want_images() -> None:
    with pytest.raises(ParameterError, match=r"shape must be three whole .* for Cnn8, a model of"):
        Federation(own(model="cnn8"), dataset=LINES)
    with pytest.raises(ParameterError, match="model must be given for the data set 'lines'"):
        Federation(own(), dataset=LINES)
    with pytest.raises(ParameterError, match="char-gru is for rows of tokens"):
        Federation(own(model="char-gru"), dataset=LINES)


@pytest.mark.parametrize("name", ["loss", "optimiser", "metric"])
def test_settings_hold_names_of_these_too(name: str) -> None:
    with pytest.raises(ParameterError, match=rf"goes to Federation\(settings, {name}=\.\.\.\)$"):
        Training(**{name: nn.MSELoss()})


def test_contributions_want_a_metric_between_0_and_1() -> None:
    settings = own(model="mlp", model_options={"hidden": []}, matching="priority")
    with (
        Federation(settings, dataset=LINES, metric=lambda o, t: -3.0) as run,
        pytest.raises(ParameterError, match=r"contributions need a metric in \[0, 1\], .*got -3"),
    ):
        list(run)
    records, _ = play(
        settings, dataset=LINES, metric=lambda o, t: (o[:, 0] - t < 1).mean(dtype=float)
    )
    assert np.isfinite(records[-1].contributions).all()


def test_a_loss_that_breaks_names_client_and_round_and_is_mended(tmp_path: Path) -> None:
    calls = []

    def fragile(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 42:  # three are of the trial before the first round
            raise KeyError("gone")
        return squared(outputs, targets)

    _, model = play(tiny(), loss=squared)
    run = start_run(tiny(), tmp_path / "run", loss=fragile)
    with run, pytest.raises(RuleError, match=r"^client \d in round \d: KeyError: 'gone'; round \d"):
        list(run)
    with resume_run(tmp_path / "run", loss=fragile) as run:
        list(run)
        assert torch.equal(run.federation.state.model, model)
    with pytest.raises(ParameterError, match="loss must be the one the run began with"):
        resume_run(tmp_path / "run", loss=squared)


# ------------------------------------------------------------------- comparisons, registration


def test_comparisons_take_the_same_objects() -> None:
    torch.manual_seed(0)
    things: dict[str, Any] = {
        "dataset": LINES, "model": nn.Linear(3, 1),
        "loss": lambda o, t: nn.functional.smooth_l1_loss(o[:, 0], t),
        "optimiser": torch.optim.Adam, "partition": np.arange(200) % 4,
        "metric": lambda outputs, targets: -float((outputs[:, 0] - targets).abs().mean()),
        "channels": None,
    }  # fmt: skip
    settings = own(rounds=4, client_lr=0.05)
    result = compare(settings, ["random", "cucb"], runs=2, progress=False, **things)
    alone, _ = play(
        settings.model_copy(update={"policy": "cucb", "run": 1}),
        **{name: value for name, value in things.items() if value is not None},
    )
    together = result.accuracy.sel(policy="cucb", run=1).values
    assert together == pytest.approx([record.accuracy for record in alone])
    assert set(result.attrs["own"].split()) == {*things} - {"channels"}


@pytest.mark.parametrize("registry", [losses, metrics, optimisers])
def test_registered_things_are_one_file_with_a_docstring(registry: Any) -> None:
    import inspect

    for name in registry:
        kind = registry[name]
        if not kind.__module__.startswith("freshband."):
            continue
        text = inspect.getdoc(kind) or ""
        assert text.splitlines()[0].endswith(".")
        assert "Examples\n--------\n>>> " in text
        assert Path(inspect.getfile(kind)).stem == name.replace("-", "_")
        for field in kind.model_fields:
            assert f"\n{field} : " in text, (name, field)


def test_optimisers_by_name_take_no_other_options() -> None:
    with pytest.raises(ParameterError, match="parameters need a optimiser given by name"):
        build_optimiser(Sgd(), momentum=0.5)
