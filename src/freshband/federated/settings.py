"""What a training run is, as one validated object that fits into a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, final

from pydantic import Field, field_validator, model_validator

from freshband.channels.base import ChannelModel, build, registry
from freshband.errors import ParameterError, shown
from freshband.federated.aggregation import Aggregation
from freshband.federated.contribution import ColdStart, LeaveOneOut
from freshband.locating import find_again, with_absolute_files
from freshband.parameters import Parameters
from freshband.policy import Policy, parse_policy

__all__ = ["Training"]

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]

# Settings that only some algorithms read.
_READ_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "aggregation": ("async", "fedavg"),
    "local_rounds": ("async", "fedasync", "fedbuff"),  # with fedavg no client waits
    "server_lr": ("async", "fedavg", "fedbuff"),
    "mixing": ("fedasync",),
    "staleness": ("fedasync", "fedbuff"),
    "staleness_a": ("fedasync", "fedbuff"),
    "staleness_b": ("fedasync", "fedbuff"),
    "buffer_size": ("fedbuff",),
}
_OF_CONTRIBUTIONS: Final = ("loo", "cold_start", "error_samples")


@final
class Training(Parameters):
    """Everything that decides how a run goes; the same values give the same run.

    A setting that has no effect beside the others, such as ``mixing`` without ``fedasync``, must
    keep its default: see `unused`. Settings from a file are read with `as_stored`.

    Parameters
    ----------
    dataset : str, default "digits"
        ``"digits"``, ``"cifar10"``, ``"cifar100"`` or ``"synthetic"``, with ``dataset_options``.
    partition : str, default "dirichlet"
        Who holds what: ``"dirichlet"``, ``"iid"`` or ``"shards"``, with ``partition_options``.
    val_fraction : float in [0, 1), default 0.1
        Share of its samples a client keeps to measure errors on.
    model : str, optional
        ``"cnn8"``, ``"resnet18"``, ``"small-cnn"`` or ``"mlp"``, with ``model_options``; by default
        the one that suits the data set.
    channels : str, default "fig3-piecewise"
        What the air does, with ``channel_options``. Unless those say otherwise there are one and
        a half times as many channels as clients, as in the paper's experiments.
    scheduler : str, default "glr-cucb"
        The policy, ``scheduler[:preset][+token...]``, with ``policy_options``.
    matching : str, optional
        Who gets which channel, such as ``"priority"``; by default what suits the scheduler.
    clients : int >= 1, default 10
        M.
    rounds : int >= 1, default 60
        T.
    seed : int >= 0, default 0
        The one seed everything derives from.
    run : int >= 0, default 0
        Which of the independent runs.
    local_steps : int >= 1, default 5
        Gradient steps E a client makes on a model it receives.
    local_rounds : int >= 1, default 1
        Rounds a client works on a model it received. With 1, as in the paper, whose update was lost
        only sends it again; with more it goes on training meanwhile, E steps a round, and sends
        all it has come to, until it has worked so many rounds. Not with ``fedavg``, where nobody
        sends again.
    batch_size : int >= 1, default 32
        Samples of a step.
    client_lr : float > 0, default 0.05
        The clients' step η.
    server_lr : float > 0, default 1
        The server's step; ``fedasync`` has ``mixing`` instead.
    algorithm : {"async", "fedasync", "fedbuff", "fedavg"}, default "async"
        The paper's round, or one of the baselines in `freshband.federated.algorithms`.
    aggregation : {"renorm", "fixed", "mean_one", "uniform", "literal"}, default "renorm"
        How weights become steps of ``async`` and ``fedavg``; see
        `freshband.federated.aggregation`.
    served : {"last", "average"}, default "last"
        The model that is examined and handed out: the newest, or the average of recent ones, see
        `freshband.federated.algorithms.Averaged`. Clients train on the newest either way.
    weights : {"equal", "size", "contribution"}, default "equal"
        ζ: the same for all, by samples held, or by contribution (43). Updates are weighed by
        ``async`` and ``fedavg``, unless the aggregation is ``uniform``; contributions always are.
    mixing : float in (0, 1], default 0.6
        How far ``fedasync`` moves towards a fresh client's model.
    staleness : {"constant", "polynomial", "hinge"}, default "polynomial"
        How ``fedasync`` and ``fedbuff`` discount stale updates.
    staleness_a, staleness_b : float, default 0.5 and 4
        Parameters of that discount: the first of ``polynomial`` and ``hinge``, the second of
        ``hinge``.
    buffer_size : int >= 1, default 10
        Updates ``fedbuff`` gathers before it steps.
    contribution : {"paper", "fedce"}, optional
        How contributions are computed; by default as in the paper where the matching or the
        weights need them, else not at all.
    loo : {"global_minus", "buffer", "literal"}, default "global_minus"
        How one client is left out where contributions are computed; see
        `freshband.federated.contribution.leave_one_out`.
    cold_start : {"mean", "max", "zero"}, default "mean"
        The contribution of a client never heard.
    error_samples : int >= 1, optional
        Validation samples an error is measured on, at most; by default half of what a client
        trains on in a round, which keeps it cheap.
    clip_norm : float > 0, optional
        Longest change of the model, `η |G|`, an update may ask for; longer ones are shortened.
    eval_every : int >= 1, default 1
        Rounds between two looks at the test set; the last round is always looked at.
    device : str, default "auto"
        ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` …
    precision : {"auto", "float32", "tf32", "bf16", "float64"}, default "auto"
        Arithmetic of local training: float32 on a CPU, tf32 on a GPU. bf16 is for GPUs alone: on
        some CPUs its products crash the interpreter.
    path : {"auto", "threads", "stacked", "graphs"}, default "auto"
        How clients train at the same time; ``auto`` picks what is fastest for model and device.
    workers : int >= 1, optional
        Threads of the path ``threads``, one a core by default. Never changes a result.

    Examples
    --------
    >>> settings = Training(scheduler="glr-cucb", matching="priority", clients=4)
    >>> settings.policy().name, settings.build_channels().n_channels
    ('glr-cucb+priority', 6)
    """

    dataset: str = "digits"
    dataset_options: dict[str, Any] = Field(default_factory=dict)
    partition: str = "dirichlet"
    partition_options: dict[str, Any] = Field(default_factory=dict)
    val_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    model: str | None = None
    model_options: dict[str, Any] = Field(default_factory=dict)
    channels: str = "fig3-piecewise"
    channel_options: dict[str, Any] = Field(default_factory=dict)
    scheduler: str = "glr-cucb"
    matching: str | None = None
    policy_options: dict[str, Any] = Field(default_factory=dict)
    clients: Count = 10
    rounds: Count = 60
    seed: Annotated[int, Field(ge=0)] = 0
    run: Annotated[int, Field(ge=0)] = 0
    local_steps: Count = 5
    local_rounds: Count = 1
    batch_size: Count = 32
    client_lr: Rate = 0.05
    server_lr: Rate = 1.0
    algorithm: Literal["async", "fedasync", "fedbuff", "fedavg"] = "async"
    aggregation: Aggregation = "renorm"
    served: Literal["last", "average"] = "last"
    weights: Literal["equal", "size", "contribution"] = "equal"
    mixing: Annotated[float, Field(gt=0, le=1)] = 0.6
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    staleness_a: Rate = 0.5
    staleness_b: Annotated[float, Field(ge=0)] = 4.0
    buffer_size: Count = 10
    contribution: Literal["paper", "fedce"] | None = None
    loo: LeaveOneOut = "global_minus"
    cold_start: ColdStart = "mean"
    error_samples: Count | None = None
    clip_norm: Rate | None = None
    eval_every: Count = 1
    device: str = "auto"
    precision: Literal["auto", "float32", "tf32", "bf16", "float64"] = "auto"
    path: Literal["auto", "threads", "stacked", "graphs"] = "auto"
    workers: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _are_names(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in ("dataset", "model", "channels", "partition"):
            if not isinstance(values.get(name), str | int | float | None):
                raise ParameterError(
                    f"{name} must be a name, got {shown(values[name])}; a thing of your own goes "
                    f"to Federation(settings, {name}=...)"
                )
        return values

    @field_validator("channel_options", "dataset_options")
    @classmethod
    def _find_from_anywhere(cls, options: dict[str, Any]) -> dict[str, Any]:
        return with_absolute_files(options)

    @model_validator(mode="after")
    def _agree(self) -> Training:
        self.policy()
        channels = self.build_channels()
        if channels.n_channels < self.clients:
            raise ParameterError(
                f"clients must be at most the number of channels, {channels.n_channels}, got "
                f"{self.clients}"
            )
        if self.val_fraction == 0 and self.contribution_rule is not None:
            raise ParameterError(
                "val_fraction must be > 0: contributions need an error on validation samples"
            )
        return self

    @classmethod
    def as_stored(
        cls,
        values: Mapping[str, Any],
        folder: Path | None = None,
        notes: list[str] | None = None,
    ) -> Training:
        """Return settings that were saved, also those that have no effect: they had none then.

        Parameters
        ----------
        values : mapping
            What the file holds.
        folder : Path, optional
            Where the file is: recordings that are gone are looked for there.
        notes : list of str, optional
            Gets a sentence for each that was found there.
        """
        read = dict(values)
        for name in ("channel_options", "dataset_options"):
            if folder is not None and isinstance(read.get(name), dict):
                read[name], found = find_again(read[name], folder)
                if notes is not None:
                    notes += found
        self = cls.__new__(cls)
        self._fill(read)
        return self

    def unused(self) -> dict[str, str]:
        """Return settings that differ from their defaults to no effect, with where each belongs.

        Examples
        --------
        >>> Training.as_stored({"mixing": 0.1}).unused()
        {'mixing': "mixing belongs to algorithm 'fedasync', not to 'async', got 0.1"}
        """
        homes = {
            name: f"algorithm {_either(readers)}, not to {self.algorithm!r}"
            for name, readers in _READ_BY.items()
            if self.algorithm not in readers
        }
        if self.staleness == "constant":
            homes.setdefault("staleness_a", "staleness 'polynomial' or 'hinge', not to 'constant'")
        if self.staleness != "hinge":
            homes.setdefault("staleness_b", f"staleness 'hinge', not to {self.staleness!r}")
        if self.contribution is None and not self.policy().needs_contributions:
            if self.algorithm not in _READ_BY["aggregation"]:
                homes["weights"] = homes["aggregation"]
            elif self.aggregation == "uniform":
                homes["weights"] = "an aggregation that weighs updates, not to 'uniform'"
        if self.contribution_rule is None:
            asked = "contributions, which matching 'priority', weights or contribution ask for"
            homes |= dict.fromkeys(_OF_CONTRIBUTIONS, asked)
        return {
            name: f"{name} belongs to {home}, got {shown(getattr(self, name))}"
            for name, home in homes.items()
            if getattr(self, name) != type(self).model_fields[name].default
        }

    def policy(self) -> Policy:
        """Return the policy: scheduler, tokens and matching put together."""
        name = self.scheduler if self.matching is None else f"{self.scheduler}+{self.matching}"
        return parse_policy(name, self.policy_options)

    def build_channels(self) -> ChannelModel:
        """Return the channel model, with the number of channels that suits the clients."""
        options = dict(self.channel_options)
        fields = getattr(registry[self.channels], "model_fields", {})
        if "n_channels" in fields and not {"n_channels", "means"} & set(options):
            options["n_channels"] = math.ceil(1.5 * self.clients)
        return build(self.channels, options)

    @property
    def contribution_rule(self) -> Literal["paper", "fedce"] | None:
        """How contributions are computed, or None where nobody asks for them."""
        if self.contribution is not None:
            return self.contribution
        needed = self.policy().needs_contributions or self.weights == "contribution"
        return "paper" if needed else None

    @property
    def n_error_samples(self) -> int:
        """Validation samples an error is measured on, at most."""
        return self.error_samples or max(1, self.local_steps * self.batch_size // 2)


def _either(names: tuple[str, ...]) -> str:
    *others, last = (repr(name) for name in names)
    return f"{', '.join(others)} or {last}" if others else last
