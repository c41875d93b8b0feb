"""What a data set is: tensors in memory, the registry of sources, and how to load one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from freshband._registry import Registry
from freshband._seeding import Role, check_seed, sequence
from freshband.errors import ParameterError, shown
from freshband.parameters import whole_number

_SPLIT_SEED = 0  # fixed: accuracies of different seeds stay comparable


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images, all of them in memory, and how to normalise them.

    Images keep their type, usually one byte per pixel, and become floating point batch by batch
    on the device that trains: CIFAR takes 184 MB this way, not 737.

    Attributes
    ----------
    name : str
    train_images : tensor of uint8 or float32, shape (n_train, channels, height, width)
        The images that are divided among the clients.
    train_labels : tensor of int64, shape (n_train,)
        Classes in 0 … n_classes − 1.
    test_images, test_labels : tensors
        The same for the server's test set, which no client holds.
    n_classes : int >= 2
    mean, std : tuple of float, one per channel
        Normalisation `(x − mean) / std`, in the units of the stored pixels; ``std`` is positive.
    class_names : tuple of str, optional
        Names for pictures and tables; empty, or one per class.
    default_model : str, default "small-cnn"
        Name of the model that suits the set.
    columns : mapping of str to array, shape (n_train,), optional
        What else is known of the training images, such as whose they are; the partition
        ``column`` goes by it.

    Examples
    --------
    >>> digits = load_dataset("digits")
    >>> digits.n_classes, digits.shape, digits.default_model
    (10, (1, 8, 8), 'small-cnn')
    >>> images = digits.normalise(digits.train_images)
    >>> abs(images.mean().item()) < 1e-4, round(images.std().item(), 3)
    (True, 1.0)
    """

    name: str
    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor
    n_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...] = ()
    default_model: str = "small-cnn"
    columns: Mapping[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_columns(self.columns, len(self.train_images))
        whole_number("n_classes", self.n_classes, at_least=2)
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            _check_images(f"{part}_images", images)
            _check_labels(f"{part}_labels", labels, len(images), self.n_classes)
        if self.test_images.shape[1:] != self.train_images.shape[1:]:
            raise ParameterError(
                f"test_images must have the shape of train_images, (..., {_sizes(self.shape)}), "
                f"got (..., {_sizes(self.test_images.shape[1:])})"
            )
        for name in ("mean", "std"):
            _check_normalisation(name, getattr(self, name), self.shape[0])
        names = self.class_names
        got = len(names) if isinstance(names, Sized) else shown(names)
        if got not in (0, self.n_classes):
            raise ParameterError(
                f"class_names must be empty or n_classes = {self.n_classes} names, got {got}"
            )

    @classmethod
    def of(
        cls,
        train_images: Any,
        train_labels: Any,
        test_images: Any,
        test_labels: Any,
        *,
        n_classes: int | None = None,
        name: str = "custom",
        class_names: Sequence[str] = (),
        default_model: str = "small-cnn",
        columns: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Make a data set from tensors, arrays or lists.

        The normalisation is that of the training images; a constant channel is only centred.

        Parameters
        ----------
        train_images, test_images : array_like of uint8 or float, shape (n, channels, height, width)
            Other integers than uint8 and other floats than float32 become float32. Rows of plain
            features fit as (n, 1, 1, features), with the model ``mlp``.
        train_labels, test_labels : array_like of int, shape (n,)
            Classes, from 0.
        n_classes : int, optional
            The largest label plus one by default.
        name, class_names, default_model, columns
            As in `Dataset`.

        Examples
        --------
        >>> x, y = torch.rand(8, 3, 4, 4), torch.arange(8) % 2
        >>> Dataset.of(x, y, x, y, name="mine").n_classes
        2
        """
        images = _as_images("train_images", train_images)
        _check_images("train_images", images)  # before statistics are taken of them
        labels = _as_labels("train_labels", train_labels), _as_labels("test_labels", test_labels)
        if n_classes is None:
            n_classes = 1 + max(int(some.max()) if some.numel() else 0 for some in labels)
        mean, std = _statistics(images)
        return cls(
            name=name,
            train_images=images,
            train_labels=labels[0],
            test_images=_as_images("test_images", test_images),
            test_labels=labels[1],
            n_classes=n_classes,
            mean=mean,
            std=std,
            class_names=tuple(class_names),
            default_model=default_model,
            columns={key: np.asarray(values) for key, values in (columns or {}).items()},
        )

    @classmethod
    def of_samples(cls, train: Any, test: Any, **options: Any) -> Dataset:
        """Make a data set from torch, torchvision or Hugging Face data sets, or from columns.

        See `freshband.federated.data.samples.read_samples`, which has the options.
        """
        from freshband.federated.data.samples import read_samples

        return read_samples(train, test, **options)

    @classmethod
    def of_clients(cls, train: Sequence[Any], test: Any, **options: Any) -> Dataset:
        """Make a data set from one per client; the partition ``column`` gives each its own again.

        Each is what `of_samples` takes. The column is called ``client``, and training on a data set
        with such a column wants ``partition`` to be chosen.
        """
        from freshband.federated.data.samples import read_clients

        return read_clients(train, test, **options)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return tuple(self.train_images.shape[1:])

    @property
    def labelled(self) -> bool:
        """Whether every sample has one class."""
        return self.n_classes > 0 and self.train_labels.ndim == 1

    @property
    def n_train(self) -> int:
        """Number of training images."""
        return len(self.train_images)

    @property
    def n_test(self) -> int:
        """Number of test images."""
        return len(self.test_images)

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Return stored images, shape (..., *shape), as float32 with mean 0 and variance 1."""
        mean = torch.tensor(self.mean, device=images.device).reshape(-1, 1, 1)
        std = torch.tensor(self.std, device=images.device).reshape(-1, 1, 1)
        return (images.to(torch.float32) - mean) / std

    def inputs(self, part: Literal["train", "test"], samples: Any) -> tuple[torch.Tensor, ...]:
        """Return what a model is given of some samples."""
        return (self.normalise(getattr(self, f"{part}_images")[samples]),)

    def hold_out(self, share: float) -> Dataset:
        """Return the set with a share of its training images in place of the test set.

        Settings are chosen with it, so that a choice does not see the test set. The images are
        the last of a fixed permutation, whatever the seed; the normalisation stays that of all
        training images.

        Parameters
        ----------
        share : float in [0, 1)
            0 returns the set as it is. At least one image is left on both sides.

        Examples
        --------
        >>> smaller = load_dataset("digits").hold_out(0.1)
        >>> smaller.n_train, smaller.n_test
        (1294, 144)
        """
        if not 0 <= share < 1:
            raise ParameterError(f"share must be a number in [0, 1), got {shown(share)}")
        if share == 0:
            return self
        kept = min(max(self.n_train - round(share * self.n_train), 1), self.n_train - 1)
        order = np.random.default_rng(_SPLIT_SEED).permutation(self.n_train)
        train, test = (
            torch.from_numpy(np.sort(part)).to(self.train_images.device)
            for part in (order[:kept], order[kept:])
        )
        return self._divide(train, test)

    def _divide(self, train: torch.Tensor, test: torch.Tensor, **more: Any) -> Dataset:
        """Return the set with other training samples, and some in place of the test set."""
        kept = train.cpu().numpy()
        return dataclasses.replace(
            self,
            train_images=self.train_images[train],
            train_labels=self.train_labels[train],
            test_images=self.train_images[test],
            test_labels=self.train_labels[test],
            columns={name: values[kept] for name, values in self.columns.items()},
            **more,
        )

    def to(self, device: str | torch.device) -> Dataset:
        """Return the same set with its tensors on ``device``."""
        names = ("train_images", "train_labels", "test_images", "test_labels")
        return dataclasses.replace(self, **{name: getattr(self, name).to(device) for name in names})


@runtime_checkable
class DataSource(Protocol):
    """A source of a data set: a frozen `freshband.parameters.Parameters` that loads it."""

    def load(self, rng: np.random.Generator) -> Dataset:
        """Load the set; ``rng`` is for sources that draw their data."""
        ...


registry: Registry[type[DataSource]] = Registry("dataset", "freshband.federated.data")
register = registry.register


def load_dataset(
    source: str | DataSource | Dataset, *, seed: int = 0, run: int = 0, **params: object
) -> Dataset:
    """Load a data set by name; a ready `Dataset` is returned as it is.

    Parameters
    ----------
    source : str, DataSource or Dataset
        A registered name (``"digits"``, ``"cifar10"``, ``"cifar100"``, ``"synthetic"``), a source
        with its parameters, or a data set.
    seed, run : int >= 0, default 0
        The user's seed and the number of the run. Only synthetic data depend on them.
    **params
        Parameters of the named source, such as ``data_dir`` for CIFAR.

    Examples
    --------
    >>> load_dataset("synthetic", seed=1, shape=(1, 8, 8), n_train=100, n_test=10).shape
    (1, 8, 8)
    >>> load_dataset("cifar")
    Traceback (most recent call last):
    freshband.errors.UnknownNameError: unknown dataset 'cifar'; did you mean 'cifar10'?
    """
    seed, run = check_seed(seed), whole_number("run", run, at_least=0)
    found: DataSource | Dataset = registry.make(
        source,
        params,
        Dataset | DataSource,
        "dataset must be a name, a source or a Dataset",
        "; Dataset.of makes one from tensors or arrays",
    )
    if isinstance(found, Dataset):
        return found
    # Child 0 of the role draws images; the partition has the next ones.
    return found.load(np.random.default_rng(sequence(seed, Role.DATA, run).spawn(1)[0]))


def _as_tensor(name: str, value: Any) -> torch.Tensor:
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        value = value.copy()  # torch shares memory with arrays, and warns of those it may not write
    if isinstance(value, torch.utils.data.Dataset):  # which torch would go through, one by one
        raise ParameterError(
            f"{name} must be an array of numbers, got {shown(value)}; a TensorDataset has them in "
            "its tensors"
        )
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(f"{name} must be an array of numbers: {error}") from None


def _as_images(name: str, value: Any) -> torch.Tensor:
    images = _as_tensor(name, value)
    return images if images.dtype == torch.uint8 else images.to(torch.float32)


def _as_labels(name: str, value: Any) -> torch.Tensor:
    labels = _as_tensor(name, value)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ParameterError(f"{name} must be whole numbers, got {labels.dtype}")
    return labels.to(torch.int64)


def _check_tensor(name: str, value: object, *types: torch.dtype) -> None:
    if not isinstance(value, torch.Tensor):
        raise ParameterError(
            f"{name} must be a tensor, got {shown(value)}; Dataset.of takes arrays and lists too"
        )
    if value.dtype not in types:
        wanted = " or ".join(str(each).removeprefix("torch.") for each in types)
        raise ParameterError(f"{name} must be {wanted}, got {value.dtype}")


def _check_images(name: str, images: torch.Tensor) -> None:
    _check_tensor(name, images, torch.uint8, torch.float32)
    if images.ndim != 4 or images.numel() == 0:
        raise ParameterError(
            f"{name} must have the shape (n, channels, height, width), all >= 1, got "
            f"({_sizes(images.shape)})"
        )
    if images.is_floating_point() and not bool(torch.isfinite(images).all()):
        at = int(torch.nonzero(~torch.isfinite(images))[0, 0])
        raise ParameterError(f"{name} must be finite, got NaN or infinity in image {at}")


def _check_labels(name: str, labels: torch.Tensor, n: int, n_classes: int) -> None:
    _check_tensor(name, labels, torch.int64)
    if labels.shape != (n,):
        raise ParameterError(
            f"{name} must have the shape ({n}), one label per image, got ({_sizes(labels.shape)})"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= n_classes:
        wrong = low if low < 0 else high
        raise ParameterError(f"{name} must be in [0, {n_classes - 1}], got {wrong}")


def _check_normalisation(name: str, values: tuple[float, ...], channels: int) -> None:
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        numbers = []
    fit = all(math.isfinite(value) and (name == "mean" or value > 0) for value in numbers)
    if len(numbers) != channels or not fit:
        wanted = "numbers" if name == "mean" else "numbers > 0"
        raise ParameterError(f"{name} must be {channels} {wanted}, got {shown(values)}")


def _statistics(images: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of every channel."""
    mean, std = [], []
    for channel in range(images.shape[1]):
        values = images[:, channel].to(torch.float64)  # all at once would take much memory
        mean.append(float(values.mean()))
        std.append(float(values.std(correction=0)) or 1.0)
    return tuple(mean), tuple(std)


def _check_columns(columns: Mapping[str, npt.NDArray[Any]], n: int) -> None:
    for name, values in columns.items():
        if not isinstance(values, np.ndarray) or values.shape != (n,):
            raise ParameterError(
                f"columns must be arrays of one entry per training sample, {n}, got "
                f"{name!r}: {shown(values)}"
            )


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))
