"""How good a model is: metrics by name, or the user's own function.

A new metric is one file with a class, decorated with ``@register("my-metric")``; a function of
outputs and targets needs no registration.
"""

from freshband.federated.metrics.accuracy import Accuracy
from freshband.federated.metrics.base import Metric, MetricSpec, build_metric, register, registry
from freshband.federated.metrics.r2 import R2

__all__ = [
    "R2",
    "Accuracy",
    "Metric",
    "MetricSpec",
    "build_metric",
    "register",
    "registry",
]
