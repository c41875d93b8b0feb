"""Any module trains: statistics, frozen and tied weights, dropout, and what stays local."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freshband.errors import ParameterError, RuleError
from freshband.federated import Federation, resume_run, start_run
from tests.federated.playing import PERFECT, assert_identical, play, tiny


def drawn(*layers: nn.Module) -> nn.Module:
    """Return layers in a row with weights that depend on nothing else."""
    module = nn.Sequential(nn.Flatten(), *layers)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in module.named_parameters():
            if weights.ndim > 1 or name.endswith("bias"):
                weights.copy_(torch.randn(weights.shape, generator=rng) * 0.3)
    return module


def normed() -> nn.Module:
    return drawn(nn.Linear(16, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def own(**changes: Any) -> Any:
    return tiny(model=None, model_options={}, **changes)


class Tabled(nn.Module):
    """A constant table, one that is not saved, tied weights, and no sequence of layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("places", torch.linspace(-1, 1, 16))
        self.register_buffer("shift", torch.full((3,), 0.1), persistent=False)
        self.inner = nn.Linear(16, 16)
        self.again = nn.Linear(16, 16)
        self.again.weight = self.inner.weight
        self.last = nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = images.flatten(1) + self.places
        return self.last(self.again(self.inner(rows).relu()).relu()) + self.shift


def test_constant_tables_and_tied_weights_stay_what_they_are() -> None:
    module = Tabled()
    with Federation(own(precision="float32", rounds=15), model=module) as run:
        records = list(run)
        trained = run.module()
    assert records[-1].accuracy > records[0].accuracy
    assert trained.again.weight is trained.inner.weight
    assert not torch.equal(trained.inner.weight, module.inner.weight)
    assert torch.equal(trained.places, module.places)
    assert torch.equal(trained.shift, module.shift)
    assert run.state.model.numel() == sum(w.numel() for w in module.parameters())


def plain_round(module: nn.Module, run: Federation, jobs: list[Any]) -> nn.Module:
    """Average the state of clients that trained one after another, the obvious way."""
    import copy

    states = []
    for job in jobs:
        client = copy.deepcopy(module).double().train()
        optimiser = torch.optim.SGD(client.parameters(), lr=run.settings.client_lr)
        for samples in job.batches:
            images = run.dataset.normalise(run.dataset.train_images[samples]).double()
            loss = nn.functional.cross_entropy(client(images), run.dataset.train_labels[samples])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        states.append(client.state_dict())
    mean = copy.deepcopy(module).double()
    floats = {
        name: torch.stack([state[name] for state in states]).mean(dim=0)
        for name, value in mean.state_dict().items()
        if value.is_floating_point()
    }
    mean.load_state_dict(floats, strict=False)
    return mean


def test_statistics_are_averaged_as_weights_are() -> None:
    module = normed()
    with (
        Federation(own(**PERFECT, rounds=2), model=module) as run,
        Federation(own(**PERFECT, rounds=2), model=module) as other,
    ):
        expected = plain_round(module, run, other.begin())
        run.step()
        for name, value in run.module().state_dict().items():
            if value.is_floating_point():
                close = expected.state_dict()[name].float()
                torch.testing.assert_close(value, close, rtol=1e-5, atol=1e-6, msg=name)


def test_variances_never_become_negative() -> None:
    module = normed()
    with Federation(own(client_lr=1.0, rounds=12), model=module) as run:
        for _ in run:
            run.state.model[run._travel.travels.size - 6 :] -= 5.0  # as a stale update may
            assert (run.module()[2].running_var >= 0).all()
        assert run.state.model.isfinite().all()


def test_frozen_statistics_are_those_of_the_given_module() -> None:
    module = normed()
    module[2].running_mean.fill_(0.3)
    with Federation(own(statistics="frozen", rounds=4), model=module) as run:
        list(run)
        trained = run.module()
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(getattr(trained[2], name), getattr(module[2], name)), name
    assert not torch.equal(trained[2].weight, module[2].weight)


def test_frozen_statistics_beside_dropout_leave_it_on() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(16))
            self.layers = drawn(nn.Dropout(0.5), nn.Linear(16, 3))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.mean.lerp_(images.flatten(1).mean(dim=0), 0.1)
            scores: torch.Tensor = self.layers(images)
            return scores

    module, still = Counted(), Counted()
    still.layers[1].p = 0.0
    (_, dropped), (_, whole) = (
        play(own(statistics="frozen", rounds=2), model=each) for each in (module, still)
    )
    assert not torch.equal(dropped, whole)


def test_local_statistics_stay_with_their_layers_as_in_fedbn() -> None:
    module = normed()
    with Federation(own(statistics="local", rounds=6), model=module) as run:
        names = list(run._travel.travels.shapes)
        assert names == ["1.weight", "1.bias", "4.weight", "4.bias"]
        records = list(run)
        first, second, mean = run.module(client=0), run.module(client=1), run.module()
    assert not torch.equal(first[2].running_mean, second[2].running_mean)
    assert not torch.equal(first[2].weight, second[2].weight)
    assert torch.equal(first[1].weight, second[1].weight)
    every = torch.stack([run.module(client=each)[2].weight for each in range(4)])
    torch.testing.assert_close(mean[2].weight, every.mean(dim=0))
    assert np.isfinite(records[-1].client_accuracy).all()


def test_patterns_name_what_stays_local() -> None:
    module = drawn(nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    with Federation(own(stays_local=["3.*"], rounds=4), model=module) as run:
        assert list(run._travel.travels.shapes) == ["1.weight", "1.bias"]
        list(run)
        assert not torch.equal(run.module(0)[3].weight, run.module(1)[3].weight)
    with pytest.raises(ParameterError, match=r"stays_local must match .*'head\.\*' matches none"):
        Federation(own(stays_local=["head.*"]), model=module)
    with pytest.raises(ParameterError, match="must have parameters that travel"):
        Federation(own(stays_local=["*"]), model=module)
    with pytest.raises(ParameterError, match="statistics belongs to a model with buffers"):
        Federation(own(statistics="local"), model=module)


def test_frozen_parameters_neither_move_nor_travel() -> None:
    module = drawn(nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    module[1].requires_grad_(False)
    with Federation(own(rounds=12), model=module) as run:
        records = list(run)
        trained = run.module()
    assert torch.equal(trained[1].weight, module[1].weight)
    assert not torch.equal(trained[3].weight, module[3].weight)
    assert run.state.model.numel() == 6 * 3 + 3
    assert records[0].bytes_up == 8 * 21 * (records[0].assignment >= 0).sum()


class Assigning(nn.Module):
    """Puts its statistic in a new tensor, draws in a function, and draws without a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(16))
        self.dense = nn.Linear(16, 3)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = images.flatten(1)
        if self.training:
            self.seen = 0.5 * self.seen + 0.5 * rows.detach().mean(dim=0)
            rows = nn.functional.dropout(rows, 0.3) + 0.01 * torch.randn_like(rows)
        return self.dense(rows - self.seen)


DROPPING = {
    "layers": lambda: drawn(nn.Linear(16, 8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 3)),
    "functions": Assigning,
    "rrelu": lambda: drawn(nn.Linear(16, 8), nn.RReLU(), nn.Linear(8, 3)),
}


@pytest.mark.parametrize("kind", DROPPING)
def test_what_a_model_draws_is_the_runs_own(kind: str, tmp_path: Path) -> None:
    make: Any = DROPPING[kind]
    module = make()
    before = torch.get_rng_state()
    expected, model = play(own(rounds=6), model=module)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)  # nothing of it enters
    others, same = play(own(rounds=6, workers=3), model=make())
    assert torch.equal(model, same)
    assert_identical(expected, others)
    assert not torch.equal(model, play(own(rounds=6, seed=4), model=make())[1])
    with start_run(own(rounds=6), tmp_path / "run", model=make()) as run:
        for record in run:
            if record.round == 3:
                run.stop()
    with resume_run(tmp_path / "run", model=make()) as run:
        list(run)
        assert torch.equal(run.federation.state.model, model)
        assert_identical(run.records, expected)


def test_dropout_really_drops() -> None:
    _, plain = play(own(rounds=3), model=drawn(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)))
    _, dropped = play(own(rounds=3), model=DROPPING["layers"]())
    assert not torch.equal(plain, dropped)


@pytest.mark.parametrize("statistics", ["averaged", "local", "frozen"])
def test_statistics_go_on_after_a_stop(statistics: str, tmp_path: Path) -> None:
    settings = own(statistics=statistics, rounds=6, algorithm="fixed+eager", matching="priority")
    expected, model = play(settings, model=normed())
    with start_run(settings, tmp_path / "run", model=normed()) as run:
        for record in run:
            if record.round == 4:
                run.stop()
    with resume_run(tmp_path / "run", model=normed()) as run:
        list(run)
        assert torch.equal(run.federation.state.model, model)
        assert_identical(run.records, expected)


def test_another_frozen_part_is_another_model(tmp_path: Path) -> None:
    module = drawn(nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    module[1].requires_grad_(False)
    with start_run(own(), tmp_path / "run", model=module):
        pass
    with torch.no_grad():
        module[1].weight.add_(1)
    with pytest.raises(ParameterError, match="model must be the one the run began with"):
        resume_run(tmp_path / "run", model=module)


# ------------------------------------------------------------------- what breaks in the middle


class Fragile(nn.Module):
    """Breaks in the n-th call in training, in one of several ways."""

    def __init__(self, how: str, after: int) -> None:
        super().__init__()
        self.how, self.left = how, [after]
        self.dense = nn.Linear(16, 3)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)
        self.register_buffer("seen", torch.zeros(1))

    def __deepcopy__(self, memo: Any) -> Any:  # copies count together
        mine = Fragile(self.how, 0)
        mine.left = self.left
        mine.load_state_dict(self.state_dict())
        return mine.to(self.dense.weight.dtype)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = self.dense(images.flatten(1))
        if self.training:
            self.left[0] -= 1
            self.seen = self.seen + 1
        if self.left[0] >= 0 or not self.training:
            return rows
        if self.how == "raises":
            raise ValueError("no\nmore")
        if self.how == "NaN":
            return rows * float("nan")
        if self.how == "shape":
            self.seen = torch.zeros(2)
        return rows if self.how == "shape" else rows[:, :2].long()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "ValueError: no more"),
        ("NaN", "the loss is nan in step [12] of 2"),
        ("shape", r"the buffer 'seen' must keep its shape \(1,\), got \(2,\)"),
        ("type", "NotImplementedError: "),
    ],
)
def test_what_breaks_is_named_and_the_run_goes_on_once_mended(
    how: str, message: str, tmp_path: Path
) -> None:
    expected, model = play(own(rounds=8), model=Fragile(how, 10**6))
    run = start_run(own(rounds=8), tmp_path / "run", model=Fragile(how, 20))
    told = rf"^client \d in round [2-8]: {message}.*; round \d of 8 is safe: go on from it with "
    with run, pytest.raises(RuleError, match=told) as caught:
        list(run)
    assert "\n" not in str(caught.value)
    broke = run.round + 1
    with resume_run(tmp_path / "run", model=Fragile(how, 10**6)) as run:
        assert run.round == broke - 1  # nothing is lost
        list(run)
        assert torch.equal(run.federation.state.model, model)
        assert_identical(run.records, expected)


def test_plain_modules_that_break_are_named_too(tmp_path: Path) -> None:
    class Plain(nn.Sequential):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = super().forward(images)
            if self.training and torch.is_grad_enabled() and len(images) == 4:
                scores = scores / 0.0
            return scores

    module = Plain(nn.Flatten(), nn.Linear(16, 3))
    with (
        start_run(own(path="threads"), tmp_path / "run", model=module) as run,
        pytest.raises(RuleError, match=r"^client 0 in round 1: its update is not finite; "),
    ):
        list(run)
