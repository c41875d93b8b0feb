"""Handwritten digits that come with scikit-learn: real images, no download."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt
import torch

from freshband.errors import FileError
from freshband.federated.data.base import _SPLIT_SEED, Dataset, register
from freshband.parameters import Parameters

_TEST_SHARE = 0.2


@final
@register("digits")
class Digits(Parameters):
    """1,797 handwritten digits of 8×8 pixels with 17 grey levels, embedded in scikit-learn.

    The default: a run needs no network and takes seconds. A fifth of every class is the test set
    (359 images); the split does not depend on the seed.

    Notes
    -----
    **Deviations.** The paper does not use this set; it takes the place of CIFAR in quick runs.

    Examples
    --------
    >>> from freshband.federated.data import load_dataset
    >>> digits = load_dataset("digits")
    >>> digits.n_train, digits.n_test
    (1438, 359)

    References
    ----------
    E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI machine learning
    repository, 1998.
    """

    def load(self, rng: np.random.Generator) -> Dataset:
        """Load the set; see `DataSource.load`."""
        table = _read_table()
        images = table[:, :-1].reshape(-1, 1, 8, 8)
        labels = table[:, -1].astype(np.int64)
        test = np.sort(_test_places(labels))
        train = np.setdiff1d(np.arange(len(labels)), test)
        parts = [part[which] for which in (train, test) for part in (images, labels)]
        return Dataset.of(
            *map(torch.from_numpy, parts),
            n_classes=10,
            name="digits",
            class_names=tuple(map(str, range(10))),
        )


def _read_table() -> npt.NDArray[np.uint8]:
    """Return pixels and label of each image from scikit-learn's file.

    Importing what reads it there takes a second, which every process of a client would spend.
    """
    found = importlib.util.find_spec("sklearn")
    folders = (found and found.submodule_search_locations) or []
    for file in (Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders):
        if file.exists():
            return np.loadtxt(file, delimiter=",", dtype=np.uint8)
    raise FileError("digits: needs scikit-learn; install it with: pip install 'freshband[train]'")


def _test_places(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    rng = np.random.default_rng(_SPLIT_SEED)
    chosen = []
    for label in np.unique(labels):
        places = rng.permutation(np.flatnonzero(labels == label))
        chosen.append(places[: round(_TEST_SHARE * len(places))])
    return np.concatenate(chosen)
