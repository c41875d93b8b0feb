from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freshband.errors import FileError, ParameterError
from freshband.federated.data import Cifar10, Cifar100, load_dataset
from freshband.federated.data.cifar import _CIFAR10, _CIFAR100, _FileLayout, _read_folder
from tests.federated.files import TINY_10, TINY_100, write, write_blank

both = pytest.mark.parametrize("layout", [TINY_10, TINY_100], ids=["cifar10", "cifar100"])


def test_the_official_sizes() -> None:
    assert set(_CIFAR10.sizes.values()) == {30_730_000}
    assert _CIFAR100.sizes == {"train.bin": 153_700_000, "test.bin": 30_740_000}


@both
def test_files_come_back_pixel_by_pixel(tmp_path: Path, layout: _FileLayout) -> None:
    held = write(tmp_path, layout)
    parts = _read_folder(tmp_path, layout)
    for (images, labels), files in zip(
        (parts[:2], parts[2:]), (layout.train, layout.test), strict=True
    ):
        expected = np.concatenate([held[name] for name in files])
        assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
        assert images.shape == (len(expected), 3, 32, 32)
        np.testing.assert_array_equal(labels, expected[:, layout.label_bytes - 1])
        for image, record in zip(images, expected, strict=True):
            for channel in range(3):  # the format: a plane a colour, row by row
                begin = layout.label_bytes + 1024 * channel
                plane = record[begin : begin + 1024].reshape(32, 32)
                np.testing.assert_array_equal(image[channel], plane)


@pytest.mark.parametrize(
    ("name", "layout", "model"),
    [("cifar10", _CIFAR10, "cnn8"), ("cifar100", _CIFAR100, "resnet18")],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_folder_is_read_by_name(
    tmp_path: Path, name: str, layout: _FileLayout, model: str, nested: bool
) -> None:
    write_blank(tmp_path / layout.folder, layout)
    last = list(layout.train)[-1]
    with (tmp_path / layout.folder / last).open("r+b") as file:  # one pixel, one label
        file.seek(-layout.record + layout.label_bytes - 1, os.SEEK_END)
        file.write(bytes([7, 255]))
    folder = tmp_path if nested else tmp_path / layout.folder
    dataset = load_dataset(name, data_dir=folder)
    assert (dataset.n_train, dataset.n_test) == (50_000, 10_000)
    assert (dataset.shape, dataset.n_classes) == ((3, 32, 32), layout.n_classes)
    assert (dataset.name, dataset.default_model) == (name, model)
    assert (int(dataset.train_labels[-1]), int(dataset.train_images[-1, 0, 0, 0])) == (7, 255)
    assert int(dataset.train_images.count_nonzero()) == 1


@both
def test_a_missing_file_is_named_with_its_size(tmp_path: Path, layout: _FileLayout) -> None:
    write(tmp_path, layout)
    name = list(layout.sizes)[-1]
    (tmp_path / name).unlink()
    wanted = f"{name}: no such file; it should have {layout.sizes[name]:,} bytes \\(3 images"
    with pytest.raises(FileError, match=wanted):
        _read_folder(tmp_path, layout)


@both
@pytest.mark.parametrize("size", [0, 1, 3073, 9218, 9999])
def test_a_file_of_another_size_is_named(tmp_path: Path, layout: _FileLayout, size: int) -> None:
    write(tmp_path, layout)
    name = next(iter(layout.test))
    (tmp_path / name).write_bytes(bytes(size))
    wanted = f"{name}: damaged or incomplete: must have {layout.sizes[name]:,} bytes.*got {size:,}$"
    with pytest.raises(FileError, match=wanted):
        _read_folder(tmp_path, layout)


@both
def test_a_label_that_does_not_exist_is_named(tmp_path: Path, layout: _FileLayout) -> None:
    held = write(tmp_path, layout)
    name = next(iter(layout.train))
    held[name][2, layout.label_bytes - 1] = layout.n_classes
    held[name].tofile(tmp_path / name)
    wanted = f"{name}: damaged: labels must be in .*got {layout.n_classes} in image 2"
    with pytest.raises(FileError, match=wanted):
        _read_folder(tmp_path, layout)


@pytest.mark.parametrize("source", [Cifar10, Cifar100])
def test_folders_without_the_files_are_named(tmp_path: Path, source: type[Any]) -> None:
    with pytest.raises(FileError, match=r"nowhere: no such folder; CIFAR's binary files.*\.bin"):
        load_dataset(source(data_dir=tmp_path / "nowhere"))
    with pytest.raises(FileError, match=r"no such file; it should have [\d,]+ bytes"):
        load_dataset(source(data_dir=str(tmp_path)))
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="no such folder"):
        load_dataset(source(data_dir=tmp_path / "file"))


def test_the_pickled_version_is_never_read(tmp_path: Path) -> None:
    for name in ("data_batch_1", "batches.meta"):
        (tmp_path / name).write_bytes(pickle.dumps({}))
    with pytest.raises(FileError, match="pickled and never read"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_a_folder_has_to_be_a_path() -> None:
    with pytest.raises(ParameterError, match="data_dir must be text or None, got 3"):
        load_dataset("cifar10", data_dir=3)


def test_without_a_folder_the_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHBAND_CACHE", str(tmp_path))
    write_blank(tmp_path / _CIFAR10.folder, _CIFAR10)
    assert load_dataset("cifar10").n_train == 50_000


def test_noise_is_refused_or_read_never_more(tmp_path: Path) -> None:
    """Cut or overwrite files at random: the answer is a FileError or labels in range."""
    rng = random.Random(0)
    for _ in range(40):
        held = write(tmp_path, TINY_100)
        path = tmp_path / rng.choice(list(held))
        content = bytearray(path.read_bytes())
        if rng.random() < 0.5:
            del content[rng.randrange(len(content)) :]
        else:
            begin = rng.randrange(len(content))
            content[begin : begin + 50] = rng.randbytes(min(50, len(content) - begin))
        path.write_bytes(content)
        try:
            _, train, _, test = _read_folder(tmp_path, TINY_100)
        except FileError:
            continue
        assert max(int(train.max()), int(test.max())) < 100
