"""What an experiment is: pieces to compute, claims to check, and how to reproduce one.

An experiment is a module with three functions. `pieces` says what to compute, each piece a file
of its own, so a long experiment can be interrupted and continued; `claims` compares what was found
with what the paper says; the pictures are drawn from the same files by `freshband.reporting`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from freshband.errors import FileError, UnknownNameError, nearest, shown
from freshband.federated.settings import Training
from freshband.files import check_writable, replacing

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Experiment",
    "Machine",
    "Piece",
    "Scale",
    "find_experiment",
    "judge",
    "judge_order",
    "load_pieces",
    "reproduce",
]

EXPERIMENTS: Final = ("fig2a", "fig2b", "fig2c", "fig3", "fig4", "rules", "parts")

Verdict = Literal["reproduced", "exceeded", "not reproduced", "holds", "does not hold"]


class Scale(StrEnum):
    """How large: ``quick`` runs anywhere in minutes, ``full`` is the paper's setting."""

    quick = "quick"
    full = "full"


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where a piece is computed; nothing of it belongs to the result.

    Attributes
    ----------
    device : str, default "auto"
        For training: ``"auto"``, ``"cpu"``, ``"cuda"`` …
    precision : str, default "auto"
        Of training, as in `freshband.federated.Training`.
    data_dir : Path, optional
        Folder that holds a folder for each data set, ``cifar10`` and ``cifar100``; by default they
        are downloaded.
    backend, address
        As in `freshband.simulate`.
    progress : bool, default True
        Show progress on stderr if it is a terminal.
    """

    device: str = "auto"
    precision: str = "auto"
    data_dir: Path | None = None
    backend: Literal["threads", "ray"] = "threads"
    address: str | None = None
    progress: bool = True


@dataclasses.dataclass(frozen=True)
class Piece:
    """Something to compute that fits into one file.

    Attributes
    ----------
    key : str
        Name of the file, without its ending.
    config : mapping
        What it is made with; a file made otherwise is not mistaken for it.
    make : callable
        ``make(machine)`` computes it.
    save, load : callable
        Write it to a path, read it from one.
    """

    key: str
    config: Mapping[str, Any]
    make: Callable[[Machine], xr.Dataset]
    save: Callable[[xr.Dataset, Path], None]
    load: Callable[[Path], xr.Dataset]


@dataclasses.dataclass(frozen=True)
class Claim:
    """One statement of the paper, and what became of it.

    Attributes
    ----------
    what : str
        The statement.
    paper : str
        What the paper has, "-" where it gives no number.
    ours : float
        What was measured.
    error : float
        Its standard error; NaN where there is none.
    unit : str
        Such as ``"%"``.
    verdict : {"reproduced", "exceeded", "not reproduced", "holds", "does not hold"}
        The last two are of statements that are not the paper's.
    why : str
        What explains the verdict.
    """

    what: str
    paper: str
    ours: float
    error: float
    unit: str
    verdict: Verdict
    why: str = ""


class Experiment(Protocol):
    """What a module of this package provides."""

    TITLE: str

    def pieces(self, scale: Scale) -> Sequence[Piece]:
        """Return what has to be computed."""
        ...

    def claims(self, results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
        """Compare the pieces, by key, with the paper."""
        ...


def find_experiment(name: str) -> Experiment:
    """Return an experiment by the name of its figure.

    Examples
    --------
    >>> find_experiment("fig2b").TITLE
    'GLR-CUCB: regret by number of breakpoints'
    """
    if name not in EXPERIMENTS:
        hint = nearest(str(name), [*EXPERIMENTS, "all"])
        raise UnknownNameError(f"unknown experiment {shown(name)}; {hint}")
    return cast(Experiment, importlib.import_module(f"freshband.experiments.{name}"))


def reproduce(
    name: str, scale: Scale, folder: Path, machine: Machine | None = None
) -> Iterator[tuple[Piece, bool]]:
    """Compute what is missing of an experiment, piece by piece, then write its claims.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    scale : Scale
        ``quick`` or ``full``.
    folder : Path
        Where the files are; those that are there already are not computed again.
    machine : Machine, optional
        Where to compute.

    Yields
    ------
    (Piece, bool)
        Each piece once its file is there, and whether it was there before.
    """
    experiment = find_experiment(name)
    for piece in experiment.pieces(scale):
        path = check_writable(folder / f"{piece.key}.nc")
        known = path.exists()
        if known:
            _check_made_so(piece, path)
        else:
            result = piece.make(machine or Machine())
            result = result.assign_attrs(experiment=json.dumps(dict(piece.config)))
            piece.save(result, path)
        yield piece, known
    found = experiment.claims(load_pieces(name, scale, folder), scale)
    with replacing(folder / f"{name}-{scale.value}.json") as scratch:
        rows = [dataclasses.asdict(claim) for claim in found]
        scratch.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def load_pieces(name: str, scale: Scale, folder: Path) -> dict[str, xr.Dataset]:
    """Return all pieces of an experiment from their files.

    Raises
    ------
    FileError
        If one is missing, damaged, or was made with other settings.
    """
    results = {}
    for piece in find_experiment(name).pieces(scale):
        path = folder / f"{piece.key}.nc"
        if not path.exists():
            raise FileError(
                f"{path} is not there yet: freshband reproduce {name} --scale {scale.value} "
                f"--out {folder} makes it"
            )
        results[piece.key] = _check_made_so(piece, path)
    return results


def _check_made_so(piece: Piece, path: Path) -> xr.Dataset:
    result = piece.load(path)
    saved = json.loads(result.attrs.get("experiment", "null"))
    if _spelt_alike(saved) != _spelt_alike(json.loads(json.dumps(dict(piece.config)))):
        raise FileError(f"{path} was made with other settings: move it away, or use another --out")
    return result


def _spelt_alike(config: Any) -> Any:
    """Return what a piece was made with, settings of training as they are spelt today."""
    if isinstance(config, dict) and "settings" in config:
        return {**config, "settings": Training.as_stored(config["settings"])}
    return config


def judge(
    what: str,
    paper: str,
    values: ArrayLike,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    unit: str = "",
    why: str = "",
) -> Claim:
    """Return a claim about a mean over runs: ``exceeded`` is beyond by two standard errors.

    Parameters
    ----------
    what, paper, unit, why
        As in `Claim`.
    values : array_like
        One value for each run.
    at_least, at_most : float
        What the mean has to reach; one of the two.

    Examples
    --------
    >>> judge("accuracy", "55 %", [58.0, 59.0, 60.0], at_least=55, unit="%").verdict
    'exceeded'
    >>> judge("share of the gap, at least half", "-", [0.4, 0.7], at_least=0.5).verdict
    'holds'
    """
    if (at_least is None) == (at_most is None):
        raise ValueError("a claim needs at_least or at_most")
    mean, error = _mean_and_error(values)
    beyond = mean - at_least if at_least is not None else cast(float, at_most) - mean
    verdict: Verdict = "not reproduced"
    if paper == "-":
        verdict = "holds" if beyond >= 0 else "does not hold"
    elif beyond >= 0:
        verdict = "exceeded" if beyond > 2 * error else "reproduced"
    return Claim(what, paper, mean, error, unit, verdict, why)


def judge_order(
    what: str, paper: str, differences: ArrayLike, *, unit: str = "", why: str = ""
) -> Claim:
    """Return a claim that something is larger, by more than two standard errors.

    Parameters
    ----------
    what, paper, unit, why
        As in `Claim`.
    differences : array_like
        Of the two, run by run; positive is as claimed.

    Examples
    --------
    >>> judge_order("A above B", "above", [1.0, -1.2, 0.4]).verdict
    'not reproduced'
    >>> judge_order("C above A", "-", [1.0, 1.2, 0.9]).verdict
    'holds'
    """
    mean, error = _mean_and_error(differences)
    clear = mean > 2 * error if not math.isnan(error) else mean > 0
    if paper == "-":
        return Claim(what, paper, mean, error, unit, "holds" if clear else "does not hold", why)
    return Claim(what, paper, mean, error, unit, "reproduced" if clear else "not reproduced", why)


def _mean_and_error(values: ArrayLike) -> tuple[float, float]:
    array = np.asarray(values, dtype=np.float64)
    error = float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.nan
    return float(array.mean()), error
