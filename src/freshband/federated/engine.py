"""The paper's round with local training in this process, one `RoundRecord` at a time.

Each round is the four steps of section II, with the scheduling between them:

1. the server sends its model to the clients whose update got through in the round before, at first
   to everybody; they measure the error of the model without their own part, and make E local steps,
2. the others keep the update they could not deliver and send it again,
3. the coordinator gives clients their channels, and an update on a good channel gets through,
4. the server applies what arrived; where nothing arrived the model stays as it is.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from freshband.channels.base import ChannelModel
from freshband.coordinator import Coordinator
from freshband.errors import FileError, ParameterError
from freshband.federated._own_things import check_own_things, check_settings
from freshband.federated._parts import parts_of
from freshband.federated._state import PendingUpdates, ServerState, copy_into
from freshband.federated.algorithms import Rule
from freshband.federated.batches import Batches
from freshband.federated.clients import choose_clients, pick_device
from freshband.federated.clients._base import (
    LocalTraining,
    ParameterLayout,
    TrainingJob,
    Trial,
    check_trainable,
)
from freshband.federated.data import Dataset, load_dataset
from freshband.federated.inspection import AlterUpdate
from freshband.federated.models import build_model
from freshband.federated.partition import Partition, split_samples
from freshband.federated.records import RoundRecord
from freshband.federated.server import FederatedServer, Plan
from freshband.federated.settings import Training
from freshband.federated.uplink import SimulatedUplink

__all__ = ["Federation", "train_together"]


class Federation:
    """M clients training one model over channels nobody can trust.

    Iterate over it for `RoundRecord`s, or call `step`.

    Parameters
    ----------
    settings : Training, optional
        What to run.
    dataset, model, channels, partition, algorithm : optional
        Objects of your own in place of what the settings name: a `Dataset`, an ``nn.Module`` with
        its initial weights, a channel model, a `Partition`, a server's `Rule`.
    clients : LocalTraining, optional
        A path to train on, shared with other federations of the same model and data set.
    alter_update : callable, optional
        ``alter_update(round, client, update)`` sees every update that gets through and may return
        another in its place: to study broken or malicious clients, quantisation, added noise.

    Examples
    --------
    >>> with Federation(Training(model="mlp", clients=4, rounds=3, policy="random")) as run:
    ...     records = list(run)
    >>> [record.round for record in records], records[0].trained
    ([1, 2, 3], 4)
    """

    def __init__(
        self,
        settings: Training | None = None,
        *,
        dataset: Dataset | None = None,
        model: nn.Module | None = None,
        channels: ChannelModel | None = None,
        partition: Partition | None = None,
        algorithm: Rule | None = None,
        clients: LocalTraining | None = None,
        alter_update: AlterUpdate | None = None,
    ) -> None:
        self.settings = chosen = check_settings(Training() if settings is None else settings)
        check_own_things(
            dataset=dataset, channels=channels, partition=partition, algorithm=algorithm,
            clients=clients, alter_update=alter_update,
        )  # fmt: skip
        self.channels = chosen.build_channels() if channels is None else channels
        fleet = chosen.build_fleet(self.channels)
        parts = parts_of(chosen, self.channels.n_channels, fleet)
        parts["algorithm"] = chosen.build_algorithm() if algorithm is None else algorithm
        device = pick_device(chosen.device)
        whole = (
            dataset
            if dataset is not None
            else load_dataset(
                chosen.dataset, seed=chosen.seed, run=chosen.run, **chosen.dataset_options
            )
        )
        whole = whole.hold_out(chosen.held_out)
        self.partition = partition if partition is not None else split_samples(
            whole.train_labels.cpu(), chosen.clients, scheme=chosen.partition,
            val_fraction=chosen.val_fraction, seed=chosen.seed, run=chosen.run,
            **chosen.partition_options,
        )  # fmt: skip
        _check_partition(self.partition, chosen, whole)
        self.dataset = whole if clients is None else getattr(clients, "dataset", whole)
        if not torch.equal(self.dataset.train_labels.cpu(), whole.train_labels.cpu()):
            raise ParameterError("clients must have been opened with the same data set")
        if self.dataset.train_images.device != device:
            self.dataset = whole.to(device)
        self._module = build_model(
            model if model is not None else chosen.model or whole.default_model,
            whole.shape, whole.n_classes, chosen.seed, chosen.run, **chosen.model_options,
        )  # fmt: skip
        check_trainable(self._module, whole.shape)
        self._owns_clients = clients is None
        self.clients = (
            choose_clients(self._module, self.dataset, chosen) if clients is None else clients
        )
        self._batches = Batches(chosen.seed, chosen.run, chosen.local_steps, chosen.batch_size)
        counts = self.partition.counts(whole.train_labels.cpu().numpy(), whole.n_classes)
        self._tastes = counts / counts.sum(axis=1, keepdims=True)  # (M, classes), shares
        self._uplink = SimulatedUplink(
            self.channels, chosen.rounds, chosen.seed, chosen.run,
            clients=chosen.clients, fleet=fleet,
        )  # fmt: skip
        self.server = self._open_server(alter_update=alter_update, **parts)
        self.pending = self._open_pending()
        self._plan: Plan | None = None
        self._further: dict[int, torch.Tensor] = {}  # what clients that wait add, by client

    def _open_server(self, **parts: Any) -> FederatedServer:
        chosen = self.settings
        dtype = torch.float64 if chosen.precision == "float64" else torch.float32
        model = ParameterLayout(self._module).read(self._module)
        model = model.to(device=self.dataset.train_images.device, dtype=dtype)
        return FederatedServer(
            model,
            client_lr=chosen.client_lr,
            payload=model.element_size() * len(model),
            weights=self.partition.sizes if chosen.weights == "size" else None,
            **parts,
        )

    def _open_pending(self) -> PendingUpdates:
        server, n_clients = self.server, self.settings.clients
        model = server.state.model
        paired = server.valuation is not None or server.algorithm.needs_models
        paired |= server.local_rounds > 1
        return PendingUpdates(
            updates=model.new_zeros(n_clients, len(model)),
            trained=model.new_zeros(n_clients if paired else 0, len(model)),
            downloaded=np.zeros(n_clients, np.int64),
            errors=np.ones(n_clients),
        )

    @property
    def state(self) -> ServerState:
        """What the server knows."""
        return self.server.state

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, which plans the rounds."""
        return self.server.coordinator

    # ------------------------------------------------------------------------------ a run

    @property
    def round(self) -> int:
        """The number of rounds done."""
        return self.state.round

    def __iter__(self) -> Iterator[RoundRecord]:
        while self.round < self.settings.rounds:
            yield self.step()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back threads and memory; records and the model stay."""
        if self._owns_clients:
            self.clients.close()

    def module(self) -> nn.Module:
        """Return a module with the weights the server hands out at present, on the CPU."""
        module = copy.deepcopy(self._module)
        ParameterLayout(module).write(self.server.served.cpu(), module)
        return module

    def step(self) -> RoundRecord:
        """Play one round."""
        began = time.perf_counter()
        with _one_thread():
            self.clients.train(self.begin(), self.settings.client_lr)
            return self.finish(began)

    def begin(self) -> list[TrainingJob]:
        """Plan a round and send the model out; return the local training this asks for."""
        server, pending = self.server, self.pending
        t = server.state.round + 1
        self._plan = plan = server.plan(self._uplink.present(t), *self._uplink.told(t))
        if server.valuation is not None:
            rest = server.valuation.models_without(
                server.state.model, server.state.weights, plan.receivers
            )
            pending.errors[plan.receivers] = self._errors_of(rest, plan.receivers)
        pending.downloaded[plan.receivers] = server.hand_out(plan.receivers.tolist())
        server.go_on(plan.further.tolist())
        model = server.state.model
        self._further = {client: torch.empty_like(model) for client in plan.further.tolist()}
        starts = [(client, model, pending.updates[client]) for client in plan.receivers.tolist()]
        starts += [(client, pending.trained[client], row) for client, row in self._further.items()]
        held, draw = self.partition.train, self._batches.draw
        return [
            TrainingJob(start, draw(held[client], round=plan.round, client=client), out)
            for client, start, out in starts
        ]

    def finish(self, began: float) -> RoundRecord:
        """Deliver what the clients trained; return what happened since the time ``began``."""
        server, pending, plan, lr = self.server, self.pending, self._plan, self.settings.client_lr
        assert plan is not None
        if len(pending.trained):
            for client in plan.receivers.tolist():
                row, trained = pending.updates[client], pending.trained[client]
                torch.sub(server.state.model, row, alpha=lr, out=trained)
        for client, further in self._further.items():
            pending.updates[client].add_(further)
            pending.trained[client].sub_(further, alpha=lr)
        everybody = np.ones(self.settings.clients, np.bool_)
        outcome = self._uplink.acknowledge(plan.round, plan.assignment, everybody)
        waiting = {client: pending.of(client) for client in range(self.settings.clients)}
        answered = self._uplink.answered(plan.round)
        record = server.finish(plan, outcome, waiting, answered=answered)
        found = self._examine(plan.round)
        return dataclasses.replace(record, **found, seconds=time.perf_counter() - began)

    def _errors_of(self, models: torch.Tensor, who: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the error of each client's model on its validation samples (35)."""
        most = self.settings.n_error_samples
        trials = [
            Trial(row, self.partition.val[client][:most])
            for row, client in zip(models, who, strict=True)
        ]
        tried = np.array([len(trial.samples) for trial in trials])
        return np.asarray(1.0 - self.clients.count_correct(trials) / tried)

    def _examine(self, t: int) -> dict[str, Any]:
        """Evaluate the model that is handed out on the test set, in rounds where that is due."""
        if t % self.settings.eval_every and t != self.settings.rounds:
            return {}
        found = self.clients.examine(self.server.served)
        labels = self.dataset.test_labels.cpu().numpy()
        there = np.bincount(labels, minlength=self.dataset.n_classes)
        known = there > 0
        by_class = found.correct[known] / there[known]
        tastes = self._tastes[:, known]
        held = tastes.sum(axis=1)
        by_client = np.where(held > 0, (tastes @ by_class) / np.where(held > 0, held, 1), np.nan)
        return {
            "accuracy": float(found.correct.sum() / len(labels)),
            "loss": found.loss,
            "client_accuracy": by_client,
            "accuracy_spread": float(by_client.std()),
        }

    # ------------------------------------------------------------------------------ saving

    def checkpoint(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything needed to continue, as tensors and facts for JSON.

        The tensors are views of the present state: write them before the next round.
        """
        tensors = {**self.server.to_tensors(), **self._clients_and_air()}
        facts = {
            "settings": self.settings.model_dump(mode="json"),
            "round": self.state.round,
            "version": self.state.version,
        }
        return tensors, facts

    def _clients_and_air(self) -> dict[str, torch.Tensor]:
        seen = self._uplink.memory()
        tensors = {name: torch.from_numpy(values) for name, values in seen.items()}
        return {**self.pending.to_tensors(), **tensors}

    @classmethod
    def restore(
        cls, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], **objects: Any
    ) -> Federation:
        """Return the federation that `checkpoint` described; it continues bit for bit.

        ``objects`` are those that were given to the first one, and ``clients`` and
        ``alter_update``. A `FileError` says if the rest belongs to another problem, or something is
        missing.
        """
        if "settings" not in facts:
            raise FileError("cannot restore this run: it lacks 'settings'")
        self = cls(Training.as_stored(facts["settings"]), **objects)
        try:
            self.server.restore(tensors, int(facts["round"]), int(facts["version"]))
            copy_into(self._clients_and_air(), tensors)
        except (KeyError, TypeError, ValueError, FileError) as error:
            self.close()
            raise FileError(f"cannot restore this run: {error}") from None
        return self


def train_together(federations: Sequence[Federation]) -> Iterator[tuple[RoundRecord, ...]]:
    """Play several federations in step, the clients of all of them trained in one go.

    They must have been given the same ``clients``, so share model and data set; their policies,
    seeds and algorithms may differ. Each computes what it would alone: to the bit on the path
    ``threads``, up to rounding where clients are stacked. Yields a record of each federation, round
    by round, until the first has played all its rounds.

    Examples
    --------
    >>> first = Federation(Training(model="mlp", clients=4, rounds=3, policy="random"))
    >>> other = Federation(
    ...     Training(model="mlp", clients=4, rounds=3, policy="cucb"), clients=first.clients
    ... )
    >>> [[record.round for record in records] for records in train_together([first, other])]
    [[1, 1], [2, 2], [3, 3]]
    """
    if not federations:
        return
    if any(each.clients is not federations[0].clients for each in federations):
        raise ParameterError("federations must be given the same clients to train together")
    shapes = {
        (each.settings.client_lr, each.settings.local_steps, each.settings.batch_size)
        for each in federations
    }
    if len(shapes) > 1:
        raise ParameterError(
            "client_lr, local_steps and batch_size must be the same to train together, got "
            f"{sorted(shapes)}"
        )
    while all(each.round < each.settings.rounds for each in federations):
        began = time.perf_counter()
        with _one_thread():
            jobs = [job for each in federations for job in each.begin()]
            federations[0].clients.train(jobs, federations[0].settings.client_lr)
            records = tuple(each.finish(began) for each in federations)
        yield records


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: sums over several depend on how they were split."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_partition(partition: Partition, settings: Training, dataset: Dataset) -> None:
    if partition.n_clients != settings.clients:
        raise ParameterError(
            f"partition must have {settings.clients} clients, got {partition.n_clients}"
        )
    last = max(int(partition.held(one)[-1]) for one in range(partition.n_clients))
    if last >= dataset.n_train:
        raise ParameterError(
            f"partition must hold samples below {dataset.n_train}, got sample {last}"
        )
    bare = [one for one, held in enumerate(partition.val) if not len(held)]
    if settings.contribution_rule is not None and bare:
        raise ParameterError(
            f"contributions need validation samples of every client, client {bare[0]} has none"
        )
