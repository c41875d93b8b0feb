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
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from freshband.coordinator import Coordinator
from freshband.errors import FileError, ParameterError, RuleError
from freshband.federated._opening import open_things
from freshband.federated._own_things import OwnThings, check_own_things, check_settings
from freshband.federated._parts import parts_of
from freshband.federated._state import PendingUpdates, ServerState, copy_into
from freshband.federated.batches import Batches
from freshband.federated.clients import choose_clients, pick_device
from freshband.federated.clients._base import (
    ExamResult,
    LocalTraining,
    TrainingJob,
    Trial,
    evaluating,
    one_thread,
)
from freshband.federated.inspection import AlterUpdate
from freshband.federated.records import RoundRecord
from freshband.federated.server import FederatedServer, Plan
from freshband.federated.settings import Training
from freshband.federated.uplink import SimulatedUplink


class Federation:
    """M clients training one model over channels nobody can trust.

    Iterate over it for `RoundRecord`s, or call `step`.

    Parameters
    ----------
    settings : Training, optional
        What to run.
    dataset, model, channels, partition, algorithm, loss, optimiser, metric : optional
        Objects of your own in place of what the settings name: a `Dataset`, or training and test
        samples as `Dataset.of_samples` takes them; an ``nn.Module`` with its initial weights; a
        channel model; a `Partition`, the samples of each client, or the client of each sample; a
        server's `Rule`; a loss, a function of outputs and targets; a class of ``torch.optim`` or a
        function of a client's parameters; a metric, a function of outputs and targets.
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
        clients: LocalTraining | None = None,
        alter_update: AlterUpdate | None = None,
        **own: Unpack[OwnThings],
    ) -> None:
        self.settings = chosen = check_settings(Training() if settings is None else settings)
        checked = {name: value for name, value in own.items() if name != "model"}
        check_own_things(clients=clients, alter_update=alter_update, **checked)
        channels, algorithm = own.get("channels"), own.get("algorithm")
        self.channels = chosen.build_channels() if channels is None else channels
        fleet = chosen.build_fleet(self.channels)
        parts = parts_of(chosen, self.channels.n_channels, fleet)
        parts["algorithm"] = chosen.build_algorithm() if algorithm is None else algorithm
        opened = open_things(chosen, pick_device(chosen.device), **own)
        self.dataset, self.partition, self._module = opened.dataset, opened.partition, opened.module
        if clients is not None:
            shared = getattr(clients, "dataset", self.dataset)
            if not torch.equal(shared.train_labels.cpu(), self.dataset.train_labels.cpu()):
                raise ParameterError("clients must have been opened with the same data set")
            self.dataset = shared
        self._own, self._travel, self._tastes = opened.own, opened.travel, opened.tastes
        self._watched = any(own.get(name) is not None for name in ("model", "loss", "optimiser"))
        self._owns_clients = clients is None
        self.clients = (
            choose_clients(self._module, self.dataset, chosen, self._own)
            if clients is None
            else clients
        )
        self._batches = Batches(chosen.seed, chosen.run, chosen.local_steps, chosen.batch_size)
        self._uplink = SimulatedUplink(
            self.channels, chosen.rounds, chosen.seed, chosen.run,
            clients=chosen.clients, fleet=fleet,
        )  # fmt: skip
        self.server = self._open_server(alter_update=alter_update, **parts)
        self.pending = self._open_pending()
        self._plan: Plan | None = None
        self._further: dict[int, torch.Tensor] = {}  # what clients that wait add, by client
        self._newly_kept: dict[int, torch.Tensor] = {}  # what stays with clients, by client
        self.intact = True  # whether the state is that after a round, although one broke off
        self.unexamined: RoundRecord | None = None  # a round whose evaluation broke off

    def _open_server(self, **parts: Any) -> FederatedServer:
        chosen = self.settings
        dtype = torch.float64 if chosen.precision == "float64" else torch.float32
        model = self._travel.travels.read(self._module)
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
            kept=self._travel.stays.read(self._module).to(model).repeat(n_clients, 1),
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
        while self.round < self.settings.rounds or self.unexamined is not None:
            yield self.step()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back threads and memory; records and the model stay."""
        if self._owns_clients:
            self.clients.close()

    def module(self, client: int | None = None) -> nn.Module:
        """Return a module with the weights the server hands out at present, on the CPU.

        What stays with the clients is that of ``client``, by default the mean over all of them.
        """
        module = copy.deepcopy(self._module)
        kept = self._mean_kept() if client is None else self.pending.kept[client]
        served = self._travel.settle(self.server.served.cpu().clone())
        self._travel.travels.write(served, module)
        self._travel.stays.write(kept.cpu(), module)
        return module

    def _mean_kept(self) -> torch.Tensor:
        return self.pending.kept.mean(dim=0)

    def step(self) -> RoundRecord:
        """Play one round; where it breaks off, `intact` says whether the state can be saved.

        It is that before the round or, where the evaluation broke off, that after it; the next call
        then evaluates the model again and returns the record of that round.
        """
        began = time.perf_counter()
        with one_thread():
            self.intact = True
            if self.unexamined is not None:
                return self._complete(self.unexamined, began)
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
        held, batches = self.partition.train, self._batches
        keeps = bool(self._travel.stays.shapes)
        self._newly_kept = {c: pending.kept[c].clone() for c, _, _ in starts} if keeps else {}
        return [
            TrainingJob(
                start,
                batches.draw(held[client], round=plan.round, client=client),
                out,
                round=plan.round,
                client=client,
                noise=0 if self._own is None else batches.noise(round=plan.round, client=client),
                kept=self._newly_kept.get(client),
            )
            for client, start, out in starts
        ]

    def finish(self, began: float) -> RoundRecord:
        """Deliver what the clients trained; return what happened since the time ``began``."""
        server, pending, plan, lr = self.server, self.pending, self._plan, self.settings.client_lr
        assert plan is not None
        if self._watched:
            self._check_updates(plan)
        self.intact = False
        before = [(row, row.clone()) for row in self._rows_to_change()]
        for client, kept in self._newly_kept.items():
            pending.kept[client].copy_(kept)
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
        try:
            record = server.finish(plan, outcome, waiting, answered=answered)
        except RuleError:  # the server is as before, and so are the clients and the air
            for row, values in before:
                row.copy_(values)
            self.intact = True
            raise
        self.intact = True
        return self._complete(record, began)

    def _rows_to_change(self) -> list[torch.Tensor]:
        """Return what changes before the server's rule is asked, as views."""
        pending = self.pending
        rows = [pending.kept[client] for client in self._newly_kept]
        for client in self._further:
            rows += [pending.updates[client], pending.trained[client]]
        return rows + [torch.from_numpy(seen) for seen in self._uplink.memory().values()]

    def _complete(self, record: RoundRecord, began: float) -> RoundRecord:
        """Add to a round how good its model is; keep the record where that breaks off."""
        self.unexamined = record
        found = self._examine(record.round)
        self.unexamined = None
        return dataclasses.replace(record, **found, seconds=time.perf_counter() - began)

    def _errors_of(self, models: torch.Tensor, who: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the error of each client's model on its validation samples (35)."""
        most = self.settings.n_error_samples
        t, val, kept = self.round + 1, self.partition.val, self.pending.kept
        trials = [
            Trial(row, val[client][:most], kept[client], t, int(client))
            for row, client in zip(models, who, strict=True)
        ]
        errors = 1.0 - self._scores(trials)
        if not ((errors >= 0) & (errors <= 1)).all():
            raise ParameterError(
                "contributions need a metric in [0, 1], such as accuracy, got "
                f"{float((1.0 - errors).min()):.3g} for a client"
            )
        return errors

    def _scores(self, trials: Sequence[Trial]) -> NDArray[np.float64]:
        tried = np.array([len(trial.samples) for trial in trials])
        with evaluating(trials[0].round if trials else 0):
            return np.asarray(self.clients.count_correct(trials) / tried)

    def _check_updates(self, plan: Plan) -> None:
        """Name the client whose training, by things of the user's own, made no numbers."""
        rows = {client: self.pending.updates[client] for client in plan.receivers.tolist()}
        for client, update in (rows | self._further).items():
            if not bool(torch.isfinite(update).all()):
                raise RuleError(
                    f"client {client} in round {plan.round}: its update is not finite; mend the "
                    "model, the loss or the optimiser, or make client_lr smaller"
                )

    def _examine(self, t: int) -> dict[str, Any]:
        """Evaluate the model that is handed out on the test set, in rounds where that is due."""
        if t % self.settings.eval_every and t != self.settings.rounds:
            return {}
        with evaluating(t):
            if self._own is None:
                found = self.clients.examine(self.server.served)
            else:
                found = self.clients.examine(self.server.served, self._mean_kept())  # type: ignore[call-arg]  # own modules
        by_client = self._by_client(found)
        accuracy = found.metric
        if accuracy is None:
            accuracy = found.correct.sum() / self.dataset.n_test
        return {
            "accuracy": float(accuracy),
            "loss": found.loss,
            "client_accuracy": by_client,
            "accuracy_spread": float(by_client.std()),
        }

    def _by_client(self, found: ExamResult) -> NDArray[np.float64]:
        """Return how good the model is for each client: by its classes, or its own samples."""
        keeps = self._travel.stays.shapes
        if found.metric is None and self._tastes is not None and not keeps:
            labels = self.dataset.test_labels.cpu().numpy()
            there = np.bincount(labels, minlength=self.dataset.n_classes)
            known = there > 0
            by_class = found.correct[known] / there[known]
            tastes = self._tastes[:, known]
            held = tastes.sum(axis=1)
            return np.where(held > 0, (tastes @ by_class) / np.where(held > 0, held, 1), np.nan)
        by_client = np.full(self.settings.clients, np.nan)
        known_by = [client for client, own in enumerate(self.partition.val) if len(own)]
        if known_by:
            served, kept, val = self.server.served, self.pending.kept, self.partition.val
            by_client[known_by] = self._scores(
                [Trial(served, val[c], kept[c], self.round, c) for c in known_by]
            )
        return by_client

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
