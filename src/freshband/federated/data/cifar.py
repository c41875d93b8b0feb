"""CIFAR-10 and CIFAR-100 from their official binary files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BeforeValidator

from freshband.errors import FileError
from freshband.federated._download import Archive, cache_folder, fetch
from freshband.federated.data.base import Dataset, register
from freshband.parameters import Parameters

_URL = "https://www.cs.toronto.edu/~kriz"
_PIXELS = 3 * 32 * 32
_OBJECTS = "airplane automobile bird cat deer dog frog horse ship truck"


def _as_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


if TYPE_CHECKING:  # what may be given; what is kept is a string
    _Text: TypeAlias = str | os.PathLike[str]
else:
    _Text = Annotated[str, BeforeValidator(_as_text)]


class _FileLayout(NamedTuple):
    """How a data set lies in its files.

    A file is a sequence of records: label bytes, then 3,072 pixels, the red, green and blue plane
    each row by row. The last label byte counts: CIFAR-100 puts the coarse class before the fine.
    """

    folder: str  # its name in the official archive
    train: dict[str, int]  # files, and the number of images in each
    test: dict[str, int]
    label_bytes: int  # before the pixels of an image
    n_classes: int
    archive: str = ""  # its file name on the web
    sha256: str = ""

    @property
    def record(self) -> int:
        """The number of bytes of an image with its labels."""
        return self.label_bytes + _PIXELS

    @property
    def sizes(self) -> dict[str, int]:
        """Size of every file in bytes."""
        return {name: n * self.record for name, n in {**self.train, **self.test}.items()}


_CIFAR10 = _FileLayout(
    folder="cifar-10-batches-bin",
    train={f"data_batch_{number}.bin": 10_000 for number in range(1, 6)},
    test={"test_batch.bin": 10_000},
    label_bytes=1,
    n_classes=10,
    archive="cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
_CIFAR100 = _FileLayout(
    folder="cifar-100-binary",
    train={"train.bin": 50_000},
    test={"test.bin": 10_000},
    label_bytes=2,
    n_classes=100,
    archive="cifar-100-binary.tar.gz",
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
)


@final
@register("cifar10")
class Cifar10(Parameters):
    """CIFAR-10: 50,000 training and 10,000 test photographs of 32×32 pixels, ten classes.

    The paper's first set. Without ``data_dir`` the official binary archive (162 MiB) is downloaded
    once, checked against its known SHA-256 sum and unpacked into the cache folder, which the
    environment variable ``FRESHBAND_CACHE`` moves.

    Parameters
    ----------
    data_dir : str, optional
        A folder with ``data_batch_1.bin`` … ``data_batch_5.bin`` and ``test_batch.bin``, or one
        that holds ``cifar-10-batches-bin`` from the archive. Nothing is downloaded then.

    Examples
    --------
    >>> from freshband.federated.data import load_dataset
    >>> load_dataset("cifar10", data_dir="nowhere")
    Traceback (most recent call last):
    freshband.errors.FileError: nowhere: no such folder; CIFAR's binary files should be in it: ...

    References
    ----------
    A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """

    data_dir: _Text | None = None

    def load(self, rng: np.random.Generator) -> Dataset:
        """Read the set; see `DataSource.load`."""
        return _load(
            "cifar10",
            _CIFAR10,
            self.data_dir,
            mean=(125.307, 122.950, 113.865),
            std=(62.993, 62.089, 66.705),
            class_names=tuple(_OBJECTS.split()),
            default_model="cnn8",
        )


@final
@register("cifar100")
class Cifar100(Parameters):
    """CIFAR-100: 50,000 training and 10,000 test photographs of 32×32 pixels, 100 classes.

    The paper's second set, with the fine labels. Its archive has 161 MiB; the rest is as in
    `Cifar10`.

    Parameters
    ----------
    data_dir : str, optional
        A folder with ``train.bin`` and ``test.bin``, or one that holds ``cifar-100-binary`` from
        the archive. Nothing is downloaded then.

    Examples
    --------
    >>> from freshband.federated.data import Cifar100
    >>> Cifar100(data_dir="data").data_dir
    'data'
    """

    data_dir: _Text | None = None

    def load(self, rng: np.random.Generator) -> Dataset:
        """Read the set; see `DataSource.load`."""
        return _load(
            "cifar100",
            _CIFAR100,
            self.data_dir,
            mean=(129.304, 124.070, 112.434),
            std=(68.170, 65.392, 70.418),
            default_model="resnet18",
        )


def _load(
    name: str, layout: _FileLayout, data_dir: str | os.PathLike[str] | None, **about: Any
) -> Dataset:
    parts = _read_folder(_folder(layout, data_dir), layout)
    return Dataset(name, *parts, n_classes=layout.n_classes, **about)


def _folder(layout: _FileLayout, data_dir: str | os.PathLike[str] | None) -> Path:
    """Return where the files are: the user's folder, the one inside it, or the cache."""
    if data_dir is None:
        url, checksum = f"{_URL}/{layout.archive}", f"sha256:{layout.sha256}"
        return fetch(Archive(url, checksum, layout.folder, layout.sizes), cache_folder())
    given = Path(data_dir)
    if not given.is_dir():
        raise FileError(
            f"{given}: no such folder; CIFAR's binary files should be in it: "
            f"{', '.join(layout.sizes)}"
        )
    inside = given / layout.folder
    return inside if inside.is_dir() else given


def _read_folder(
    folder: Path, layout: _FileLayout
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return training images and labels, then test images and labels.

    Images are uint8 of shape (n, 3, 32, 32), labels int64 of shape (n,). Raises `FileError` if a
    file is missing, of another length, or holds a label that does not exist.
    """
    for name, size in layout.sizes.items():  # all of them, before the first is read
        _check_size(folder / name, size, layout)
    return *_read_part(folder, layout, layout.train), *_read_part(folder, layout, layout.test)


def _check_size(path: Path, size: int, layout: _FileLayout) -> None:
    wanted = f"{size:,} bytes ({size // layout.record:,} images of {layout.record:,} bytes)"
    if not path.is_file():
        hint = ""
        if (path.parent / "batches.meta").exists() or (path.parent / "meta").exists():
            hint = "; this is the Python version, which is pickled and never read: get the binary"
        raise FileError(f"{path}: no such file; it should have {wanted}{hint}")
    got = path.stat().st_size
    if got != size:
        raise FileError(f"{path}: damaged or incomplete: must have {wanted}, got {got:,}")


def _read_part(
    folder: Path, layout: _FileLayout, files: dict[str, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    records = [_read_records(folder / name, n, layout) for name, n in files.items()]
    images = np.concatenate([each[:, layout.label_bytes :] for each in records])
    labels = np.concatenate([each[:, layout.label_bytes - 1] for each in records])
    return (
        torch.from_numpy(images).reshape(-1, 3, 32, 32),
        torch.from_numpy(labels.astype(np.int64)),
    )


def _read_records(path: Path, n: int, layout: _FileLayout) -> npt.NDArray[np.uint8]:
    try:
        records = np.fromfile(path, np.uint8).reshape(n, layout.record)
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read: {error}") from None
    labels = records[:, layout.label_bytes - 1]
    wrong = np.flatnonzero(labels >= layout.n_classes)
    if len(wrong):
        raise FileError(
            f"{path}: damaged: labels must be in [0, {layout.n_classes - 1}], got "
            f"{labels[wrong[0]]} in image {wrong[0]}"
        )
    return records
