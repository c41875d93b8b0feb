"""Cross-entropy of classes or tokens."""

from __future__ import annotations

from typing import Annotated, Any, final

import torch
from pydantic import Field

from freshband.errors import ParameterError
from freshband.federated.losses.base import register, scores_of
from freshband.parameters import Parameters


@final
@register("cross-entropy")
class CrossEntropy(Parameters):
    """Minus the logarithm of the probability of the right class, by softmax.

    The default for data with classes. Scores of classes are the last dimension: (batch, classes)
    with targets (batch,), or (batch, tokens, classes) with targets (batch, tokens). Targets of -100
    are left out.

    Parameters
    ----------
    label_smoothing : float in [0, 1], default 0
        The share of the target that is spread over all classes.

    Examples
    --------
    >>> CrossEntropy()(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64))
    tensor(1.3863)
    """

    label_smoothing: Annotated[float, Field(ge=0, le=1)] = 0.0

    def __call__(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean over all targets."""
        scores = scores_of(outputs)
        if scores.shape[:-1] != targets.shape:
            raise ParameterError(
                f"outputs must have the shape of targets, {tuple(targets.shape)}, and the scores "
                f"of classes last, got {tuple(scores.shape)}"
            )
        return torch.nn.functional.cross_entropy(
            scores.flatten(0, -2), targets.flatten(), label_smoothing=self.label_smoothing
        )
