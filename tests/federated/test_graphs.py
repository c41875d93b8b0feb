"""The GPU path: same results as the sequential loop, whichever way and however many clients."""

import importlib.util

import numpy as np
import pytest
import torch
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.clients._base import ParameterLayout, TrainingJob, Trial
from freshband.federated.clients._threads import ThreadedClients
from freshband.federated.clients.gpu._stacking import UnsupportedModuleError
from freshband.federated.clients.gpu.graphs import GraphedClients, _stack
from freshband.federated.data import load_dataset
from freshband.federated.models import build_model

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

LR = 0.02
# Of an update's norm: what float32, 10 and 7 bits of factors leave. ReLU and pooling turn a last
# bit into another pixel's gradient, so little is much; torch's own kernels are as far off.
TOLERANCE = {"float32": 1e-3, "tf32": 8e-2, "bf16": 0.15}


def _dataset(shape=(3, 16, 16), device="cuda"):
    return load_dataset("synthetic", seed=3, shape=shape, n_train=600, n_test=130).to(device)


def _model(name, dataset, **params):
    return build_model(name, dataset.shape, dataset.n_classes, seed=1, **params)


def _jobs(layout, starts, seed=0, steps=4, batch=16):
    rng = np.random.default_rng(seed)
    return [
        TrainingJob(start, rng.integers(0, 600, (steps, batch)), torch.full_like(start, torch.nan))
        for start in starts
    ]


def _loop(module, dataset, jobs):
    """Train the jobs in float64 on the CPU."""
    clients = ThreadedClients(module.double().cpu(), dataset.to("cpu"), 2)
    outs = [torch.zeros_like(job.out, dtype=torch.float64, device="cpu") for job in jobs]
    clients.train(
        [
            TrainingJob(job.start.double().cpu(), job.batches, out)
            for job, out in zip(jobs, outs, strict=True)
        ],
        LR,
    )
    clients.close()
    return outs


def _distance(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


MODELS = {
    "cnn8": {"widths": (16, 32, 64), "hidden": 32},
    "resnet18": {"width": 16},
    "small-cnn": {"widths": (16, 16)},
}


@pytest.fixture
def uncompiled(monkeypatch):
    """Compilation fails at once, which saves the minutes it takes."""

    def refuse(*step):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **options: refuse)


@needs_gpu
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("way", "precision"),
    [
        ("kernels", "tf32"),
        ("kernels", "bf16"),
        ("mapped", "float32"),
        ("mapped", "tf32"),
        ("mapped", "bf16"),
    ],
)
def test_updates_are_those_of_the_sequential_loop(name, way, precision):
    dataset = _dataset()
    module = _model(name, dataset, **MODELS[name])
    clients = GraphedClients(module.cuda(), dataset, precision, way=way)
    assert clients.way == way
    row = clients.layout.read(module)
    starts = [row, row, row + 0.01 * torch.randn_like(row), row, row]
    jobs = _jobs(clients.layout, starts)
    clients.train(jobs, LR)
    outs = [job.out.double().cpu() for job in jobs]
    wanted = _loop(module, dataset, jobs)
    for out, want in zip(outs, wanted, strict=True):
        assert _distance(out, want) < TOLERANCE[precision]
    clients.close()


@needs_gpu
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_a_compiled_module_trains_the_same():
    dataset = _dataset()
    module = _model("small-cnn", dataset, **MODELS["small-cnn"])
    clients = GraphedClients(module.cuda(), dataset, "tf32", way="mapped")
    jobs = _jobs(clients.layout, [clients.layout.read(module)] * 5)
    clients.train(jobs, LR)
    for job, want in zip(jobs, _loop(module, dataset, jobs), strict=True):
        assert _distance(job.out.double().cpu(), want) < TOLERANCE["tf32"]
    assert clients._model._sizes == {16}  # it was compiled
    clients.close()


@needs_gpu
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_as_exact_as_torch(name):
    dataset = _dataset()
    module = _model(name, dataset, **MODELS[name])
    found = {}
    for way, precision in (("kernels", "tf32"), ("kernels", "bf16"), ("mapped", "bf16")):
        clients = GraphedClients(module.cuda(), dataset, precision, way=way)
        jobs = _jobs(clients.layout, [clients.layout.read(module)] * 6, steps=1)
        clients.train(jobs, LR)
        found[way, precision] = torch.stack([job.out.double().cpu() for job in jobs])
        clients.close()
    wanted = torch.stack(_loop(module, dataset, jobs))
    off = {key: _distance(updates, wanted) for key, updates in found.items()}
    assert off["kernels", "bf16"] < 1.5 * off["mapped", "bf16"]
    assert off["kernels", "tf32"] < 0.7 * off["kernels", "bf16"]


@needs_gpu
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("way", ["kernels", "mapped"])
def test_a_client_does_not_notice_who_else_trains(way):
    dataset = _dataset()
    module = _model("cnn8", dataset, **MODELS["cnn8"]).cuda()
    clients = GraphedClients(module, dataset, "bf16", way=way, together=6)
    row = clients.layout.read(module)
    jobs = _jobs(clients.layout, [row] * 15)
    clients.train(jobs, LR)  # three batches, the last half full
    for some in (jobs[:1], jobs[3:8], jobs[14:]):
        again = [
            TrainingJob(job.start, job.batches, torch.full_like(job.out, torch.nan)) for job in some
        ]
        clients.train(again, LR)
        for old, new in zip(some, again, strict=True):
            assert torch.equal(old.out, new.out)
    clients.close()


@needs_gpu
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(("way", "precision"), [("kernels", "tf32"), ("mapped", "float32")])
def test_trials_and_exams_are_those_of_the_threads(way, precision):
    dataset = _dataset()
    module = _model("cnn8", dataset, **MODELS["cnn8"])
    clients = GraphedClients(module.cuda(), dataset, precision, way=way)
    rng = np.random.default_rng(5)
    row = clients.layout.read(module)
    models = [row + 0.02 * torch.randn_like(row) for _ in range(5)]
    sizes = (1, 40, 300, 160, 599)
    trials = [
        Trial(model, rng.choice(600, size, replace=False))
        for model, size in zip(models, sizes, strict=True)
    ]
    slow = ThreadedClients(module.cpu(), dataset.to("cpu"), 2)
    wanted = slow.count_correct([Trial(trial.model.cpu(), trial.samples) for trial in trials])
    # two scores may be closer than tf32 tells apart
    assert np.all(np.abs(clients.count_correct(trials) - wanted) <= 1 + np.array(sizes) // 100)
    exam, want = clients.examine(models[0]), slow.examine(models[0].cpu())
    assert exam.loss == pytest.approx(want.loss, rel=1e-2)
    assert np.abs(exam.correct - want.correct).sum() <= 2
    assert clients.count_correct([]).shape == (0,)
    slow.close()
    clients.close()


@needs_gpu
@pytest.mark.usefixtures("uncompiled")
def test_the_way_follows_from_module_and_precision():
    dataset = _dataset()
    cnn = _model("cnn8", dataset)
    odd = nn.Sequential(
        nn.Conv2d(3, 8, 5), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
    assert GraphedClients(cnn, dataset, "bf16").way == "kernels"
    assert GraphedClients(cnn, dataset, "float32").way == "mapped"
    assert GraphedClients(odd, dataset, "bf16").way == "mapped"
    with pytest.raises(ParameterError, match="way must be 'mapped' for Sequential"):
        GraphedClients(odd, dataset, "bf16", way="kernels")
    with pytest.raises(ParameterError, match="precision must be"):
        GraphedClients(cnn, dataset, "half")


def test_it_wants_the_data_on_a_gpu():
    dataset = _dataset(device="cpu")
    with pytest.raises(ParameterError, match="dataset must be on a GPU"):
        GraphedClients(_model("cnn8", dataset), dataset)


def test_kernels_say_what_they_need(monkeypatch):
    dataset = _dataset(device="cpu")
    module = _model("cnn8", dataset)
    layout = ParameterLayout(module)
    with pytest.raises(UnsupportedModuleError, match="the kernels multiply in tf32 or bf16"):
        _stack(module, layout, dataset, "float32")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedModuleError, match="Triton is not installed"):
        _stack(module, layout, dataset, "tf32")
