"""What a metric is: how good a model is, larger being better, and the registry of metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

from freshband._registry import Registry

Metric: TypeAlias = Callable[[torch.Tensor, torch.Tensor], Any]


@runtime_checkable
class MetricSpec(Protocol):
    """A metric: a frozen `freshband.parameters.Parameters` that can be called."""

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        """Return one number for the outputs of all samples; larger is better."""
        ...


registry: Registry[type[MetricSpec]] = Registry("metric", "freshband.federated.metrics")
register = registry.register


def build_metric(metric: str | Metric, **params: object) -> Metric:
    """Return a metric by name; a function of outputs and targets is returned as it is.

    Examples
    --------
    >>> build_metric("accuracy")(torch.eye(3), torch.tensor([0, 1, 1]))
    0.666...
    """
    wanted = "metric must be a name or a function of outputs and targets"
    found: Metric = registry.make(metric, params, Callable, wanted)
    return found
