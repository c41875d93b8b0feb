"""Any module over many clients' parameters: what autograd gives each client by itself."""

import copy
import functools
import logging

import pytest
import torch
from torch import nn

from freshband.federated.clients._base import ParameterLayout
from freshband.federated.clients.gpu._layers import Arena
from freshband.federated.clients.gpu._mapped import MappedModel
from freshband.federated.data import load_dataset
from freshband.federated.models import build_model

CLIENTS, LR = 3, 0.1

ODD = nn.Sequential(
    nn.Conv2d(3, 6, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2)),
    nn.Tanh(),
    nn.Conv2d(6, 6, 3, padding="same"),
    nn.Conv2d(6, 4, 1, groups=2),
    nn.Conv2d(4, 5, 3, padding=1, padding_mode="circular"),
    nn.Flatten(),
    nn.LazyLinear(10),
)


@pytest.fixture(scope="module")
def dataset():
    return load_dataset("synthetic", seed=3, shape=(3, 8, 8), n_train=64, n_test=10)


def _module(name, dataset):
    if name == "odd":
        ODD(torch.zeros(1, 3, 8, 8))
        return copy.deepcopy(ODD)
    params = {"cnn8": {"widths": (8, 8, 8), "hidden": 8}, "resnet18": {"width": 8}}.get(name, {})
    return build_model(name, dataset.shape, dataset.n_classes, seed=1, **params)


class _Case:
    def __init__(self, name, dataset, batch=8):
        torch.manual_seed(0)
        self.dataset = dataset
        self.module = _module(name, dataset)
        self.layout = ParameterLayout(self.module)
        self.rows = self.layout.read(self.module) + 0.05 * torch.randn(CLIENTS, self.layout.size)
        self.samples = torch.randint(0, 64, (CLIENTS, 2, batch))

    def mapped(self, **options):
        module = copy.deepcopy(self.module)
        return MappedModel(module, self.layout, self.dataset, torch.float64, CLIENTS, **options)

    def arena(self):
        lr, count = torch.tensor([LR]), torch.tensor([CLIENTS])
        return Arena(self.rows.clone(), torch.zeros(CLIENTS, 0), count, lr, 8)

    def trained(self, model):
        arena = self.arena()
        model.train(arena, self.dataset.train_images, self.dataset.train_labels, self.samples)
        return arena.rows

    def wanted(self):
        """Train each client by itself, in float64."""
        found = []
        for row, batches in zip(self.rows, self.samples, strict=True):
            module = copy.deepcopy(self.module).double()
            self.layout.write(row, module)
            for some in batches:
                images = self.dataset.normalise(self.dataset.train_images[some]).double()
                loss = nn.functional.cross_entropy(module(images), self.dataset.train_labels[some])
                back = torch.autograd.grad(loss, list(module.parameters()))
                with torch.no_grad():
                    for weights, gradient in zip(module.parameters(), back, strict=True):
                        weights -= LR * gradient
            found.append(self.layout.read(module))
        return torch.stack(found)


def _check(rows, case):
    wanted = case.wanted()
    assert (rows - wanted).norm() / (wanted - case.rows).norm() < 1e-5


@pytest.mark.parametrize("name", ["cnn8", "resnet18", "odd"])
def test_clients_train_as_each_by_itself(name, dataset):
    case = _Case(name, dataset)
    model = case.mapped(compiled=False)
    _check(case.trained(model), case)
    scores = model.score(case.arena(), dataset.train_images, case.samples)
    for row, found, some in zip(case.rows, scores, case.samples[:, 0], strict=True):
        case.layout.write(row, case.module)
        with torch.no_grad():
            wanted = case.module(dataset.normalise(dataset.train_images[some]))
        assert torch.allclose(found, wanted, atol=1e-4)


def test_one_graph_holds_the_whole_step(dataset, monkeypatch):
    """The compiler's own backend needs minutes; what it would be given is run as it is."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    case = _Case("small-cnn", dataset)
    model = case.mapped()
    _check(case.trained(model), case)
    assert model._sizes == {8}  # it did not fall back


def test_what_cannot_be_compiled_trains_all_the_same(dataset, monkeypatch, caplog):
    def refuse(*step):
        raise NotImplementedError("no such kernel\nand a long trace")

    monkeypatch.setattr(torch, "compile", lambda function, **options: refuse)
    case = _Case("small-cnn", dataset)
    with caplog.at_level(logging.WARNING):
        _check(case.trained(case.mapped()), case)
    message = "Sequential cannot be compiled and trains more slowly: no such kernel"
    assert [record.message for record in caplog.records] == [message]


def test_few_batch_sizes_are_compiled(dataset, monkeypatch):
    """Clients with few samples have batches of many sizes, and compiling takes minutes."""
    compiled = []

    def compile_(function, **options):
        def run(*step):
            compiled.append(step[2].shape[1])
            function(*step)

        return run

    monkeypatch.setattr(torch, "compile", compile_)
    model = _Case("small-cnn", dataset).mapped()
    for batch in (8, 7, 6, 5, 4, 3, 8):
        case = _Case("small-cnn", dataset, batch)
        _check(case.trained(model), case)
    assert compiled == [8, 8, 7, 7, 6, 6, 5, 5, 8, 8]  # two steps each
