"""What a training run is, as one validated object that fits into a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, final

from pydantic import Field, ValidationInfo, field_validator, model_validator

from freshband._default import DEFAULT_POLICY
from freshband._locating import find_again, with_absolute_files
from freshband._policy import Policy, parse_policy
from freshband.channels.base import ChannelModel, build, fit_clients, links_differ, registry
from freshband.errors import ParameterError, shown
from freshband.federated._spelling import modernise
from freshband.federated.algorithms.base import (
    Rule,
    _misplaced_options,
    _options_of,
    _plain_options,
    build_algorithm,
    read_algorithm,
)
from freshband.federated.contribution import ValuationOptions
from freshband.fleet.conditions import SimulatedFleet
from freshband.parameters import Parameters

_Count = Annotated[int, Field(ge=1)]
_Options = dict[str, Any]
_NAMED = (
    "dataset", "model", "channels", "partition", "algorithm", "loss", "optimiser", "metric",
)  # fmt: skip


@final
class Training(Parameters):
    """Everything that decides how a run goes; the same values give the same run.

    A setting that has no effect beside the others, such as ``mixing`` without ``fedasync``, must
    keep its default: see `unused`. Settings from a file are read with `as_stored`, also those in
    the spelling of earlier versions.

    Parameters
    ----------
    dataset : str, default "digits"
        ``"digits"``, ``"cifar10"``, ``"cifar100"``, ``"synthetic"`` or ``"sayings"``, which is
        text, with ``dataset_options``.
    partition : str, default "dirichlet"
        Who holds what: ``"dirichlet"``, ``"iid"``, ``"shards"``, or ``"column"``, such as by user,
        with ``partition_options``.
    held_out : float in [0, 1), default 0
        Share of the training set that no client gets and that takes the place of the test set
        (`freshband.federated.data.Dataset.hold_out`): to choose settings without the test set.
    val_fraction : float in [0, 1), default 0.1
        Share of its samples a client keeps to measure errors on.
    model : str, optional
        ``"cnn8"``, ``"resnet18"``, ``"small-cnn"``, ``"mlp"`` or ``"char-gru"``, with
        ``model_options``; by default the one that suits the data set.
    channels : str, default "fig3-piecewise"
        The channel environment, with ``channel_options``. Unless those say otherwise there are one
        and a half times as many channels as clients, as in the paper's experiments.
    policy : str, default "bayes"
        ``scheduler[:preset][+token...]``, with ``policy_options``.
    matching : str, optional
        Who gets which channel, such as ``"priority"``; by default what suits the policy.
    clients : int >= 1, default 10
        The number of clients M; there may be more than channels.
    fleet : mapping or SimulatedFleet, optional
        What the server assumes about its clients, and what happens to them and to acknowledgements:
        settings of `freshband.fleet.conditions.SimulatedFleet`, such as ``{"ack_delay": 5}``.
        ``links`` follows from the channels.
    rounds : int >= 1, default 60
        The number of rounds T.
    seed : int >= 0, default 0
        The one seed everything derives from.
    run : int >= 0, default 0
        Which of the independent runs.
    local_steps : int >= 1, default 5
        Gradient steps E a client makes on a model it receives.
    batch_size : int >= 1, default 32
        The number of samples per step.
    client_lr : float > 0, default 0.05
        The clients' step η.
    optimiser : str, default "sgd"
        How clients make their steps, ``"sgd"`` or ``"adam"``, with ``optimiser_options``: momentum,
        weight decay, a schedule over rounds, clipping of gradients. It begins anew in every round.
    loss, metric : str, optional
        What clients make smaller, and what ``accuracy`` of the results is, larger being better,
        with ``loss_options`` and ``metric_options``. By default cross-entropy and accuracy where
        there are classes, ``"mse"`` and ``"r2"`` where targets are numbers.
    statistics : {"averaged", "local", "frozen"}, default "averaged"
        What becomes of buffers that training changes, such as BatchNorm's running statistics: they
        travel and are averaged like weights; they stay with each client, and with them the
        parameters of their layers (FedBN, Li et al. 2021); or they are never changed.
    stays_local : list of str, default ()
        Names of parameters that do not travel, as patterns such as ``"head.*"``.
    algorithm : str, default "renorm"
        What the server does with updates, ``rule[+wrapper...]`` such as ``"fedbuff+average"``, with
        ``algorithm_options``; `freshband.federated.algorithms` and ``freshband list algorithms``
        explain them.
    weights : {"equal", "size", "contribution"}, default "equal"
        ζ: the same for all, by samples held, or by contribution (43). Not all algorithms weigh
        updates; contributions are always weighed.
    contribution : {"paper", "fedce"}, optional
        How contributions are computed, with ``valuation_options``
        (`freshband.federated.contribution.ValuationOptions`); by default as in the paper where the
        matching or the weights need them, else not at all.
    length_limit : float >= 0, default 5
        An update longer than this many times the median length of the clients' last updates is
        refused (`freshband.federated.inspection`); 0 takes updates of any length.
    clip_norm : float > 0, optional
        Longest change of the model, `η |G|`, an update may ask for; longer ones are shortened.
    eval_every : int >= 1, default 1
        Rounds between two evaluations on the test set; the last round is always evaluated.
    device : str, default "auto"
        ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"`` …
    precision : {"auto", "float32", "tf32", "bf16", "float64"}, default "auto"
        Arithmetic of local training: float32 on a CPU, tf32 on a GPU. bf16 is for GPUs alone: on
        some CPUs its products crash the interpreter.
    path : {"auto", "threads", "stacked", "graphs"}, default "auto"
        How clients train at the same time; ``auto`` picks what is fastest for model and device.
    workers : int >= 1, optional
        Threads of the path ``threads``, one per core by default. Never changes a result.

    Examples
    --------
    >>> settings = Training(matching="priority", clients=4)
    >>> settings.build_policy().name, settings.build_channels().n_channels
    ('bayes+priority', 6)
    """

    dataset: str = "digits"
    dataset_options: _Options = Field(default_factory=dict)
    partition: str = "dirichlet"
    partition_options: _Options = Field(default_factory=dict)
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    val_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    model: str | None = None
    model_options: _Options = Field(default_factory=dict)
    channels: str = "fig3-piecewise"
    channel_options: _Options = Field(default_factory=dict)
    policy: str = DEFAULT_POLICY
    matching: str | None = None
    policy_options: _Options = Field(default_factory=dict)
    clients: _Count = 10
    fleet: _Options = Field(default_factory=dict)
    rounds: _Count = 60
    seed: Annotated[int, Field(ge=0)] = 0
    run: Annotated[int, Field(ge=0)] = 0
    local_steps: _Count = 5
    batch_size: _Count = 32
    client_lr: Annotated[float, Field(gt=0)] = 0.05
    optimiser: str = "sgd"
    optimiser_options: _Options = Field(default_factory=dict)
    loss: str | None = None
    loss_options: _Options = Field(default_factory=dict)
    metric: str | None = None
    metric_options: _Options = Field(default_factory=dict)
    statistics: Literal["averaged", "local", "frozen"] = "averaged"
    stays_local: tuple[str, ...] = ()
    algorithm: str = "renorm"
    algorithm_options: _Options = Field(default_factory=dict)
    weights: Literal["equal", "size", "contribution"] = "equal"
    contribution: Literal["paper", "fedce"] | None = None
    valuation_options: _Options = Field(default_factory=dict)
    length_limit: Annotated[float, Field(ge=0)] = 5.0
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    eval_every: _Count = 1
    device: str = "auto"
    precision: Literal["auto", "float32", "tf32", "bf16", "float64"] = "auto"
    path: Literal["auto", "threads", "stacked", "graphs"] = "auto"
    workers: _Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in _NAMED:
            if not isinstance(values.get(name), str | int | float | None):
                raise ParameterError(
                    f"{name} must be a name, got {shown(values[name])}; a thing of your own goes "
                    f"to Federation(settings, {name}=...)"
                )
        return modernise(values)

    @field_validator("channel_options", "dataset_options")
    @classmethod
    def _find_from_anywhere(cls, options: dict[str, Any]) -> dict[str, Any]:
        return with_absolute_files(options)

    @field_validator("algorithm_options")
    @classmethod
    def _as_the_rule_reads_them(
        cls, options: dict[str, Any], info: ValidationInfo
    ) -> dict[str, Any]:
        return _plain_options(info.data["algorithm"], options)

    @field_validator("fleet", mode="before")
    @classmethod
    def _as_fleets_read_them(cls, given: Any) -> Any:
        if isinstance(given, SimulatedFleet):
            return given.model_dump(mode="json", exclude_defaults=True)
        if not isinstance(given, Mapping):
            example = "{'ack_delay': 5}"
            raise ParameterError(f"fleet must be settings such as {example}, got {shown(given)}")
        return SimulatedFleet(**given).model_dump(mode="json", include=set(given))

    @field_validator("valuation_options")
    @classmethod
    def _as_valuation_reads_them(cls, options: dict[str, Any]) -> dict[str, Any]:
        return ValuationOptions(**options).model_dump(mode="json", include=set(options))

    @model_validator(mode="after")
    def _agree(self) -> Training:
        self.build_policy()
        channels = self.build_channels()
        if links_differ(channels):
            fit_clients(channels, self.clients)
        self.build_fleet(channels).check_clients(self.clients)
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
        """Return settings that were saved, including those without effect, which had none then.

        Recordings that are gone are looked for in ``folder``, where the file of the settings is;
        ``notes`` gets a sentence for each that was found there.
        """
        read = dict(values)
        for name in ("channel_options", "dataset_options"):
            if folder is not None and isinstance(read.get(name), dict):
                read[name], found = find_again(read[name], folder)
                if notes is not None:
                    notes += found
        return super().as_stored(read)

    def unused(self) -> dict[str, str]:
        """Return settings and options that have no effect, with where each belongs.

        Examples
        --------
        >>> Training.as_stored({"algorithm_options": {"mixing": 0.1}}).unused()
        {'mixing': "mixing belongs to algorithm 'fedasync', not to 'renorm', got 0.1"}
        """
        rule = self.build_algorithm()
        found = _misplaced_options(self.algorithm, self.algorithm_options) | rule.unused()
        valued = self.contribution is not None or self.build_policy().needs_contributions
        if self.weights != "equal" and not valued and not rule.weighs_updates:
            found["weights"] = (
                f"weights belongs to an algorithm that weighs updates, not to {self.algorithm!r}, "
                f"got {self.weights!r}"
            )
        if self.contribution_rule is None:
            asked = "contributions, which matching 'priority', weights or contribution ask for"
            found |= {
                name: f"{name} belongs to {asked}, got {shown(value)}"
                for name, value in self.valuation_options.items()
            }
        return found

    def without(self, unused: Iterable[str]) -> dict[str, Any]:
        """Return the settings but for those that `unused` names, as arguments of another."""
        left = set(unused)
        values = {name: value for name, value in self.model_dump().items() if name not in left}
        names = read_algorithm(self.algorithm)
        names[0] = "renorm" if "algorithm" in left else names[0]
        for wrapper in left.intersection(names):
            names.remove(wrapper)
            left |= _options_of(wrapper)
        values["algorithm"] = "+".join(names)
        for field in ("algorithm_options", "valuation_options"):
            values[field] = {key: each for key, each in values[field].items() if key not in left}
        return values

    def build_policy(self) -> Policy:
        """Return the policy: scheduler, tokens and matching put together."""
        name = self.policy if self.matching is None else f"{self.policy}+{self.matching}"
        return parse_policy(name, self.policy_options)

    def build_algorithm(self) -> Rule:
        """Return the server's rule, with its wrappers around it."""
        return build_algorithm(self.algorithm, self.algorithm_options, stored=True)

    def build_channels(self) -> ChannelModel:
        """Return the channel model, with the number of channels that suits the clients."""
        options = dict(self.channel_options)
        fields = getattr(registry[self.channels], "model_fields", {})
        if "n_channels" in fields and not {"n_channels", "means"} & set(options):
            options["n_channels"] = math.ceil(1.5 * self.clients)
        return build(self.channels, options)

    def build_fleet(self, channels: ChannelModel | None = None) -> SimulatedFleet:
        """Return the fleet; whether links differ follows from the channels, those of the settings.

        A policy that learns one rate per channel is told that links are shared.
        """
        model = self.build_channels() if channels is None else channels
        differ = links_differ(model) and self.build_policy().learns_links
        options: _Options = {"links": "differ" if differ else "shared"}
        return SimulatedFleet(**options | self.fleet)

    @property
    def contribution_rule(self) -> Literal["paper", "fedce"] | None:
        """How contributions are computed, or None where nobody asks for them."""
        if self.contribution is not None:
            return self.contribution
        needed = self.build_policy().needs_contributions or self.weights == "contribution"
        return "paper" if needed else None

    @property
    def valuing(self) -> ValuationOptions:
        """How clients are valued, where they are."""
        return ValuationOptions(**self.valuation_options)

    @property
    def n_error_samples(self) -> int:
        """The largest number of validation samples an error is measured on."""
        return self.valuing.error_samples or max(1, self.local_steps * self.batch_size // 2)
