from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from freshband.errors import ParameterError, UnknownNameError
from freshband.federated.data import (
    Dataset,
    Digits,
    Synthetic,
    load_dataset,
    registry,
)

X, Y = np.random.default_rng(0).random((12, 2, 3, 4)).astype(np.float32), np.arange(12) % 3


def test_the_sets_are_registered() -> None:
    assert registry.names() == ["cifar10", "cifar100", "digits", "sayings", "synthetic"]


def test_importing_freshband_imports_no_torch() -> None:
    code = (
        "import sys, freshband, freshband.federated, freshband.federated.partition\n"
        "import freshband.reporting.partition_map\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'sklearn', 'pooch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Digits -------------------------------------------------------------------------------------------


def test_digits_are_the_embedded_ones_and_all_of_them() -> None:
    digits, found = load_dataset("digits"), load_digits()
    images = torch.cat([digits.train_images, digits.test_images]).numpy()
    labels = torch.cat([digits.train_labels, digits.test_labels]).numpy()

    def lines(pixels: Any, classes: Any) -> list[Any]:
        return sorted(map(tuple, np.column_stack([pixels.reshape(-1, 64), classes]).astype(int)))

    assert lines(images, labels) == lines(found.images, found.target)


def test_the_digits_test_set_is_stratified_and_fixed() -> None:
    first, second = load_dataset("digits", seed=0), load_dataset(Digits(), seed=9, run=4)
    assert torch.equal(first.test_images, second.test_images)
    test = first.test_labels.bincount()
    share = test / (test + first.train_labels.bincount())
    assert bool(((share - 0.2).abs() < 0.005).all())
    assert first.train_images.max() == 16


# Synthetic ----------------------------------------------------------------------------------------


def test_synthetic_sets_depend_on_seed_and_run_alone() -> None:
    params = {"shape": (1, 5, 7), "n_train": 60, "n_test": 30, "n_classes": 4}
    one, same = (load_dataset("synthetic", seed=2, **params) for _ in range(2))
    assert torch.equal(one.train_images, same.train_images)
    assert torch.equal(one.test_labels, same.test_labels)
    assert one.shape == (1, 5, 7)
    for other in ({"seed": 3}, {"seed": 2, "run": 1}):
        assert not torch.equal(
            one.train_images, load_dataset("synthetic", **other, **params).train_images
        )


def test_synthetic_prototypes_are_as_far_apart_as_said() -> None:
    source = Synthetic(separation=6.0, n_classes=20)
    prototypes = source._prototypes(np.random.default_rng(0)).reshape(20, -1)
    distances = np.linalg.norm(prototypes[:, None] - prototypes[None], axis=-1)
    apart = distances[np.triu_indices(20, 1)]
    # Cosines of 48 independent patches have mean 0 and deviation 1/√48.
    assert abs((1 - apart**2 / 36).mean()) < 5 / np.sqrt(48 * len(apart))
    np.testing.assert_allclose(np.linalg.norm(prototypes, axis=1), 6 / np.sqrt(2), rtol=1e-5)


def test_synthetic_sets_can_be_learnt_but_not_perfectly() -> None:
    made = load_dataset("synthetic", shape=(1, 8, 8), n_train=4000, n_test=2000)
    x, y = made.train_images.flatten(1), made.train_labels
    means = torch.stack([x[y == label].mean(0) for label in range(10)])
    guesses = torch.cdist(made.test_images.flatten(1), means).argmin(1)
    accuracy = float((guesses == made.test_labels).float().mean())
    assert 0.7 < accuracy < 0.99


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"shape": (3, 32)}, "shape must be three whole numbers"),
        ({"shape": (3, 0, 32)}, "shape must be a list of numbers >= 1"),
        ({"n_classes": 1}, "n_classes must be a whole number >= 2, got 1"),
        ({"n_train": 9}, "n_train must be at least n_classes = 10, got 9"),
        ({"n_test": 0}, "n_test must be a whole number >= 1, got 0"),
        ({"separation": 0}, "separation must be a number > 0, got 0"),
        ({"seperation": 1}, "did you mean 'separation'?"),
    ],
)
def test_bad_synthetic_parameters_are_named(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        load_dataset("synthetic", **params)


# A part held out ---------------------------------------------------------------------------------


def test_what_is_held_out_is_a_fixed_part_of_the_training_set() -> None:
    digits = load_dataset("digits")
    assert digits.hold_out(0) is digits
    part, same = digits.hold_out(0.25), load_dataset("digits", seed=5, run=2).hold_out(0.25)
    assert torch.equal(part.test_images, same.test_images)
    assert (part.n_train, part.n_test) == (1078, 360)
    assert (part.mean, part.std) == (digits.mean, digits.std)

    def lines(images: torch.Tensor, labels: torch.Tensor) -> list[list[int]]:
        return torch.column_stack([images.flatten(1), labels]).tolist()

    both = lines(part.train_images, part.train_labels) + lines(part.test_images, part.test_labels)
    assert sorted(both) == sorted(lines(digits.train_images, digits.train_labels))
    few = Dataset.of(X[:2], Y[:2], X[:1], Y[:1], n_classes=3)
    assert [(few.hold_out(s).n_train, few.hold_out(s).n_test) for s in (0.1, 0.9)] == [(1, 1)] * 2
    with pytest.raises(ParameterError, match=r"share must be a number in \[0, 1\), got 1"):
        digits.hold_out(1)


# One's own ----------------------------------------------------------------------------------------


def test_ones_own_arrays_work_without_a_name() -> None:
    mine = Dataset.of(X, Y, X[:6], Y[:6], name="mine", class_names=["a", "b", "c"])
    assert load_dataset(mine) is mine
    assert (mine.n_train, mine.n_test, mine.n_classes, mine.shape) == (12, 6, 3, (2, 3, 4))
    scaled = mine.normalise(mine.train_images)
    expected = (X - X.mean((0, 2, 3), keepdims=True)) / X.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(scaled, expected, atol=1e-5)
    assert mine.to("cpu").train_images.dtype == torch.float32


def test_bytes_stay_bytes_and_constant_channels_are_centred() -> None:
    flat = np.full((4, 1, 2, 2), 7, np.uint8)
    flat.flags.writeable = False
    mine = Dataset.of(flat, [0, 1, 0, 1], flat, [0, 1, 0, 1])
    assert mine.train_images.dtype == torch.uint8
    assert (mine.mean, mine.std) == ((7.0,), (1.0,))
    assert not mine.normalise(mine.train_images).any()


def test_normalising_takes_batches_of_any_rank() -> None:
    mine = Dataset.of(X, Y, X, Y)
    stacked = mine.normalise(mine.train_images.reshape(3, 4, 2, 3, 4))
    assert torch.equal(stacked.reshape(12, 2, 3, 4), mine.normalise(mine.train_images))


BAD = X.copy()
BAD[5, 0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_images": X[0]}, r"train_images must have the shape \(n, channels"),
        ({"train_images": X[:0], "train_labels": Y[:0]}, "train_images must have the shape"),
        ({"train_images": BAD}, "train_images must be finite, got NaN or infinity in image 5"),
        ({"train_images": "cat"}, "train_images must be an array of numbers"),
        ({"test_images": X[:, :1]}, r"test_images must have the shape of train_images, .*2, 3, 4"),
        ({"train_labels": Y[:5]}, r"train_labels must have the shape \(12\)"),
        ({"train_labels": Y + 0.5}, "train_labels must be whole numbers, got torch.float64"),
        ({"test_labels": Y - 1}, r"test_labels must be in \[0, 2\], got -1"),
        ({"n_classes": 2}, r"train_labels must be in \[0, 1\], got 2"),
        ({"n_classes": 1}, "n_classes must be a whole number >= 2, got 1"),
        ({"class_names": ["a"]}, "class_names must be empty or n_classes = 3 names, got 1"),
        (
            {"train_images": torch.utils.data.TensorDataset(torch.from_numpy(X))},
            "train_images must be an array of numbers, got <.*TensorDataset .*in its tensors",
        ),
    ],
)
def test_bad_tensors_are_named(change: dict[str, Any], message: str) -> None:
    values = {"train_images": X, "train_labels": Y, "test_images": X, "test_labels": Y, **change}
    with pytest.raises(ParameterError, match=message):
        Dataset.of(**values)


def test_the_plain_constructor_checks_as_well() -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    for change, message in (
        ({"std": (1.0, 0.0)}, "std must be 2 numbers > 0"),
        ({"mean": (1.0,)}, "mean must be 2 numbers"),
        ({"train_images": x.double()}, "train_images must be uint8 or float32"),
        ({"train_labels": y.int()}, "train_labels must be int64"),
        ({"train_images": X}, r"train_images must be a tensor, got array\(.*; Dataset\.of takes"),
        ({"test_labels": Y.tolist()}, r"test_labels must be a tensor, got \[.*; Dataset\.of takes"),
        ({"mean": 0.0}, r"mean must be 2 numbers, got 0\.0"),
        ({"std": "ab"}, "std must be 2 numbers > 0, got 'ab'"),
        ({"class_names": 3}, "class_names must be empty or n_classes = 3 names, got 3"),
    ):
        values: dict[str, Any] = {
            "train_images": x,
            "train_labels": y,
            "test_images": x,
            "test_labels": y,
            "mean": (0.0, 0.0),
            "std": (1.0, 1.0),
            **change,
        }
        with pytest.raises(ParameterError, match=message):
            Dataset(name="mine", n_classes=3, **values)


def test_loading_checks_what_it_is_given() -> None:
    with pytest.raises(UnknownNameError, match="'digit'; did you mean 'digits'"):
        load_dataset("digit")
    with pytest.raises(ParameterError, match="with a ready Digits"):
        load_dataset(Digits(), data_dir="x")
    with pytest.raises(
        ParameterError, match="dataset must be a name, a source or a Dataset, got 3"
    ):
        load_dataset(3)
    with pytest.raises(
        ParameterError, match=r"got \{.*; Dataset\.of makes one from tensors"
    ) as told:
        load_dataset({"images": X, "labels": Y})
    assert "\n" not in str(told.value)
    with pytest.raises(ParameterError, match="seed must be"):
        load_dataset("digits", seed=-1)
