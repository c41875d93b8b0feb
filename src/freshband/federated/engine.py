"""The paper's round with model updates riding on it, one `RoundRecord` at a time.

Each round is the four steps of section II, with the scheduling between them:

1. the server sends its model to the clients whose update got through the round before, at first to
   everybody; they try it without themselves on their validation samples and make E local steps,
2. the others keep the update they could not deliver and send it again,
3. the coordinator gives every client a channel, and what is on a good one gets through,
4. the server applies what arrived; where nothing did the model stays as it is.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from freshband.aoi import age_variance
from freshband.channels.base import ChannelModel, open_air
from freshband.coordinator import Coordinator
from freshband.errors import FileError, ParameterError, SequenceError
from freshband.federated.aggregation import client_weights
from freshband.federated.algorithms import Arrivals, build_algorithm, served_model
from freshband.federated.batches import Batches
from freshband.federated.clients import choose_clients, pick_device
from freshband.federated.clients.base import Job, Layout, LocalTraining, Trial, check_trainable
from freshband.federated.contribution import fedce_contributions, fill_unheard
from freshband.federated.data import Dataset, load_dataset
from freshband.federated.leaving_out import distances_to_rest, models_without
from freshband.federated.models import build_model
from freshband.federated.own_things import check_own_things, check_settings
from freshband.federated.partition import Partition, split_samples
from freshband.federated.records import RoundRecord
from freshband.federated.settings import Training
from freshband.federated.state import ServerState

__all__ = ["Federation", "train_together"]

AlterUpdate = Callable[[int, int, torch.Tensor], Any]


class Federation:
    """M clients training one model over channels nobody can trust.

    Iterate over it for `RoundRecord`s, or call `step`.

    Parameters
    ----------
    settings : Training, optional
        What to run.
    dataset, model, channels, partition : optional
        Objects of one's own in place of what the settings name: a `Dataset`, an ``nn.Module``
        with its initial weights, a channel model, a `Partition`.
    clients : LocalTraining, optional
        A path to train on, shared with other federations of the same model and data set.
    alter_update : callable, optional
        ``alter_update(round, client, update)`` sees every update that gets through and may return
        another in its place: to study broken or malicious clients, quantisation, added noise.

    Examples
    --------
    >>> with Federation(Training(model="mlp", clients=4, rounds=3, scheduler="random")) as run:
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
        clients: LocalTraining | None = None,
        alter_update: AlterUpdate | None = None,
    ) -> None:
        self.settings = chosen = check_settings(Training() if settings is None else settings)
        check_own_things(
            dataset=dataset, channels=channels, partition=partition, clients=clients,
            alter_update=alter_update,
        )  # fmt: skip
        self._alter = alter_update
        self.channels = chosen.build_channels() if channels is None else channels
        self.coordinator = Coordinator(
            chosen.policy(), chosen.clients, self.channels.n_channels, chosen.seed,
            run=chosen.run, horizon=chosen.rounds,
        )  # fmt: skip
        device = pick_device(chosen.device)
        whole = (
            dataset
            if dataset is not None
            else load_dataset(
                chosen.dataset, seed=chosen.seed, run=chosen.run, **chosen.dataset_options
            )
        )
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
        self._algorithm = build_algorithm(chosen)
        self._batches = Batches(chosen.seed, chosen.run, chosen.local_steps, chosen.batch_size)
        self._air = open_air(self.channels, chosen.rounds, chosen.seed, chosen.run)
        self._tastes = _class_shares(self.partition, self.dataset)
        self._further: dict[int, torch.Tensor] = {}  # what clients that wait add, by client
        self.state = self._open_state()

    def _open_state(self) -> ServerState:
        chosen, n_clients = self.settings, self.settings.clients
        dtype = torch.float64 if chosen.precision == "float64" else torch.float32
        model = Layout(self._module).read(self._module)
        model = model.to(device=self.dataset.train_images.device, dtype=dtype)
        valued = chosen.contribution_rule is not None
        paired = valued or self._algorithm.needs_models or chosen.local_rounds > 1
        sizes = self.partition.sizes
        equal = np.full(n_clients, 1.0 / n_clients)
        return ServerState(
            round=0,
            version=0,
            model=model,
            updates=model.new_zeros(n_clients, len(model)),
            trained=model.new_zeros(n_clients if paired else 0, len(model)),
            gradients=model.new_zeros(n_clients if valued else 0, len(model)),
            models=model.new_zeros(n_clients if valued else 0, len(model)),
            memory=self._algorithm.open_memory(model),
            arrays={
                "downloaded": np.zeros(n_clients, np.int64),
                "receivers": np.ones(n_clients, np.bool_),
                "carried": np.ones(n_clients),
                "errors": np.ones(n_clients),
                "heard": np.zeros(n_clients, np.bool_),
                "weights": sizes / sizes.sum() if chosen.weights == "size" else equal,
                "contributions": np.ones(n_clients),
                "worth": np.zeros(n_clients),
                **({"worked": np.zeros(n_clients, np.int64)} if chosen.local_rounds > 1 else {}),
            },
        )

    # ------------------------------------------------------------------------------ a run

    @property
    def round(self) -> int:
        """Rounds done."""
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

    @property
    def _served(self) -> torch.Tensor:
        return served_model(self.state.model, self.state.memory)

    def module(self) -> nn.Module:
        """Return a module with the weights the server hands out at present, on the CPU."""
        module = copy.deepcopy(self._module)
        Layout(module).write(self._served.cpu(), module)
        return module

    def step(self) -> RoundRecord:
        """Play one round."""
        return next(iter(_play([self])))

    # ------------------------------------------------------------------------------ steps 1, 2

    def _begin(self) -> list[Job]:
        """Send the model out; return the local training this asks for."""
        state, arrays = self.state, self.state.arrays
        if self._algorithm.everybody_trains:
            arrays["receivers"][:] = True
        who = np.flatnonzero(arrays["receivers"])
        if len(state.models):
            self._try_without_themselves(who)
        arrays["downloaded"][who] = state.version
        self._further = self._go_on()
        return [
            *(self._job(one, state.model, state.updates[one]) for one in who.tolist()),
            *(self._job(one, state.trained[one], row) for one, row in self._further.items()),
        ]

    def _job(self, client: int, start: torch.Tensor, out: torch.Tensor) -> Job:
        held = self.partition.train[client]
        batches = self._batches.draw(held, round=self.state.round + 1, client=client)
        return Job(start, batches, out)

    def _go_on(self) -> dict[int, torch.Tensor]:
        """Return room for what clients add to an update that waits to get through."""
        state, arrays = self.state, self.state.arrays
        if "worked" not in arrays:
            return {}
        worked, fresh = arrays["worked"], arrays["receivers"]
        more = ~fresh & (worked < self.settings.local_rounds)
        worked[fresh] = 1
        worked[more] += 1
        return {int(client): torch.empty_like(state.model) for client in np.flatnonzero(more)}

    def _try_without_themselves(self, who: NDArray[np.int64]) -> None:
        state, arrays = self.state, self.state.arrays
        rows = models_without(
            state.model, state.models, arrays["weights"], arrays["heard"], who, self.settings.loo
        )
        most = self.settings.n_error_samples
        trials = [
            Trial(row, self.partition.val[client][:most])
            for row, client in zip(rows, who, strict=True)
        ]
        tried = np.array([len(trial.samples) for trial in trials])
        arrays["carried"][who] = 1.0 - self.clients.count_correct(trials) / tried

    def _trained(self) -> None:
        """Note the models that go with the new updates, and add to those that go on."""
        state, lr = self.state, self.settings.client_lr
        if len(state.trained):
            for client in np.flatnonzero(state.arrays["receivers"]).tolist():
                torch.sub(state.model, state.updates[client], alpha=lr, out=state.trained[client])
        for client, further in self._further.items():
            state.updates[client].add_(further)
            state.trained[client].sub_(further, alpha=lr)

    # ------------------------------------------------------------------------------ steps 3, 4

    def _finish(self, began: float) -> RoundRecord:
        """Schedule, transmit, aggregate and learn; return what happened."""
        state, arrays, chosen = self.state, self.state.arrays, self.settings
        t = state.round + 1
        received = int(arrays["receivers"].sum())
        valued = len(state.gradients) > 0
        wanted = self.coordinator.policy.needs_contributions
        assignment = self.coordinator.plan(arrays["contributions"] if wanted else None)
        priorities = self.coordinator.priorities
        states = self._air.block(1).states[0]
        arrived = (assignment >= 0) & (states[assignment] == 1)
        refused = self._inspect(t, arrived)
        delivered = arrived & ~refused
        weights = arrays["weights"].copy()
        staleness = np.where(delivered, state.version - arrays["downloaded"], -1)
        steps, passed = self._algorithm.apply(
            state.model,
            state.memory,
            Arrivals(delivered, state.updates, state.trained, staleness, weights),
        )
        # A refused update tells nothing of the channel's trade, and its client stays as old.
        alarm = self.coordinator.observe(
            [None if no else bool(yes) for yes, no in zip(delivered, refused, strict=True)]
        )
        if valued:
            self._value(delivered)
        # Who was refused gets the model too, or would send the same for ever.
        arrays["receivers"] = delivered | refused
        state.round, state.version = t, state.version + passed
        ages = self.coordinator.ages
        accuracy, loss, by_client = self._examine(t)
        size = state.model.element_size() * len(state.model)
        nothing = np.full(chosen.clients, np.nan)
        return RoundRecord(
            round=t,
            accuracy=accuracy,
            loss=loss,
            client_accuracy=by_client,
            accuracy_spread=float(by_client.std()),
            ages=ages,
            variance=float(age_variance(ages)),
            assignment=assignment,
            delivered=delivered,
            refused=refused,
            alarm=-1 if alarm is None else alarm,
            staleness=staleness,
            weights=weights,
            steps=steps,
            contributions=arrays["contributions"].copy() if valued else nothing,
            errors=arrays["errors"].copy() if valued else nothing.copy(),
            priorities=nothing.copy() if priorities is None else priorities,
            channel_means=self.coordinator.channel_means,
            trained=received + len(self._further),
            bytes_up=(size + 8 * valued) * int((assignment >= 0).sum()),
            bytes_down=(size + 8 * valued) * received,
            seconds=time.perf_counter() - began,
        )

    def _inspect(self, t: int, arrived: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whose update must be refused; shorten those that are too long."""
        state, chosen = self.state, self.settings
        refused = np.zeros(chosen.clients, np.bool_)
        who = np.flatnonzero(arrived)
        if self._alter is not None:
            for client in who.tolist():
                refused[client] = not self._alter_one(t, client)
        if len(who) == 0:
            return refused
        lengths = torch.stack([torch.linalg.vector_norm(state.updates[one]) for one in who])
        long = lengths.to(torch.float64).cpu().numpy()
        refused[who] |= ~np.isfinite(long)
        if chosen.clip_norm is not None:
            for client, length in zip(who.tolist(), long * chosen.client_lr, strict=True):
                if not refused[client] and length > chosen.clip_norm:
                    self._replace(client, state.updates[client] * (chosen.clip_norm / length))
        return refused

    def _alter_one(self, t: int, client: int) -> bool:
        """Let the user's function change an update; return whether a model could take it."""
        assert self._alter is not None
        row = self.state.updates[client]
        given = self._alter(t, client, row.clone())
        if given is None:
            return True
        if (
            not isinstance(given, torch.Tensor)
            or given.shape != row.shape
            or given.layout != row.layout
            or given.is_complex()
        ):
            return False
        self._replace(client, given.detach().to(row))
        return True

    def _replace(self, client: int, update: torch.Tensor) -> None:
        row = self.state.updates[client]
        if len(self.state.trained):
            self.state.trained[client].add_(row - update, alpha=self.settings.client_lr)
        row.copy_(update)

    def _value(self, delivered: NDArray[np.bool_]) -> None:
        """Keep what arrived, and value every client by it, equations (33) and (43)."""
        state, arrays, chosen = self.state, self.state.arrays, self.settings
        for client in np.flatnonzero(delivered):
            state.gradients[client].copy_(state.updates[client])
            state.models[client].copy_(state.trained[client])
        arrays["errors"][delivered] = arrays["carried"][delivered]
        heard = arrays["heard"] | delivered
        arrays["heard"] = heard
        distances = distances_to_rest(state.gradients, arrays["weights"], chosen.loo)
        if chosen.contribution_rule == "fedce":
            arrays["worth"] += fedce_contributions(distances, arrays["errors"], heard)
            worth = arrays["worth"] / (state.round + 1)
        else:
            worth = distances * arrays["errors"]
        arrays["contributions"] = fill_unheard(worth, heard, chosen.cold_start)
        if chosen.weights == "contribution":
            arrays["weights"] = client_weights(arrays["contributions"])

    def _examine(self, t: int) -> tuple[float, float, NDArray[np.float64]]:
        chosen = self.settings
        if t % chosen.eval_every and t != chosen.rounds:
            return np.nan, np.nan, np.full(chosen.clients, np.nan)
        found = self.clients.examine(self._served)
        labels = self.dataset.test_labels.cpu().numpy()
        there = np.bincount(labels, minlength=self.dataset.n_classes)
        known = there > 0
        by_class = found.correct[known] / there[known]
        tastes = self._tastes[:, known]
        held = tastes.sum(axis=1)
        by_client = np.where(held > 0, (tastes @ by_class) / np.where(held > 0, held, 1), np.nan)
        return float(found.correct.sum() / len(labels)), found.loss, by_client

    # ------------------------------------------------------------------------------ saving

    def checkpoint(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything needed to continue, as tensors and facts for JSON.

        The tensors are views of the present state: write them before the next round.
        """
        tensors = self.state.to_tensors()
        saved = np.frombuffer(self.coordinator.to_bytes(), np.uint8).copy()
        tensors["coordinator"] = torch.from_numpy(saved)
        facts = {
            "settings": self.settings.model_dump(mode="json"),
            "round": self.state.round,
            "version": self.state.version,
        }
        return tensors, facts

    @classmethod
    def restore(
        cls, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], **objects: Any
    ) -> Federation:
        """Return the federation that `checkpoint` described; it continues bit for bit.

        Parameters
        ----------
        tensors, facts
            What `checkpoint` returned.
        **objects
            ``dataset``, ``model``, ``channels``, ``partition``, ``clients`` and ``alter_update``
            as they were given to the first one.

        Raises
        ------
        FileError
            If these belong to another problem, or something is missing.
        """
        if "settings" not in facts:
            raise FileError("cannot restore this run: it lacks 'settings'")
        self = cls(Training.as_stored(facts["settings"]), **objects)
        try:
            self._take(tensors, facts)
        except (KeyError, TypeError, ValueError, FileError, SequenceError) as error:
            self.close()
            raise FileError(f"cannot restore this run: {error}") from None
        return self

    def _take(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        state = self.state
        state.take(tensors)
        state.round, state.version = int(facts["round"]), int(facts["version"])
        saved = Coordinator.from_bytes(
            tensors["coordinator"].numpy().tobytes(), "this run's coordinator"
        )
        mine = self.coordinator
        for name in ("n_clients", "n_channels", "seed", "run", "horizon"):
            if getattr(saved, name) != getattr(mine, name):
                raise ValueError(f"{saved!r} has another {name}")
        if saved.policy.name != mine.policy.name or saved.round != state.round:
            raise ValueError(f"{saved!r} is not of this run")
        self.coordinator = saved
        if state.round:
            self._air.block(state.round)  # the air is drawn forward only


def train_together(federations: Sequence[Federation]) -> Iterator[tuple[RoundRecord, ...]]:
    """Play several federations in step, the clients of all of them trained in one go.

    They must have been given the same ``clients``, so share model and data set; their policies,
    seeds and algorithms may differ. Each computes what it would alone: to the bit on the path
    ``threads``, up to rounding where clients are stacked.

    Yields
    ------
    tuple of RoundRecord
        One of each federation, until the first has played all its rounds.

    Examples
    --------
    >>> first = Federation(Training(model="mlp", clients=4, rounds=3, scheduler="random"))
    >>> other = Federation(
    ...     Training(model="mlp", clients=4, rounds=3, scheduler="cucb"), clients=first.clients
    ... )
    >>> [[record.round for record in records] for records in train_together([first, other])]
    [[1, 1], [2, 2], [3, 3]]
    """
    if not federations:
        return
    if any(each.clients is not federations[0].clients for each in federations):
        raise ParameterError("federations must be given the same clients to train together")
    while all(each.round < each.settings.rounds for each in federations):
        yield tuple(_play(federations))


def _play(federations: Sequence[Federation]) -> list[RoundRecord]:
    """Play one round of each federation."""
    if any(each.round >= each.settings.rounds for each in federations):
        raise ParameterError("all rounds are played: make the number of rounds larger")
    shapes = {
        (each.settings.client_lr, each.settings.local_steps, each.settings.batch_size)
        for each in federations
    }
    if len(shapes) > 1:
        raise ParameterError(
            "client_lr, local_steps and batch_size must be the same to train together, got "
            f"{sorted(shapes)}"
        )
    began = time.perf_counter()
    with _one_thread():
        jobs = [job for each in federations for job in each._begin()]
        federations[0].clients.train(jobs, federations[0].settings.client_lr)
        for each in federations:
            each._trained()
        return [each._finish(began) for each in federations]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have torch use one thread here: sums of several depend on how they were split."""
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


def _class_shares(partition: Partition, dataset: Dataset) -> NDArray[np.float64]:
    """Return how a client's samples fall on the classes, shape (M, n_classes)."""
    counts = partition.counts(dataset.train_labels.cpu().numpy(), dataset.n_classes)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
