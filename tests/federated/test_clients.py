"""Local training of many clients at once against one after another, written out."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freshband.errors import ParameterError
from freshband.federated import Dataset, Training, build_model, load_dataset
from freshband.federated.clients import choose_clients, name_device, pick_device
from freshband.federated.clients._base import LocalTraining, ParameterLayout, TrainingJob, Trial
from freshband.federated.clients._batched import is_dense

MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"shape": (1, 4, 4), "params": {"hidden": [6, 5]}},
    "small-cnn": {"shape": (2, 6, 6), "params": {"widths": (3, 4)}},
    "cnn8": {"shape": (3, 8, 8), "params": {"widths": (4, 4, 6), "hidden": 8}},
    "resnet18": {"shape": (3, 8, 8), "params": {"width": 4}},
}
every_model = pytest.mark.parametrize("name", MODELS)
every_path = pytest.mark.parametrize("path", ["threads", "stacked"])
LR = 0.1


def problem(name: str) -> tuple[nn.Module, Dataset]:
    """A model with every weight at work, and images for it."""
    case = MODELS[name]
    data = load_dataset(
        "synthetic", seed=1, shape=case["shape"], n_classes=3, n_train=60, n_test=520
    )
    module = build_model(name, case["shape"], 3, seed=2, **case["params"])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # biases begin at zero, and residual branches with nothing
        for weights in module.parameters():
            weights += 0.05 * torch.randn(weights.shape, generator=generator)
    return module, data


def opened(
    module: nn.Module, data: Dataset, path: Any, precision: Any = "float64", workers: int = 2
) -> LocalTraining:
    return choose_clients(module, data, Training(path=path, precision=precision, workers=workers))


def jobs_of(
    row: torch.Tensor, n: int, steps: int = 3, size: int = 4, seed: int = 0
) -> list[TrainingJob]:
    """Clients of which each begins from another model."""
    rng = np.random.default_rng(seed)
    starts = row + torch.from_numpy(0.02 * rng.normal(size=(n, len(row)))).to(row)
    out = torch.full_like(starts, float("nan"))
    return [
        TrainingJob(start, rng.integers(0, 60, (steps, size)), update)
        for start, update in zip(starts, out, strict=True)
    ]


def naive(module: nn.Module, data: Dataset, job: TrainingJob, lr: float) -> torch.Tensor:
    """Plain SGD, in float64, from the start of a job."""
    model, layout = copy.deepcopy(module).double(), ParameterLayout(module)
    layout.write(job.start, model)
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    for samples in job.batches:
        optimiser.zero_grad()
        scores = model(data.normalise(data.train_images[samples]).double())
        nn.functional.cross_entropy(scores, data.train_labels[samples]).backward()
        optimiser.step()
    return (job.start.double() - layout.read(model)) / lr


@every_model
@every_path
def test_together_is_one_after_another(name: str, path: Any) -> None:
    module, data = problem(name)
    for precision, dtype, tolerance in [
        ("float64", torch.float64, 1e-10),
        ("float32", torch.float32, 2e-3),
    ]:
        jobs = jobs_of(ParameterLayout(module).read(module).to(dtype), 5)
        starts = [job.start.clone() for job in jobs]
        clients = opened(module, data, path, precision)
        try:
            clients.train(jobs, LR)
        finally:
            clients.close()
        for job, start in zip(jobs, starts, strict=True):
            expected = naive(module, data, job, LR)
            assert expected.abs().max() > 0.1
            assert (job.out.double() - expected).abs().max() <= tolerance
            assert torch.equal(job.start, start)


@every_path
def test_many_clients_one_client_and_none(path: Any) -> None:
    module, data = problem("mlp")
    row = ParameterLayout(module).read(module).double()
    clients = opened(module, data, path)
    for n in (37, 16, 1, 0):
        jobs = jobs_of(row, n, steps=1, seed=n)
        clients.train(jobs, LR)
        for job in jobs:
            assert (job.out - naive(module, data, job, LR)).abs().max() <= 1e-10
    assert clients.count_correct([]).tolist() == []
    clients.close()


@every_path
def test_jobs_may_share_their_start(path: Any) -> None:
    module, data = problem("small-cnn")
    row = ParameterLayout(module).read(module).double()
    kept = row.clone()
    jobs = [TrainingJob(row, job.batches, job.out) for job in jobs_of(row, 4)]
    clients = opened(module, data, path)
    clients.train(jobs, LR)
    clients.close()
    assert torch.equal(row, kept)
    for job in jobs:
        assert (job.out - naive(module, data, job, LR)).abs().max() <= 1e-10


@every_path
@pytest.mark.parametrize("name", ["mlp", "small-cnn"])
def test_workers_change_no_bit(name: str, path: Any) -> None:
    module, data = problem(name)
    found = []
    for workers in (1, 2, 3):
        jobs = jobs_of(ParameterLayout(module).read(module), 11)
        clients = opened(module, data, path, "float32", workers)
        clients.train(jobs, LR)
        counts = clients.count_correct([Trial(job.start, job.batches[0]) for job in jobs])
        exam = clients.examine(jobs[0].start)
        found.append((torch.stack([job.out for job in jobs]), counts, exam.loss, exam.correct))
        clients.close()
    for other in found[1:]:
        assert torch.equal(other[0], found[0][0])
        assert other[1].tolist() == found[0][1].tolist()
        assert other[2] == found[0][2]
        assert other[3].tolist() == found[0][3].tolist()


@every_model
@every_path
def test_correct_answers_are_counted(name: str, path: Any) -> None:
    """Of unequal numbers of samples, some of them sample 0, which also fills up."""
    module, data = problem(name)
    row = ParameterLayout(module).read(module).double()
    rng = np.random.default_rng(0)
    held = [
        np.zeros(1, np.int64),
        np.array([0, 0, 5]),
        *(rng.integers(0, 60, n) for n in (9, 1, 23)),
    ]
    rows = [row + 0.3 * torch.from_numpy(rng.normal(size=len(row))) for _ in held]
    clients = opened(module, data, path)
    found = clients.count_correct([Trial(*pair) for pair in zip(rows, held, strict=True)])
    clients.close()
    assert found.dtype == np.int64
    model, layout, expected = copy.deepcopy(module).double(), ParameterLayout(module), []
    for weights, samples in zip(rows, held, strict=True):
        layout.write(weights, model)
        with torch.no_grad():
            answers = model(data.normalise(data.train_images[samples]).double()).argmax(1)
        expected.append(int((answers == data.train_labels[samples]).sum()))
    assert found.tolist() == expected
    assert 0 < sum(expected) < sum(map(len, held))


@every_model
@every_path
def test_the_exam(name: str, path: Any) -> None:
    module, data = problem(name)
    clients = opened(module, data, path)
    row = ParameterLayout(module).read(module).double()
    found = clients.examine(row)
    clients.train(jobs_of(row, 3), LR)  # which changes nothing for the next
    assert clients.examine(row).loss == found.loss
    clients.close()
    with torch.no_grad():
        scores = copy.deepcopy(module).double()(data.normalise(data.test_images).double())
    loss = nn.functional.cross_entropy(scores, data.test_labels)
    right = data.test_labels[scores.argmax(1) == data.test_labels]
    assert found.loss == pytest.approx(float(loss), abs=1e-12)
    assert found.correct.tolist() == torch.bincount(right, minlength=3).tolist()


@every_path
def test_a_job_that_diverges_harms_no_other(path: Any) -> None:
    module, data = problem("mlp")
    row = ParameterLayout(module).read(module).double()
    jobs = jobs_of(row, 6)
    jobs[2].start.fill_(float("nan"))
    jobs[3].start.fill_(1e300)
    clients = opened(module, data, path)
    clients.train(jobs, LR)
    clients.close()
    for number, job in enumerate(jobs):
        if number not in (2, 3):
            assert (job.out - naive(module, data, job, LR)).abs().max() <= 1e-10
    assert not torch.isfinite(jobs[2].out).all()


class Odd(nn.Module):
    """Decides by the numbers it sees, which cannot be done for several clients at once."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores = self.dense(images.flatten(1))
        return scores if float(scores.detach().sum()) > 0 else 2 * scores


def test_what_cannot_be_stacked_goes_on_threads() -> None:
    data = problem("mlp")[1]
    with pytest.raises(
        ParameterError, match=r"model cannot be stacked, Odd fails: .*path='threads'"
    ):
        opened(Odd(), data, "stacked")
    for path in ("auto", "threads"):
        module = Odd()
        clients = opened(module, data, path)
        jobs = jobs_of(ParameterLayout(module).read(module).double(), 3)
        clients.train(jobs, LR)
        clients.close()
        for job in jobs:
            assert (job.out - naive(module, data, job, LR)).abs().max() <= 1e-10


class Tied(nn.Module):
    """One matrix used twice, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.square = nn.Linear(16, 16, bias=False)
        self.again = self.square
        self.last = nn.Linear(16, 3)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.again(torch.tanh(self.square(images.flatten(1)))))
        return self.scale * self.last(hidden)


@every_path
@pytest.mark.parametrize(
    "module",
    [
        Tied(),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 4, bias=False), nn.Tanh(), nn.Linear(4, 3)),
        nn.Sequential(
            nn.Conv2d(1, 4, 1), nn.GELU(), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 3)
        ),
        nn.Sequential(nn.Conv2d(1, 4, 3, groups=1, bias=False), nn.Flatten(), nn.Linear(16, 3)),
    ],
    ids=["tied", "dense", "norm", "conv"],
)
def test_modules_of_ones_own(module: nn.Module, path: Any) -> None:
    data = problem("mlp")[1]
    clients = opened(module, data, path)
    jobs = jobs_of(ParameterLayout(module).read(module).double(), 4)
    clients.train(jobs, LR)
    clients.close()
    for job in jobs:
        assert (job.out - naive(module, data, job, LR)).abs().max() <= 1e-10


def test_dense_modules_are_told_from_others() -> None:
    assert is_dense(nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU()))
    assert not is_dense(nn.Sequential(nn.Conv2d(1, 1, 3)))
    assert not is_dense(nn.Sequential(nn.Flatten(2), nn.Linear(4, 2)))
    assert not is_dense(nn.Linear(4, 2))


# ------------------------------------------------------------------------------ layout, devices


@every_model
def test_a_row_holds_every_parameter_once(name: str) -> None:
    module, _ = problem(name)
    layout = ParameterLayout(module)
    assert layout.size == sum(weights.numel() for weights in module.parameters())
    row = torch.arange(float(layout.size))
    views = layout.views(row)
    numbers = torch.cat([view.flatten() for view in views.values()])
    assert torch.equal(numbers.sort().values, row)
    for key, weights in module.named_parameters():
        assert views[key].shape == weights.shape
        if weights.ndim == 4:  # channels last
            assert views[key].is_contiguous(memory_format=torch.channels_last)
    other = copy.deepcopy(module)
    layout.write(row, other)
    assert torch.equal(layout.read(other), row)
    layout.lend(row, other)
    row.zero_()
    assert not any(weights.any() for weights in other.parameters())
    with pytest.raises(ParameterError, match="parameters, got"):
        layout.views(row[1:])


def test_devices() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in ("cpu", "cuda")
    assert name_device(torch.device("cpu")) == "cpu"
    for name in ("", "gpu", "cuda:999", "cpu:x"):
        with pytest.raises(ParameterError, match="device must be 'auto', 'cpu' or a GPU"):
            pick_device(name)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_cpu_does_not_do_what_may_crash_it(precision: Any) -> None:
    module, data = problem("mlp")
    with pytest.raises(ParameterError, match="for GPUs, the device is 'cpu'"):
        opened(module, data, "auto", precision)
