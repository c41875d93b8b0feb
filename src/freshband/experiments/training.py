"""The training runs that several figures share: a data set, an air and a policy, several times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband.experiments.base import Machine, Piece, Scale
from freshband.federated.settings import Training

__all__ = [
    "AIRS",
    "OPEN",
    "ROUNDS",
    "gather",
    "name_piece",
    "needed_rounds",
    "placed",
    "settings_of",
    "train_piece",
]

ROUNDS: Final = 250
_LOOKS: Final = 5  # looks at the test set over which a curve is smoothed: 25 rounds
_RUNS: Final = {Scale.quick: 2, Scale.full: 5}
AIRS: Final = {"piecewise": 20, "extreme": 4}  # with so many clients

# What the paper does not say, by data set and air (E20). CIFAR's were chosen by
# `freshband.experiments.choice`; digits show only that everything works.
OPEN: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("digits", "piecewise"): {"local_steps": 5, "batch_size": 32, "client_lr": 0.05},
    ("digits", "extreme"): {"local_steps": 5, "batch_size": 32, "client_lr": 0.05},
    ("cifar10", "piecewise"): {"local_steps": 10, "batch_size": 64, "client_lr": 0.05},
    ("cifar10", "extreme"): {"local_steps": 20, "batch_size": 64, "client_lr": 0.05},
    ("cifar100", "piecewise"): {"local_steps": 20, "batch_size": 64, "client_lr": 0.4},
    ("cifar100", "extreme"): {"local_steps": 40, "batch_size": 64, "client_lr": 0.4},
}
# Over (policy, run, round, client) a file would be large; of clients only these are kept.
_KEPT: Final = (
    "accuracy", "loss", "accuracy_spread", "variance", "cumulative_variance", "regret",
    "participation", "mean_age", "n_delivered", "final_client_accuracy", "alarm", "trained",
    "seconds",
)  # fmt: skip


def settings_of(
    dataset: str, air: str, run: int = 0, options: Mapping[str, Any] | None = None
) -> Training:
    """Return what all policies have in common; ``options`` stand for `OPEN`.

    The seed of the air is the same for all data sets (E18).
    """
    return Training(
        dataset=dataset,
        channels=f"fig3-{air}",
        clients=AIRS[air],
        rounds=ROUNDS,
        seed=0,
        run=run,
        eval_every=5,
        **(OPEN[dataset, air] if options is None else options),
    )


def placed(settings: Training, machine: Machine) -> Training:
    """Return the settings as they are trained on a machine."""
    place: dict[str, Any] = {"device": machine.device, "precision": machine.precision}
    if machine.data_dir is not None and settings.dataset != "digits":
        place["dataset_options"] = {"data_dir": str(machine.data_dir / settings.dataset)}
    return Training(**{**settings.model_dump(), **place})


def name_piece(scale: Scale, dataset: str, air: str, policy: str, first: int = 0) -> str:
    """Return the key of a piece.

    Examples
    --------
    >>> name_piece(Scale.full, "cifar10", "extreme", "m-exp3:paper+random")
    'training-full-cifar10-extreme-m-exp3.paper.random'
    """
    plain = policy.translate(str.maketrans(":+@", "..."))
    return f"training-{scale.value}-{dataset}-{air}-{plain}" + (f"-{first}" if first else "")


def train_piece(
    scale: Scale, dataset: str, air: str, policy: str, first: int = 0, longer: int = 1
) -> Piece:
    """Return all runs of a policy on a data set and an air, from the first on.

    With ``longer`` clients make so many times the local steps, which the key says.
    """
    # Imported here, because figures and verdicts do not need PyTorch.
    from freshband.federated.comparison import compare, load_comparison, save_comparison

    settings, runs = settings_of(dataset, air, first), _RUNS[scale]
    settings = settings.model_copy(update={"local_steps": longer * settings.local_steps})
    place = {"device", "precision", "path", "workers"}  # may differ from run to run
    given = {
        "settings": settings.model_dump(mode="json", exclude=place),
        "policy": policy,
        "runs": runs,
    }

    def make(machine: Machine) -> xr.Dataset:
        result = compare(
            placed(settings, machine),
            [policy],
            runs=runs,
            backend=machine.backend,
            address=machine.address,
            progress=machine.progress,
        )
        config = json.loads(result.attrs["config"])
        config["settings"] = settings.model_dump(mode="json")
        return _thin(result).assign_attrs(config=json.dumps(config), precision=machine.precision)

    key = name_piece(scale, dataset, air, policy, first) + (f"-x{longer}" if longer > 1 else "")
    return Piece(key, given, make, save_comparison, load_comparison)


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


def gather(
    results: Mapping[str, xr.Dataset],
    scale: Scale,
    where: tuple[str, str],
    policies: Mapping[str, str] | Sequence[str],
    measure: str,
) -> dict[str, NDArray[np.float64]]:
    """Return a measure of all runs, shape (runs, ...), by what a policy stands for.

    Parameters
    ----------
    results : mapping of str to xarray.Dataset
        Pieces by key.
    scale : Scale
        The scale they were made in.
    where : (str, str)
        Data set and air.
    policies : mapping or sequence of str
        Policies by what they stand for; those of a sequence stand for themselves.
    measure : str
        Such as ``"accuracy"``.
    """
    roles = policies if isinstance(policies, Mapping) else {name: name for name in policies}
    return {
        role: results[name_piece(scale, *where, policy)][measure][0].values.astype(np.float64)
        for role, policy in roles.items()
    }


def needed_rounds(
    rounds: NDArray[np.int64], accuracy: NDArray[np.float64], base: NDArray[np.float64]
) -> list[float]:
    """Return the rounds to the baseline's last accuracy over the baseline's own, run by run.

    Curves are means of the last five looks at the test set, so that one lucky look counts neither
    for nor against; who never gets there is counted with the last round.

    Parameters
    ----------
    rounds : int array, shape (T,)
    accuracy, base : float arrays, shape (runs, T)
        NaN where nobody looked.

    Examples
    --------
    >>> slow = np.arange(1.0, 101.0)[None]
    >>> needed_rounds(np.arange(1, 101), np.minimum(2 * slow, 150), slow)
    [0.51]
    """
    looked = ~np.isnan(base[0])
    at = rounds[looked][_LOOKS - 1 :]
    return [
        _first(at, ours, own[-1]) / _first(at, own, own[-1])
        for ours, own in zip(_smooth(accuracy[:, looked]), _smooth(base[:, looked]), strict=True)
    ]


def _smooth(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    windows = np.lib.stride_tricks.sliding_window_view(curves, _LOOKS, axis=1)
    return np.asarray(windows.mean(axis=-1))


def _first(rounds: NDArray[np.int64], accuracy: NDArray[np.float64], level: float) -> float:
    reached = accuracy >= level
    return float(rounds[np.argmax(reached)] if reached.any() else rounds[-1])
