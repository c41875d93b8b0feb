"""Shared by experiments that train: places, settings, runs of a policy, curves over rounds."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.experiments.base import Claim, Experiment, Machine, Piece, Results
from freshband.experiments.pictures import Panel, Picture, Series

if TYPE_CHECKING:
    import xarray as xr

    from freshband.federated.settings import Training

__all__ = [
    "Place", "Runs", "Trained", "accuracy_within", "final_accuracy", "gain_at_equal",
    "needed_rounds", "settings_of",
]  # fmt: skip

Place = tuple[str, str]  # a data set and an air (channel environment)
_Style = tuple[int, str]  # an index into the palette and a line style

_AIRS: Final = {"piecewise": 20, "extreme": 4}  # number of clients on each
# Five times as many channels as clients, so that it matters which ones are used.
_CHANNELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "wide": {"channels": "fig3-piecewise", "clients": 20, "channel_options": {"n_channels": 100}},
    **{air: {"channels": f"fig3-{air}", "clients": clients} for air, clients in _AIRS.items()},
}
QUICK: Final = {"runs": {"digits": 2}, "changes": {"model": "mlp"}}  # at the scale quick
_LOOKS: Final = 5  # evaluations over which a curve is smoothed
_LAST: Final = 25  # rounds whose mean is the final accuracy
# What is chosen, is chosen on samples and in runs that no figure sees.
VALIDATION: Final[Mapping[str, Any]] = {"seed": 1, "held_out": 0.1}
_BY_MACHINE: Final = {"device", "precision", "path", "workers"}

# Settings that the paper leaves open (E20), chosen by `freshband.experiments._choice`. Digits show
# only that everything works.
_OPEN: Final[Mapping[Place, Mapping[str, Any]]] = {
    ("digits", "piecewise"): {"local_steps": 5, "batch_size": 32, "client_lr": 0.05},
    ("digits", "extreme"): {"local_steps": 5, "batch_size": 32, "client_lr": 0.05},
    ("cifar10", "piecewise"): {"local_steps": 64, "batch_size": 16, "client_lr": 0.05},
    ("cifar10", "extreme"): {"local_steps": 256, "batch_size": 16, "client_lr": 0.025},
    ("cifar100", "piecewise"): {"local_steps": 64, "batch_size": 16, "client_lr": 0.2},
    ("cifar100", "extreme"): {"local_steps": 256, "batch_size": 16, "client_lr": 0.2},
}
_SPENT: Final = {"round": "round", "trained": "local trainings", "n_delivered": "uploads received"}
# Arrays over (policy, run, round, client) are large; only these are kept per client.
_KEPT: Final = (
    "accuracy", "loss", "accuracy_spread", "variance", "cumulative_variance", "regret",
    "participation", "mean_age", "n_delivered", "final_client_accuracy", "alarm", "trained",
    "seconds",
)  # fmt: skip


def settings_of(place: Place, **changes: Any) -> Training:
    """Return the settings that all policies share; the seed, also of the air, is 0 (E18)."""
    from freshband.federated.settings import Training

    dataset, air = place
    shared = {"dataset": dataset, **_CHANNELS[air], "rounds": 250, "eval_every": 5, "seed": 0}
    chosen = _OPEN[dataset, air if air in _AIRS else "piecewise"]
    return Training(**{**shared, **chosen, **changes})


def _on_machine(settings: Training, machine: Machine) -> Training:
    """Return the settings with the device and data folder of a machine."""
    where: dict[str, Any] = {"device": machine.device, "precision": machine.precision}
    if machine.data_dir is not None and settings.dataset != "digits":
        where["dataset_options"] = {"data_dir": str(machine.data_dir / settings.dataset)}
    return type(settings)(**{**settings.model_dump(), **where})


class Runs(NamedTuple):
    """Runs of a policy, with ``longer`` times the local steps."""

    policy: str
    longer: int = 1
    validation: bool = False  # on held-out samples, in runs of their own
    option: tuple[str, int] | None = None  # of the rule, which is then that of the settings


@dataclass(frozen=True)
class Trained(Experiment):
    """An experiment that compares roles at places; each piece is all runs of one role.

    ``changes`` are settings of `Training` that replace the study's. Experiments of one scale that
    train the same policy at the same place share its file.
    """

    extras = ("train",)

    places: Sequence[Place] = tuple(product(("cifar10", "cifar100"), _AIRS))
    runs: Mapping[str, int] = field(default_factory=lambda: {"cifar10": 20, "cifar100": 5})
    changes: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def roles(self, place: Place) -> Mapping[str, Runs]:
        """Return the runs that are compared at a place, by role."""

    @abstractmethod
    def claims_at(self, results: Results, place: Place) -> Sequence[Claim]:
        """Judge the claims about a place."""

    def pieces(self) -> Sequence[Piece]:
        """Return all roles at all places."""
        return [
            self._piece(place, runs) for place in self.places for runs in self.roles(place).values()
        ]

    def claims(self, results: Results) -> Sequence[Claim]:
        """Judge the claims place by place."""
        return [claim for place in self.places for claim in self.claims_at(results, place)]

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets that the pieces are trained on."""
        return tuple(dict.fromkeys(dataset for dataset, _ in self.places))

    @property
    def airs(self) -> tuple[str, ...]:
        """Names of the airs on which the pieces are trained."""
        return tuple(dict.fromkeys(air for _, air in self.places))

    def _limited(self, dataset: str, air: str) -> Self:
        """Leave out the places elsewhere; an empty name leaves out none."""
        places = tuple(
            place for place in self.places if dataset in ("", place[0]) and air in ("", place[1])
        )
        if not places:
            raise ParameterError(f"experiment {self.name!r} does not train on {dataset}, {air}")
        return replace(self, dataset=dataset, air=air, places=places)

    def _key(self, place: Place, runs: Runs) -> str:
        plain = runs.policy.translate(str.maketrans(":+@", "..."))
        tail = [f"x{runs.longer}"] * (runs.longer > 1) + ["validation"] * runs.validation
        tail += map(str, runs.option or ())
        return "-".join(["training", self.scale, *place, plain, *tail])

    def _piece(self, place: Place, runs: Runs) -> Piece:
        changes = {**self.changes, **(VALIDATION if runs.validation else {})}
        policy, several = runs.policy, self.runs[place[0]]
        if runs.option is not None:
            policy, _, rule = policy.partition("@")
            changes |= {"algorithm": rule, "algorithm_options": dict([runs.option])}
        settings = settings_of(place, **changes)
        settings = settings.model_copy(update={"local_steps": runs.longer * settings.local_steps})
        shown = settings.model_dump(mode="json", exclude=_BY_MACHINE)
        config = {"settings": shown, "policy": policy, "runs": several}

        group = json.dumps({**config, "policy": None})
        return Piece(self._key(place, runs), config, lambda on: _train([config], on)[0], group)

    def make(self, pieces: Sequence[Piece], machine: Machine) -> Sequence[xr.Dataset]:
        """Train the policies of all pieces in step."""
        return _train([piece.config for piece in pieces], machine)

    def measured(
        self, results: Results, place: Place, measure: str
    ) -> dict[str, NDArray[np.float64]]:
        """Return a measure of all runs, shape (runs, ...), by role."""
        return {
            role: results[self._key(place, runs)][measure][0].values.astype(np.float64)
            for role, runs in self.roles(place).items()
        }

    def draw_curves(
        self,
        results: Results,
        measure: str,
        styles: Mapping[str, _Style] | None = None,
        along: str = "round",
    ) -> Picture:
        """Return a measure over what was spent, one panel per place; ``styles`` by policy."""
        panels = []
        for place in self.places:
            spent = self.measured(results, place, along) if along != "round" else {}
            series = []
            for index, (role, values) in enumerate(self.measured(results, place, measure).items()):
                looks = ~np.isnan(values).any(axis=0)
                policy = self.roles(place)[role].policy
                label = role if role == policy else f"{role}: {policy}"
                style = styles[policy] if styles else (index, "-")
                x = np.cumsum(spent[role].mean(axis=0)) if spent else 1 + np.arange(values.shape[1])
                series.append(Series(label, x[looks], values[:, looks].T, *style))
            settings = settings_of(place, **self.changes)
            size = f"M = {settings.clients}, N = {settings.build_channels().n_channels}"
            percent = measure == "accuracy"
            y_label = "test accuracy" if percent else "cumulative AoI variance"
            title = f"{', '.join(place)}: {size}; {len(values)} runs"
            panels.append(Panel("curves", series, title, _SPENT[along], y_label, percent=percent))
        return Picture(panels)


def _train(configs: Sequence[Mapping[str, Any]], machine: Machine) -> list[xr.Dataset]:
    """Train the policies of pieces whose configurations differ in nothing else, in step."""
    from freshband.federated.comparison import compare  # needs PyTorch; reading does not
    from freshband.federated.settings import Training

    settings, runs = Training(**configs[0]["settings"]), configs[0]["runs"]
    policies = [config["policy"] for config in configs]
    whole = compare(_on_machine(settings, machine), policies, runs=runs, **machine.where)
    work = whole.trained.sum(["run", "round"]).values
    found = []
    for at, policy in enumerate(policies):
        config = json.loads(whole.attrs["config"])
        config |= {"settings": settings.model_dump(mode="json"), "policies": [policy]}
        facts = {"config": json.dumps(config), "precision": machine.precision}
        facts["seconds"] = whole.attrs["seconds"] * float(work[at] / work.sum())
        found.append(_thin(whole.isel(policy=[at])).assign_attrs(facts))
    return found


def _thin(result: xr.Dataset) -> xr.Dataset:
    """Keep what the figures need, in single precision."""
    result = result.assign(
        mean_age=result.ages.mean("client"),
        n_delivered=result.delivered.sum("client"),
        final_client_accuracy=result.client_accuracy.isel(round=-1),
    )
    kept = result[[name for name in _KEPT if name in result]]
    for name, array in kept.items():
        if array.dtype == np.float64:
            kept[name] = array.astype(np.float32)
    return kept.assign_attrs(result.attrs)


def final_accuracy(accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the final accuracy of every run in percent: the mean over the last 25 rounds."""
    return np.asarray(100 * np.nanmean(accuracy[:, -_LAST:], axis=1))


def accuracy_within(
    accuracy: NDArray[np.float64], spent: NDArray[np.float64], budget: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the percentage that every run reaches before it has spent more than its budget.

    ``accuracy`` and ``spent`` have the shape (runs, rounds), ``budget`` (runs,). Accuracies are
    smoothed as in `needed_rounds`; a budget that is too small for any counts as the first.
    """
    looks = np.flatnonzero(~np.isnan(accuracy[0]))
    smooth = _smooth(accuracy[:, looks])
    total = np.cumsum(spent, axis=1)[:, looks[_LOOKS - 1 :]]
    last = np.maximum((total <= budget[:, None]).sum(axis=1) - 1, 0)
    return np.asarray(100 * smooth[np.arange(len(smooth)), last])


def gain_at_equal(
    accuracy: Mapping[str, NDArray[np.float64]],
    spent: Mapping[str, NDArray[np.float64]],
    better: str,
    worse: str,
) -> NDArray[np.float64]:
    """Return the points by which a role is ahead once it has spent what another spends in all."""
    budget = spent[worse].sum(axis=1)
    one, other = (accuracy_within(accuracy[role], spent[role], budget) for role in (better, worse))
    return one - other


def needed_rounds(accuracy: NDArray[np.float64], base: NDArray[np.float64]) -> list[float]:
    """Return the rounds needed for the baseline's final accuracy, relative to the baseline.

    Accuracies have the shape (runs, rounds) and are NaN in rounds without an evaluation. They are
    smoothed over five evaluations, so that a single lucky one does not matter; a run that never
    reaches the accuracy counts with its last round.
    """
    looks = np.flatnonzero(~np.isnan(base[0]))
    at = 1 + looks[_LOOKS - 1 :]
    return [
        _first(at, ours, own[-1]) / _first(at, own, own[-1])
        for ours, own in zip(_smooth(accuracy[:, looks]), _smooth(base[:, looks]), strict=True)
    ]


def _smooth(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    windows = np.lib.stride_tricks.sliding_window_view(curves, _LOOKS, axis=1)
    return np.asarray(windows.mean(axis=-1))


def _first(rounds: NDArray[np.int64], accuracy: NDArray[np.float64], level: float) -> float:
    reached = accuracy >= level
    return float(rounds[np.argmax(reached)] if reached.any() else rounds[-1])
