"""Synthetic images for benchmarks: of any shape and number, and learnable."""

from __future__ import annotations

from typing import Annotated, final

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator

from freshband.errors import ParameterError
from freshband.federated.data.base import Dataset, register
from freshband.parameters import Parameters

_COARSE = 4  # a prototype is a pattern of at most 4×4 patches: convolutions can see it


@final
@register("synthetic")
class Synthetic(Parameters):
    """One pattern per class plus Gaussian noise, in any shape and number.

    Image i of class c is `x_i = p_c + z_i` with `z_i ~ N(0, I)`. The prototypes `p_c` are random
    patterns of coarse patches, about ``separation`` noise deviations apart, so that the best
    classifier confuses a pair with probability `Q(separation / 2)`, 2.3 % at the default. Labels
    are balanced and in random order.

    Parameters
    ----------
    shape : (int, int, int), default (3, 32, 32)
        Channels, height and width, each >= 1.
    n_classes : int >= 2, default 10
    n_train, n_test : int, default 10,000 and 2,000
        Numbers of images, each >= n_classes.
    separation : float > 0, default 4
        Distance of two prototypes in standard deviations of the noise; less is harder.

    Examples
    --------
    >>> from freshband.federated.data import load_dataset
    >>> made = load_dataset("synthetic", shape=(1, 8, 8), n_train=50, n_test=20, seed=3)
    >>> made.train_labels.bincount().tolist()
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    """

    shape: tuple[Annotated[int, Field(ge=1)], ...] = (3, 32, 32)
    n_classes: Annotated[int, Field(ge=2)] = 10
    n_train: Annotated[int, Field(ge=1)] = 10_000
    n_test: Annotated[int, Field(ge=1)] = 2_000
    separation: Annotated[float, Field(gt=0)] = 4.0

    @model_validator(mode="after")
    def _agree(self) -> Synthetic:
        if len(self.shape) != 3:
            raise ParameterError(
                f"shape must be three whole numbers (channels, height, width), got {self.shape}"
            )
        for name in ("n_train", "n_test"):
            if getattr(self, name) < self.n_classes:
                raise ParameterError(
                    f"{name} must be at least n_classes = {self.n_classes}, got "
                    f"{getattr(self, name)}"
                )
        return self

    def load(self, rng: np.random.Generator) -> Dataset:
        """Draw the set; see `DataSource.load`."""
        prototypes = self._prototypes(rng)
        train = self._draw(rng, prototypes, self.n_train)
        test = self._draw(rng, prototypes, self.n_test)
        return Dataset.of(
            *train,
            *test,
            n_classes=self.n_classes,
            name="synthetic",
            default_model="cnn8" if min(self.shape[1:]) >= 8 else "mlp",
        )

    def _prototypes(self, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        channels, height, width = self.shape
        coarse = rng.standard_normal((self.n_classes, channels, _COARSE, _COARSE))
        rows = np.arange(height) * _COARSE // max(height, _COARSE)
        columns = np.arange(width) * _COARSE // max(width, _COARSE)
        patterns = coarse[:, :, rows][:, :, :, columns]
        lengths = np.sqrt((patterns**2).sum(axis=(1, 2, 3), keepdims=True))
        scaled: npt.NDArray[np.float32] = patterns / lengths * self.separation / np.sqrt(2)
        return scaled.astype(np.float32)

    def _draw(
        self, rng: np.random.Generator, prototypes: npt.NDArray[np.float32], n: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        labels = rng.permutation(np.arange(n) % self.n_classes)
        images = rng.standard_normal((n, *self.shape), np.float32)
        for label in range(self.n_classes):  # in place: no second copy of all images
            images[labels == label] += prototypes[label]
        return torch.from_numpy(images), torch.from_numpy(labels)
