"""The round with model updates riding on it, one client after another, as the paper reads.

Models are dictionaries of parameters in float64, every client has a module of its own, who left
whom out is computed by leaving it out. Data, partition, batches, air and channel plans are the
package's own: they have their own tests.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from freshband.channels.base import open_air
from freshband.coordinator import Coordinator
from freshband.federated import build_model, load_dataset, split_samples
from freshband.federated.batches import Batches

Weights = dict[str, torch.Tensor]  # a model, an update or a gradient, by name of parameter


DEFAULTS = {
    "server_lr": 1.0, "mixing": 0.6, "staleness": "polynomial", "staleness_a": 0.5,
    "staleness_b": 4.0, "buffer_size": 10, "loo": "global_minus", "cold_start": "mean",
    "error_samples": None,
}  # fmt: skip


def read_options(settings: Any) -> SimpleNamespace:
    """The options of rule, wrappers and valuation, all in one."""
    rule, *wrappers = settings.algorithm.split("+")
    rounds = 4 if "eager" in wrappers else 1
    weighting = "renorm" if rule == "fedavg" else None
    given = {**settings.algorithm_options, **settings.valuation_options}
    return SimpleNamespace(**{**DEFAULTS, "local_rounds": rounds, "weighting": weighting, **given})


class Client:
    """What a client knows, and what the server knows of it."""

    def __init__(self, zeros: Weights) -> None:
        self.update = zeros  # pending
        self.model = zeros  # the one that goes with it
        self.began = 0  # which of the server's models it was trained from
        self.error = 1.0  # travels with the update
        self.lengths: list[float] = []  # of all updates that arrived
        self.age = 1
        self.worked = 0  # rounds, on the model it received last
        self.server_update: Weights | None = None  # what last arrived
        self.server_model: Weights | None = None
        self.server_error = 1.0


class SlowFederation:
    """Plays a `Training`; `step` returns what a `RoundRecord` must say."""

    def __init__(
        self,
        settings: Any,
        *,
        dataset: Any = None,
        model: Any = None,
        channels: Any = None,
        partition: Any = None,
        alter_update: Callable[[int, int, Weights], Weights | None] | None = None,
    ) -> None:
        s = self.settings = settings
        self.rule, *_ = settings.algorithm.split("+")
        self.options = read_options(settings)
        self.alter = alter_update
        self.data = dataset or load_dataset(s.dataset, seed=s.seed, run=s.run, **s.dataset_options)
        self.data = self.data.hold_out(s.held_out)
        self.partition = partition or split_samples(
            self.data.train_labels, s.clients, scheme=s.partition, val_fraction=s.val_fraction,
            seed=s.seed, run=s.run, **s.partition_options,
        )  # fmt: skip
        module = model if model is not None else s.model
        built = build_model(
            module, self.data.shape, self.data.n_classes, s.seed, s.run, **s.model_options
        )
        self.module = copy.deepcopy(built).double()
        channels = channels or s.build_channels()
        self.air = open_air(channels, s.rounds, s.seed, s.run)
        self.coordinator = Coordinator(
            s.build_policy(), s.clients, channels.n_channels, s.seed, run=s.run, horizon=s.rounds
        )
        self.batches = Batches(s.seed, s.run, s.local_steps, s.batch_size)
        self.versions = [weights_of(self.module)]  # every model the server ever had
        zeros = {name: torch.zeros_like(value) for name, value in self.versions[0].items()}
        self.clients = [Client(zeros) for _ in range(s.clients)]
        sizes = [len(held) for held in self.partition.train]
        self.zeta = [1 / s.clients] * s.clients
        if s.weights == "size":
            self.zeta = [size / sum(sizes) for size in sizes]
        self.contributions = [1.0] * s.clients
        self.fedce_rounds: list[list[float]] = []
        self.buffer: list[tuple[float, Weights]] = []  # of fedbuff: discount and update
        self.last = set(range(s.clients))  # S_0 is everybody
        self.t = 0
        self.spreads: list[float] = []  # of ages, round by round
        self.oldest: list[int] = []

    @property
    def model(self) -> Weights:
        return self.versions[-1]

    def step(self) -> SimpleNamespace:
        s, self.t = self.settings, self.t + 1
        training = set(range(s.clients)) if self.rule == "fedavg" else self.last
        further = [
            m
            for m in sorted(set(range(s.clients)) - training)
            if self.clients[m].worked < self.options.local_rounds
        ]
        for m in sorted(training):
            self.receive(m)
        for m in [*sorted(training), *further]:
            self.train(m)
        valued = s.contribution_rule is not None
        wanted = self.coordinator.policy.needs_contributions
        priorities = self.priorities() if wanted else [math.nan] * s.clients
        plan = self.coordinator.plan(self.contributions if wanted else None)
        good = self.air.block(1).states[0]
        arrived = [m for m in range(s.clients) if good[plan[m]]]
        finite = [m for m in arrived if self.measure(m)]
        refused = {m for m in arrived if m not in finite or not self.accept(m)}
        delivered = [m for m in arrived if m not in refused]
        late = {m: len(self.versions) - 1 - self.clients[m].began for m in delivered}
        zeta = list(self.zeta)
        steps = self.aggregate(delivered, late)
        for m, client in enumerate(self.clients):
            client.age = 1 if m in delivered else client.age + 1
        self.coordinator.observe(
            [m in delivered for m in range(s.clients)],
            teaches=[m not in refused for m in range(s.clients)],
        )
        if valued:
            self.value(delivered)
        self.last = set(delivered) | refused
        mean = sum(client.age for client in self.clients) / s.clients
        number = sum(value.numel() for value in self.model.values()) * 8 + 8 * valued
        accuracy, loss, by_client = self.examine()
        spread = math.sqrt(
            sum((a - sum(by_client) / s.clients) ** 2 for a in by_client) / s.clients
        )
        nothing = [math.nan] * s.clients
        return SimpleNamespace(
            round=self.t,
            accuracy=accuracy,
            loss=loss,
            client_accuracy=by_client,
            accuracy_spread=spread,
            ages=[client.age for client in self.clients],
            variance=sum((client.age - mean) ** 2 for client in self.clients) / s.clients,
            assignment=plan.tolist(),
            delivered=[m in delivered for m in range(s.clients)],
            refused=[m in refused for m in range(s.clients)],
            staleness=[late.get(m, -1) for m in range(s.clients)],
            weights=zeta,
            steps=[steps.get(m, 0.0) for m in range(s.clients)],
            contributions=list(self.contributions) if valued else nothing,
            errors=[client.server_error for client in self.clients] if valued else nothing,
            priorities=priorities,
            channel_means=self.coordinator.channel_means,
            trained=len(training) + len(further),
            bytes_up=number * s.clients,
            bytes_down=number * len(training),
        )

    # -------------------------------------------------------------------------------- clients

    def receive(self, m: int) -> None:
        """Receive the model and try it without oneself."""
        client = self.clients[m]
        if self.settings.contribution_rule is not None:
            client.error = self.error_without(m)
        client.began = len(self.versions) - 1
        client.model, client.worked = self.model, 0

    def train(self, m: int) -> None:
        """Make E steps of (5) from where one is; the update is the whole way from the start."""
        s, client = self.settings, self.clients[m]
        client.worked += 1
        module = copy.deepcopy(self.module)
        module.load_state_dict(client.model)
        optimiser = torch.optim.SGD(module.parameters(), lr=s.client_lr)
        for samples in self.batches.draw(self.partition.train[m], round=self.t, client=m):
            optimiser.zero_grad()
            images = self.data.normalise(self.data.train_images[samples]).double()
            nn.functional.cross_entropy(module(images), self.data.train_labels[samples]).backward()
            optimiser.step()
        client.model = weights_of(module)
        start = self.versions[client.began]
        client.update = {
            name: (value - client.model[name]) / s.client_lr for name, value in start.items()
        }

    def error_without(self, m: int) -> float:
        s, samples = self.settings, self.partition.val[m]
        samples = samples[: self.options.error_samples or max(1, s.local_steps * s.batch_size // 2)]
        module = copy.deepcopy(self.module)
        module.load_state_dict(self.model_without(m))
        with torch.no_grad():
            answers = module(self.data.normalise(self.data.train_images[samples]).double())
        wrong = 0
        for scores, label in zip(answers, self.data.train_labels[samples], strict=True):
            wrong += int(scores.argmax()) != int(label)
        return wrong / len(samples)

    def model_without(self, m: int) -> Weights:
        """Equation (42); a client never heard has no part in the model."""
        own, zeta, form = self.clients[m].server_model, self.zeta[m], self.options.loo
        if own is None or zeta == 1.0:
            return self.model
        if form == "global_minus":
            return {n: (w - zeta * own[n]) / (1 - zeta) for n, w in self.model.items()}
        if form == "literal":
            return {n: (1 - zeta * own[n]) / (1 - zeta) for n in self.model}
        others = {n: torch.zeros_like(w) for n, w in self.model.items()}
        for j, client in enumerate(self.clients):
            if j != m:
                held = client.server_model or self.model
                others = {n: others[n] + self.zeta[j] * held[n] / (1 - zeta) for n in others}
        return others

    # -------------------------------------------------------------------------------- server

    def measure(self, m: int) -> bool:
        """Note the length of what arrived; return whether it is finite."""
        client = self.clients[m]
        altered = None if self.alter is None else self.alter(self.t, m, client.update)
        client.update = client.update if altered is None else altered
        length = self.settings.client_lr * math.sqrt(float(dot(client.update, client.update)))
        client.lengths += [length] if math.isfinite(length) else []
        return math.isfinite(length)

    def accept(self, m: int) -> bool:
        """Refuse an update much longer than others; shorten it if it is too long."""
        s, client = self.settings, self.clients[m]
        last = [each.lengths[-5:] for each in self.clients if any(each.lengths[-5:])]
        lengths = sorted(
            max(sorted(length for length in each if length > 0)[-2:][0], each[-1]) for each in last
        )
        usual = math.sqrt(float(dot(self.model, self.model)))
        if len(lengths) >= 3:
            usual = lengths[(len(lengths) - 1) // 2]
        elif usual == 0 and lengths:
            usual = lengths[0]
        if s.length_limit and client.lengths[-1] > s.length_limit * usual:
            return False
        if s.clip_norm is not None and client.lengths[-1] > s.clip_norm:
            short = s.clip_norm / client.lengths[-1]
            client.update = {n: value * short for n, value in client.update.items()}
        began = self.versions[client.began]
        client.model = {n: began[n] - s.client_lr * value for n, value in client.update.items()}
        return True

    def aggregate(self, delivered: list[int], late: dict[int, int]) -> dict[int, float]:
        """Make the server's next model; return what each update was multiplied with."""
        s, o, model, steps = self.settings, self.options, self.model, {}
        if self.rule == "fedbuff":
            for m in delivered:
                share = self.discount(late[m])
                steps[m] = o.server_lr * s.client_lr * share / o.buffer_size
                self.buffer.append((share, self.clients[m].update))
                if len(self.buffer) == o.buffer_size:
                    mean = {
                        n: sum(share * update[n] for share, update in self.buffer) / o.buffer_size
                        for n in model
                    }
                    model = {n: w - o.server_lr * s.client_lr * mean[n] for n, w in model.items()}
                    self.versions.append(model)
                    self.buffer = []
            return steps
        for m in delivered:
            client = self.clients[m]
            if self.rule == "fedasync":
                steps[m] = o.mixing * self.discount(late[m])
                model = {
                    n: (1 - steps[m]) * w + steps[m] * client.model[n] for n, w in model.items()
                }
                continue
            total, equal = sum(self.zeta[j] for j in delivered), 1 / len(delivered)
            steps[m] = (
                o.server_lr
                * {
                    "renorm": s.client_lr * (self.zeta[m] / total if total else equal),
                    "mean_one": s.client_lr * s.clients * self.zeta[m] / len(delivered),
                    "uniform": s.client_lr / len(delivered),
                    "fixed": s.client_lr * self.zeta[m],
                    "literal": self.zeta[m] / len(delivered),
                }[o.weighting or self.rule]
            )
            model = {n: w - steps[m] * client.update[n] for n, w in model.items()}
        self.versions.append(model)
        return steps

    def discount(self, late: int) -> float:
        o = self.options
        if o.staleness == "polynomial":
            return float((1 + late) ** -o.staleness_a)
        if o.staleness == "hinge" and late > o.staleness_b:
            return float(1 / (o.staleness_a * (late - o.staleness_b) + 1))
        return 1.0

    def value(self, delivered: list[int]) -> None:
        """Equations (33), (34) and (43), from what ever arrived."""
        s = self.settings
        for m in delivered:
            client = self.clients[m]
            client.server_update, client.server_model = client.update, client.model
            client.server_error = client.error
        heard = [m for m, client in enumerate(self.clients) if client.server_update is not None]
        worth = {m: self.distance(m) * self.clients[m].server_error for m in heard}
        if s.contribution_rule == "fedce":
            self.fedce_rounds.append(self.fedce(heard))
            worth = {m: sum(each[m] for each in self.fedce_rounds) / self.t for m in heard}
        known = list(worth.values())
        if not known:
            made_up = 0.0 if self.options.cold_start == "zero" else 1.0
        else:
            made_up = {"mean": sum(known) / len(known), "max": max(known), "zero": 0.0}[
                self.options.cold_start
            ]
        self.contributions = [worth.get(m, made_up) for m in range(s.clients)]
        if s.weights == "contribution":
            total = sum(self.contributions)
            self.zeta = [c / total if total else 1 / s.clients for c in self.contributions]

    def distance(self, m: int) -> float:
        """Equation (34): one minus the cosine of m's gradient and that of all others."""
        own, zeta = self.clients[m].server_update, self.zeta[m]
        assert own is not None
        if zeta == 1.0 and self.options.loo != "literal":
            return 0.0  # there is nobody else
        rest = {n: torch.zeros_like(value) for n, value in own.items()}
        for j, client in enumerate(self.clients):
            if client.server_update is not None and j != m:
                for n in rest:
                    rest[n] = rest[n] + self.zeta[j] * client.server_update[n]
        if self.options.loo == "literal":
            rest = {n: 1 - zeta * value for n, value in own.items()}
        lengths = math.sqrt(float(dot(own, own) * dot(rest, rest)))
        return 1 - float(dot(own, rest)) / lengths if lengths > 0 else 1.0

    def fedce(self, heard: list[int]) -> list[float]:
        distances = {m: self.distance(m) for m in heard}
        errors = {m: self.clients[m].server_error for m in heard}
        product = {}
        for m in heard:
            product[m] = 1.0
            for factor in (distances, errors):
                total = sum(factor.values())
                share = factor[m] / total if total > 0 else 1 / len(self.clients)
                product[m] *= max(share, 0.001)
        total = sum(product.values())
        return [product.get(m, 0.0) / total if total else 0.0 for m in range(len(self.clients))]

    def priorities(self) -> list[float]:
        """Equations (36) to (40), with contributions as shares of their sum."""
        ages = [client.age for client in self.clients]
        mean = sum(ages) / len(ages)
        spread = sum((age - mean) ** 2 for age in ages)
        self.spreads.append(spread)
        self.oldest.append(max(ages))
        rule = self.coordinator.policy.matching
        window = rule.norm_window or len(self.spreads)
        most_spread, oldest = max(self.spreads[-window:]), max(self.oldest[-window:])
        beta = rule.beta * spread / most_spread if most_spread > 0 else 0.0
        total = sum(self.contributions)
        shares = [c / total if total else 1 / len(ages) for c in self.contributions]
        return [
            (1 - beta) * share + beta * age / oldest
            for share, age in zip(shares, ages, strict=True)
        ]

    # -------------------------------------------------------------------------------- looking

    def examine(self) -> tuple[float, float, list[float]]:
        module = copy.deepcopy(self.module)
        module.load_state_dict(self.model)
        n_classes, labels = self.data.n_classes, self.data.test_labels.tolist()
        right, there, loss = [0] * n_classes, [0] * n_classes, 0.0
        with torch.no_grad():
            scores = module(self.data.normalise(self.data.test_images).double())
        for row, label in zip(scores, labels, strict=True):
            loss -= float(row[label] - torch.logsumexp(row, 0)) / len(labels)
            there[label] += 1
            right[label] += int(row.argmax()) == label
        by_client = []
        for m in range(self.settings.clients):
            held = [*self.partition.train[m], *self.partition.val[m]]
            known = [c for c in self.data.train_labels[held].tolist() if there[c]]
            expected = [right[c] / there[c] for c in known]
            by_client.append(sum(expected) / len(expected) if expected else math.nan)
        return sum(right) / len(labels), loss, by_client


def weights_of(module: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def dot(a: Weights, b: Weights) -> torch.Tensor:
    return sum(((a[name] * b[name]).sum() for name in a), torch.zeros((), dtype=torch.float64))
