"""Who is told about the rounds of a run: TensorBoard, MLflow, Weights & Biases, or your own.

A logger has three methods, see `Logger`; a function of records will do. Those with a name can be
given on the command line, as ``--log NAME``; a new one is registered with ``@register("mine")``.
"""

from freshband.federated.loggers.base import Logger, logging_to, register, registry, scalars_of
from freshband.federated.loggers.mlflow import MLflow
from freshband.federated.loggers.tensorboard import TensorBoard
from freshband.federated.loggers.wandb import Wandb

__all__ = [
    "Logger",
    "MLflow",
    "TensorBoard",
    "Wandb",
    "logging_to",
    "register",
    "registry",
    "scalars_of",
]
