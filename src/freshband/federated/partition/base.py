"""What a partition is: the indices every client holds, the registry of splits, and how to draw one.

A split deals the samples to the clients; then every client sets some of its own aside for
validation. The two are drawn from separate random streams, so the share of validation does not
change who holds what.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from freshband._registry import Registry
from freshband._seeding import Role, check_seed, sequence
from freshband.errors import ParameterError, shown
from freshband.parameters import whole_number

_Indices: TypeAlias = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """Which samples each client trains on, and which it keeps for validation.

    Attributes
    ----------
    train : tuple of ndarray of int64
        For each client, ascending indices into the training set; at least one.
    val : tuple of ndarray of int64
        For each client, ascending indices of its validation samples; may be empty. No sample is
        listed twice.

    Examples
    --------
    >>> mine = Partition(train=[[0, 1], [4]], val=[[2], [3]])
    >>> mine.n_clients, mine.sizes.tolist()
    (2, [2, 1])
    >>> Partition(train=[[0, 1], [1]], val=[[2], [3]])
    Traceback (most recent call last):
    freshband.errors.ParameterError: samples must be held once, got sample 1 2 times
    """

    train: tuple[_Indices, ...]
    val: tuple[_Indices, ...]

    def __post_init__(self) -> None:
        for name in ("train", "val"):
            given = getattr(self, name)
            if not isinstance(given, Iterable) or isinstance(given, Mapping):
                raise ParameterError(f"{name} must be a list for each client, got {shown(given)}")
            object.__setattr__(self, name, tuple(_indices(name, one) for one in given))
        if not self.train or len(self.train) != len(self.val):
            raise ParameterError(
                f"train and val must list the same clients, at least one, got {len(self.train)} "
                f"and {len(self.val)}"
            )
        empty = [client for client, held in enumerate(self.train) if not len(held)]
        if empty:
            raise ParameterError(f"train must not be empty, got no sample for client {empty[0]}")
        samples, times = np.unique(np.concatenate(self.train + self.val), return_counts=True)
        if samples[0] < 0:
            raise ParameterError(f"indices must be >= 0, got {samples[0]}")
        if times.max() > 1:
            twice = np.argmax(times > 1)
            raise ParameterError(
                f"samples must be held once, got sample {samples[twice]} {times[twice]} times"
            )

    @property
    def n_clients(self) -> int:
        """Number of clients, M of the paper."""
        return len(self.train)

    @property
    def sizes(self) -> _Indices:
        """Training samples of each client, shape (n_clients,): what ``size`` weights go by."""
        return np.array([len(held) for held in self.train], np.int64)

    def held(self, client: int) -> _Indices:
        """Return all samples of a client, for training and validation, ascending."""
        return np.sort(np.concatenate([self.train[client], self.val[client]]))

    def counts(self, labels: npt.ArrayLike, n_classes: int | None = None) -> _Indices:
        """Return how many samples of each class a client holds, shape (n_clients, n_classes).

        ``labels`` are those of the training set; ``n_classes`` is the largest plus one by default.
        """
        values = _labels(labels)
        last = max(int(self.held(client)[-1]) for client in range(self.n_clients))
        if last >= len(values):
            raise ParameterError(f"labels must have at least {last + 1} entries, got {len(values)}")
        classes = int(values.max()) + 1 if n_classes is None else n_classes
        if classes <= values.max():
            raise ParameterError(f"n_classes must be at least {values.max() + 1}, got {classes}")
        held = [values[self.held(client)] for client in range(self.n_clients)]
        return np.stack([np.bincount(each, minlength=classes) for each in held])


@runtime_checkable
class Scheme(Protocol):
    """A split: a frozen `freshband.parameters.Parameters` that deals samples to clients."""

    def split(self, labels: _Indices, n_clients: int, rng: np.random.Generator) -> list[_Indices]:
        """Return the samples of each client: every one of 0 … len(labels) − 1 exactly once.

        Labels are >= 0, and ``n_clients`` is at most their number.
        """
        ...


registry: Registry[type[Scheme]] = Registry("partition", "freshband.federated.partition")
register = registry.register


def split_samples(
    labels: npt.ArrayLike,
    n_clients: int,
    *,
    scheme: str | Scheme = "dirichlet",
    val_fraction: float = 0.1,
    seed: int = 0,
    run: int = 0,
    columns: Mapping[str, npt.ArrayLike] | None = None,
    **params: object,
) -> Partition:
    """Deal a training set to the clients, and set some of each client's samples aside.

    Parameters
    ----------
    labels : array_like of int, shape (n_samples,)
        Labels of the training set, >= 0; also a tensor on the CPU.
    n_clients : int >= 1
    scheme : str or Scheme, default "dirichlet"
        ``"dirichlet"``, ``"iid"``, ``"shards"``, another registered name, or an object with
        ``split``.
    val_fraction : float in [0, 1), default 0.1
        Share of its samples a client keeps for validation, rounded, at least one and never all.
        0 keeps none: then no contribution can be measured.
    seed, run : int >= 0, default 0
        The user's seed and the number of the run.
    columns : mapping of str to array, shape (n_samples,), optional
        What else is known of the samples. A scheme with a parameter ``column`` is given the
        entries of that column, numbered in ascending order, in place of the labels.
    **params
        Parameters of the named scheme, such as ``alpha``.

    Examples
    --------
    >>> clients = split_samples([0, 1] * 50, n_clients=5, scheme="iid")
    >>> clients.sizes.tolist(), [len(held) for held in clients.val]
    ([18, 18, 18, 18, 18], [2, 2, 2, 2, 2])
    >>> split_samples([0, 1, 0], n_clients=2, scheme="iid")
    Traceback (most recent call last):
    freshband.errors.ParameterError: n_clients must be at most 1 for 3 samples, of which every ...
    """
    values = _labels(labels)
    n_clients = whole_number("n_clients", n_clients, at_least=1)
    number = isinstance(val_fraction, int | float | np.number)
    if not number or isinstance(val_fraction, bool) or not 0 <= val_fraction < 1:
        raise ParameterError(f"val_fraction must be a number in [0, 1), got {val_fraction!r}")
    need = 2 if val_fraction else 1
    if n_clients * need > len(values):
        raise ParameterError(
            f"n_clients must be at most {len(values) // need} for {len(values)} samples, of which "
            f"every client needs {need}, got {n_clients}"
        )
    wanted = "scheme must be a name or have a method split"
    split: Scheme = registry.make(scheme, params, Scheme, wanted)
    streams = sequence(check_seed(seed), Role.DATA, whole_number("run", run, at_least=0)).spawn(3)
    _, dealing, keeping = map(np.random.default_rng, streams)  # child 0 draws images
    if hasattr(split, "column"):
        values = _numbered(split.column, columns or {}, len(values))
    dealt = split.split(values, n_clients, dealing)
    _check_dealt(type(split).__name__, dealt, n_clients, len(values), need)
    pairs = [_set_aside(np.sort(one), val_fraction, keeping) for one in dealt]
    return Partition(*zip(*pairs, strict=True))


def divide_samples(
    held: Sequence[npt.ArrayLike], *, val_fraction: float = 0.1, seed: int = 0, run: int = 0
) -> Partition:
    """Return the partition in which clients hold these samples, some of them for validation.

    Examples
    --------
    >>> divide_samples([[0, 1, 2], [3, 4]]).sizes
    array([2, 1])
    """
    streams = sequence(check_seed(seed), Role.DATA, run).spawn(3)
    keeping = np.random.default_rng(streams[2])
    dealt = [_indices("partition", one) for one in held]
    for client, own in enumerate(dealt):
        if not len(own):
            raise ParameterError(
                f"partition must give every client a sample, client {client} has none"
            )
    return Partition(*zip(*(_set_aside(one, val_fraction, keeping) for one in dealt), strict=True))


def _numbered(column: str, columns: Mapping[str, npt.ArrayLike], n: int) -> _Indices:
    """Return the entries of a column as numbers."""
    if column not in columns:
        raise ParameterError(
            f"column must be one of the data set's, {sorted(columns) or 'which has none'}, got "
            f"{column!r}; Dataset.of_samples(..., columns=[...]) keeps columns"
        )
    entries = np.asarray(columns[column])
    if entries.shape != (n,):
        raise ParameterError(f"column {column!r} must have {n} entries, got {entries.shape}")
    return np.unique(entries, return_inverse=True)[1].astype(np.int64)


def _set_aside(
    held: _Indices, fraction: float, rng: np.random.Generator
) -> tuple[_Indices, _Indices]:
    """Cut a client's samples into training and validation."""
    n_val = min(max(round(fraction * len(held)), 1), len(held) - 1) if fraction else 0
    back = np.zeros(len(held), np.bool_)
    back[rng.permutation(len(held))[:n_val]] = True
    return held[~back], held[back]


def _check_dealt(name: str, dealt: Sequence[_Indices], n_clients: int, n: int, need: int) -> None:
    """Check that a split, perhaps a user's own, keeps its contract."""
    if len(dealt) != n_clients:
        raise ParameterError(f"{name} must deal to {n_clients} clients, got {len(dealt)}")
    fewest = min(len(one) for one in dealt)
    if fewest < need:
        raise ParameterError(f"{name} must give every client at least {need}, got {fewest}")
    if not np.array_equal(np.sort(np.concatenate(dealt)), np.arange(n)):
        raise ParameterError(f"{name} must deal each of the {n} samples exactly once")


def _labels(value: npt.ArrayLike) -> _Indices:
    labels = _row(value)
    if labels is None or not len(labels):
        raise ParameterError(
            f"labels must be a list of at least one whole number, got {shown(value)}"
        )
    if labels.min() < 0:
        raise ParameterError(f"labels must be >= 0, got {labels.min()}")
    return labels


def _indices(name: str, value: npt.ArrayLike) -> _Indices:
    indices = _row(value)
    if indices is None:
        raise ParameterError(
            f"{name} must hold a list of whole numbers for each client, got {shown(value)} for one"
        )
    return np.sort(indices)


def _row(value: npt.ArrayLike) -> _Indices | None:
    """Return a list of whole numbers as a new array, or None if it is anything else."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # ragged, or a tensor on another device
        return None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "ui"):
        return None
    return array.astype(np.int64)
