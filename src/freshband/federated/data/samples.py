"""Samples of any kind: tokens, features, several inputs, targets that are classes or numbers.

They are read once from whatever holds them, and lie in memory as tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from freshband.errors import ParameterError, reason, shown
from freshband.federated.data.base import Dataset, _check_columns

_Columns: TypeAlias = dict[Any, Any]
_TARGETS = ("label", "labels", "target", "targets", "y")
_INPUTS = ("image", "img", "images", "pixel_values", "input_ids", "inputs", "features", "x")
_TAKEN = (
    "a torch or torchvision data set, a Hugging Face one, a mapping of columns, or a tuple of "
    "arrays with the targets last"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Samples(Dataset):
    """Samples that reach the model as they are: integers stay integers, nothing is normalised.

    Attributes
    ----------
    train_images, test_images : tensor, shape (n, ...)
        The first input of the model, of any type.
    train_labels, test_labels : tensor of int64 or float32, shape (n, ...)
        Targets: classes, tokens or numbers.
    n_classes : int
        0 where the targets are numbers.
    train_more, test_more : tuple of tensors
        Further inputs of the model.
    """

    train_more: tuple[torch.Tensor, ...] = ()
    test_more: tuple[torch.Tensor, ...] = ()

    def __post_init__(self) -> None:
        _check_columns(self.columns, len(self.train_images))
        for part in ("train", "test"):
            targets = getattr(self, f"{part}_labels")
            for values in self._all(part):
                if not len(values) or len(values) != len(targets):
                    raise ParameterError(
                        f"{part} must have one target per sample, at least one, got {len(values)} "
                        f"samples and {len(targets)} targets"
                    )
                if values.is_floating_point() and not bool(torch.isfinite(values).all()):
                    at = int(torch.nonzero(~torch.isfinite(values))[0, 0])
                    raise ParameterError(
                        f"{part} must be finite, got NaN or infinity in sample {at}"
                    )
        for one, other in zip(self._all("train"), self._all("test"), strict=True):
            if one.shape[1:] != other.shape[1:] or one.dtype != other.dtype:
                raise ParameterError(
                    "test samples must have the shape and type of training samples, "
                    f"{tuple(one.shape[1:])} of {one.dtype}, got {tuple(other.shape[1:])} of "
                    f"{other.dtype}"
                )

    def _all(self, part: str) -> list[torch.Tensor]:
        images, targets = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
        return [images, *getattr(self, f"{part}_more"), targets]

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Return them as they are."""
        return images

    def inputs(self, part: Literal["train", "test"], samples: Any) -> tuple[torch.Tensor, ...]:
        """Return what a model is given of some samples."""
        return tuple(each[samples] for each in self._all(part)[:-1])

    def _divide(self, train: torch.Tensor, test: torch.Tensor, **more: Any) -> Dataset:
        return super()._divide(
            train,
            test,
            train_more=tuple(each[train] for each in self.train_more),
            test_more=tuple(each[test] for each in self.train_more),
            **more,
        )

    def to(self, device: str | torch.device) -> Dataset:
        """Return the same set with its tensors on ``device``."""
        further: dict[str, Any] = {
            name: tuple(each.to(device) for each in getattr(self, name))
            for name in ("train_more", "test_more")
        }
        return dataclasses.replace(super().to(device), **further)


def read_samples(
    train: Any,
    test: Any,
    *,
    inputs: str | Sequence[str] | None = None,
    target: str | None = None,
    columns: Sequence[str] | Mapping[str, Any] = (),
    normalise: bool | None = None,
    n_classes: int | None = None,
    name: str = "custom",
    class_names: Sequence[str] = (),
    default_model: str = "",
) -> Dataset:
    """Read training and test samples into memory, whatever holds them.

    Parameters
    ----------
    train, test
        A ``torch.utils.data.Dataset`` with a length, such as those of torchvision, whose samples
        are tuples with the target last, or mappings; a Hugging Face data set or any mapping of
        columns; or a tuple of arrays with the targets last.
    inputs, target : str, optional
        Names of the columns that the model is given, in order, and of the target; by default the
        usual names, such as ``image`` or ``input_ids``, and ``label``.
    columns : list of str, or mapping of str to array, optional
        Further columns to keep of the training samples, such as ``user``, for the partition
        ``column``.
    normalise : bool, optional
        Whether samples are scaled to mean 0 and variance 1, by default where they are images,
        (channels, height, width), with one class each. Integers other than pixels never are.
    n_classes : int, optional
        By default the largest target plus one, or 0 where targets are not whole numbers.
    name, class_names, default_model
        As in `Dataset`.

    Examples
    --------
    >>> tokens = torch.arange(12).reshape(4, 3)
    >>> text = read_samples((tokens, tokens + 1), (tokens, tokens + 1))
    >>> text.n_classes, text.shape, text.inputs("train", [0])[0].dtype
    (13, (3,), torch.int64)
    """
    wanted = [inputs] if isinstance(inputs, str) else inputs
    named = columns if isinstance(columns, Mapping) else dict.fromkeys(columns)
    missing = [key for key, values in named.items() if values is None]
    read, tested = (
        _read(part, source, wanted, target, keep)
        for part, source, keep in (("train", train, missing), ("test", test, []))
    )
    kept = {
        key: np.asarray(read.columns[key] if values is None else values)
        for key, values in named.items()
    }
    targets = read.target, tested.target
    if n_classes is None:
        whole = not any(each.is_floating_point() for each in targets)
        n_classes = 1 + max(int(each.max()) for each in targets) if whole else 0
    first = read.inputs[0]
    image = len(read.inputs) == 1 and first.ndim == 4 and targets[0].ndim == 1 and n_classes > 1
    image &= first.dtype in (torch.uint8, torch.float32)
    if normalise and not image:
        raise ParameterError(
            "normalise is for images (channels, height, width) with one class each, got samples of "
            f"{tuple(first.shape[1:])} and {first.dtype}"
        )
    if image and normalise is not False:
        return Dataset.of(
            first, targets[0], tested.inputs[0], targets[1], n_classes=n_classes, name=name,
            class_names=class_names, columns=kept, default_model=default_model or "small-cnn",
        )  # fmt: skip
    return Samples(
        name=name,
        train_images=first,
        train_labels=targets[0],
        test_images=tested.inputs[0],
        test_labels=targets[1],
        n_classes=n_classes,
        mean=(),
        std=(),
        class_names=tuple(class_names),
        default_model=default_model,
        columns=kept,
        train_more=tuple(read.inputs[1:]),
        test_more=tuple(tested.inputs[1:]),
    )


def read_clients(train: Sequence[Any], test: Any, **options: Any) -> Dataset:
    """Read one data set per client; see `Dataset.of_clients`.

    Examples
    --------
    >>> rows = torch.zeros(4, 2), torch.ones(4)
    >>> read_clients([rows, rows, rows], rows).columns["client"].tolist()
    [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    """
    if not isinstance(train, list | tuple) or not train:
        raise ParameterError(
            f"train must be a list with {_TAKEN} of each client, got {shown(train)}"
        )
    wanted, target = options.pop("inputs", None), options.pop("target", None)
    wanted = [wanted] if isinstance(wanted, str) else wanted
    parts = [_read(f"train[{at}]", one, wanted, target, []) for at, one in enumerate(train)]
    shapes = {tuple(each.shape[1:] for each in (*part.inputs, part.target)) for part in parts}
    if len(shapes) > 1:
        raise ParameterError(f"samples of all clients must have one shape, got {sorted(shapes)}")
    joined = [torch.cat(each) for each in zip(*((*p.inputs, p.target) for p in parts), strict=True)]
    owners = np.repeat(np.arange(len(parts)), [len(part.target) for part in parts])
    tested = _read("test", test, wanted, target, [])
    return read_samples(
        tuple(joined), (*tested.inputs, tested.target), columns={"client": owners}, **options
    )


# -------------------------------------------------------------------------------------- reading


@dataclasses.dataclass(frozen=True, eq=False)
class _Read:
    inputs: list[torch.Tensor]
    target: torch.Tensor
    columns: _Columns


def _read(
    part: str, source: Any, inputs: Sequence[str] | None, target: str | None, keep: Sequence[str]
) -> _Read:
    """Read one source, by columns."""
    found = _columns_of(part, source)
    numbered = all(isinstance(key, int) for key in found)
    if numbered and (inputs or target or keep):
        raise ParameterError(
            f"{part} has no named columns to choose {(inputs or [target or keep[0]])[0]!r} from; "
            "they are the inputs in order, and the target"
        )
    last = list(found)[-1] if numbered else _choose(part, found, target, _TARGETS, "target")
    first = inputs or (
        [key for key in found if key != last]
        if numbered
        else [_choose(part, found, None, _INPUTS, "inputs")]
    )
    for key in (*first, *keep):
        if key not in found:
            raise ParameterError(f"{part} has no column {key!r}, it has {list(found)}")
    if not first:
        raise ParameterError(f"{part} must hold inputs and targets, got one column")
    read = [_tensor(f"{part}, {_called(key)}", found[key]) for key in first]
    return _Read(read, _tensor(f"{part}, {_called(last)}", found[last]), found)


def _called(key: object) -> str:
    return f"part {key}" if isinstance(key, int) else f"column {key!r}"


def _choose(
    part: str, found: _Columns, given: str | None, usual: Sequence[str], option: str
) -> str:
    for key in (given,) if given else usual:
        if key in found:
            return key
    raise ParameterError(
        f"{part} has the columns {list(found)}: say which is meant with {option}=..."
        + (f", got {given!r}" if given else "")
    )


def _columns_of(part: str, source: Any) -> _Columns:
    """Return what a source holds, by the names or the places of its columns."""
    if isinstance(source, torch.utils.data.TensorDataset):
        return dict(enumerate(source.tensors))
    if hasattr(source, "column_names") and isinstance(source.column_names, list):
        return {key: source[key] for key in source.column_names}  # of Hugging Face
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, tuple) and all(
        isinstance(each, np.ndarray | torch.Tensor) for each in source
    ):
        return dict(enumerate(source))
    streamed = isinstance(source, torch.utils.data.IterableDataset | torch.utils.data.DataLoader)
    single = isinstance(source, str | np.ndarray | torch.Tensor)
    if streamed or single or not hasattr(source, "__getitem__"):
        hint = "; make a list of its samples first" * streamed
        raise ParameterError(f"{part} must be {_TAKEN}, got {shown(source)}{hint}")
    if not hasattr(source, "__len__") or len(source) == 0:
        raise ParameterError(f"{part} must have a length of at least 1, got {shown(source)}")
    samples = [source[at] for at in range(len(source))]
    first = samples[0]
    keys = (
        list(first)
        if isinstance(first, Mapping)
        else range(len(first))
        if isinstance(first, tuple | list)
        else ()
    )
    if not keys:
        raise ParameterError(
            f"{part} must have samples that are tuples of inputs and a target, or mappings, got "
            f"{shown(first)} first"
        )
    try:
        return {key: [sample[key] for sample in samples] for key in keys}
    except (IndexError, KeyError, TypeError):
        raise ParameterError(f"{part} must have samples of the same parts, {list(keys)}") from None


def _tensor(what: str, values: Any) -> torch.Tensor:
    """Return a column as one tensor: int64, uint8 or float32."""
    if not isinstance(values, np.ndarray | torch.Tensor):
        rows = [_row(what, value) for value in values]
        shapes = {tuple(row.shape) for row in rows}
        if len(shapes) > 1:
            one, other = sorted(shapes)[:2]
            raise ParameterError(
                f"{what}: samples must all have one shape, got {one} and {other}; pad or crop them"
            )
        values = torch.stack(rows)
    try:
        tensor = torch.as_tensor(values if isinstance(values, torch.Tensor) else np.array(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(f"{what} must be numbers: {reason(error)}") from None
    if tensor.dtype in (torch.uint8, torch.bool):
        return tensor.to(torch.int64) if tensor.ndim == 1 else tensor
    return tensor.to(torch.float32 if tensor.is_floating_point() else torch.int64)


def _row(what: str, value: Any) -> torch.Tensor:
    if isinstance(value, str):
        raise ParameterError(
            f"{what} holds text, {shown(value, 40)}: turn it into numbers first, with a tokeniser"
        )
    if hasattr(value, "convert") and hasattr(value, "getbands"):  # a picture of PIL
        pixels = np.array(value)
        value = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    try:
        return value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(
            f"{what} must hold numbers, got {shown(value)}: {reason(error)}"
        ) from None
