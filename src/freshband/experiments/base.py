"""Experiments: their definition, and how they are reproduced.

To add an experiment, add a file here, or your own file with ``--import``: a class, registered under
its name, that defines what to compute, what is claimed and what to draw. The command line, the page
*Reproduction*, its pictures and the tests follow from the registration.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, cast

from freshband._files import check_writable, write_whole
from freshband._parsing import parse_json
from freshband._registry import Registry
from freshband.errors import FileError, ParameterError, reason, shown
from freshband.experiments.pictures import Picture, SimulatedCurves
from freshband.experiments.verdicts import Claim, correct, judge, judge_order

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Claim",
    "Experiment",
    "Machine",
    "Piece",
    "Results",
    "judge",
    "judge_order",
    "load_pieces",
    "register",
    "registry",
    "reproduce",
]

_Scale = Literal["quick", "full"]
Results = Mapping[str, "xr.Dataset"]
_Draw = Callable[[Any, Results], Picture | SimulatedCurves]

_FORMATS: Final = ("freshband simulation 1", "freshband comparison 1")
_COMMANDS: Final = ("all", "choice", "page")  # other arguments of ``freshband reproduce``
_VERDICTS: Final = re.compile(r"(?P<name>.+)-(?P<scale>quick|full)(-.+)?\.json")


@dataclass(frozen=True)
class Machine:
    """Where a piece is computed; this does not affect the result."""

    device: str = "auto"
    precision: str = "auto"
    data_dir: Path | None = None  # holds cifar10/ and cifar100/; by default they are downloaded
    backend: Literal["threads", "ray"] = "threads"
    address: str | None = None
    progress: bool = True

    @property
    def where(self) -> dict[str, Any]:
        """The arguments of `simulate` and `compare` that say where runs are computed."""
        return {name: getattr(self, name) for name in ("backend", "address", "progress")}


@dataclass(frozen=True)
class Piece:
    """A simulation or a comparison that is computed and kept as one file."""

    key: str  # name of the file, without its ending
    config: Mapping[str, Any]  # its settings; a file made with other settings is refused
    make: Callable[[Machine], xr.Dataset]
    group: str = ""  # pieces with the same one can be made together


@dataclass(frozen=True)
class Experiment(ABC):
    """A question, the computations that answer it, the claims, and the pictures.

    A subclass is a frozen dataclass. Its fields are sizes, such as the number of runs: their
    defaults are those of the scale ``full``, and ``quick`` replaces some of them.

    Attributes
    ----------
    title, question : str
        What the experiment shows, and the question it answers, in one line each.
    part : str
        Text before the title on the page, such as ``"Fig. 3"``.
    order : int
        Position on the page and in ``freshband reproduce all``; equal positions are sorted by name.
    extras : tuple of str
        Extras of the package that have to be installed.
    time : mapping of str to str
        Approximate time that each scale takes.
    quick : mapping of str to object
        Sizes at the scale ``quick``.
    together : int
        Largest number of pieces of a group that are made together, which saves time on a GPU.
    figures : mapping of str to callable
        ``figure(experiment, results)`` for each picture, by the name of its file.
    scale : {"full", "quick"}
        The scale, which is part of file names.
    dataset, air : str
        The data set and the air (channel environment) that the experiment is limited to, which are
        part of file names too; by default it has all of them.
    """

    title: ClassVar[str]
    question: ClassVar[str]
    part: ClassVar[str] = ""
    order: ClassVar[int] = 100
    extras: ClassVar[tuple[str, ...]] = ()
    time: ClassVar[Mapping[str, str]] = {}
    quick: ClassVar[Mapping[str, Any]] = {}
    together: ClassVar[int] = 1
    figures: ClassVar[Mapping[str, _Draw]] = {}

    scale: _Scale = "full"
    dataset: str = ""
    air: str = ""

    @abstractmethod
    def pieces(self) -> Sequence[Piece]:
        """Return the pieces to compute, one file each."""

    @abstractmethod
    def claims(self, results: Results) -> Sequence[Claim]:
        """Judge the claims; ``results`` maps keys to the results of the pieces."""

    def make(self, pieces: Sequence[Piece], machine: Machine) -> Sequence[xr.Dataset]:
        """Compute pieces of one group, at most ``together``."""
        return [piece.make(machine) for piece in pieces]

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets that the pieces are trained on."""
        return ()

    @property
    def airs(self) -> tuple[str, ...]:
        """Names of the airs on which the pieces are trained."""
        return ()

    @property
    def name(self) -> str:
        """Name under which the class is registered."""
        return registry.name_of(type(self)) or type(self).__name__.lower()

    def file(self, name: str, ending: str) -> str:
        """Return the name of a file about the whole experiment, such as a picture."""
        return "-".join(filter(None, [name, self.scale, self.dataset, self.air])) + ending

    @property
    def command(self) -> str:
        """The arguments of ``freshband`` that reproduce it."""
        limits = {"scale": self.scale, "dataset": self.dataset, "air": self.air}
        told = "".join(f" --{limit} {value}" for limit, value in limits.items() if value)
        return f"reproduce {self.name}{told}"

    @property
    def verdicts(self) -> str:
        """Name of the file with the verdicts."""
        return self.file(self.name, ".json")

    @classmethod
    def at(cls, scale: _Scale) -> Self:
        """Return the experiment at one of its two scales."""
        return cls(scale=scale, **(cls.quick if scale == "quick" else {}))

    def on(self, dataset: str = "", air: str = "") -> Self:
        """Return the experiment limited to one of its data sets, one of its airs, or both."""
        for asked, known, does, what in (
            (dataset, self.datasets, "train on", "data sets"),
            (air, self.airs, "have the air", "airs"),
        ):
            if asked and asked not in known:
                raise ParameterError(
                    f"experiment {self.name!r} does not {does} {shown(asked)} at the scale "
                    f"{self.scale}; its {what} are: {', '.join(known) or 'none'}"
                )
        new = (dataset if len(self.datasets) > 1 else "", air if len(self.airs) > 1 else "")
        return self._limited(new[0] or self.dataset, new[1] or self.air) if any(new) else self

    def _limited(self, dataset: str, air: str) -> Self:
        raise ParameterError(f"experiment {self.name!r} cannot be limited to {dataset}{air}")

    def forms(self) -> Iterator[Self]:
        """Yield the whole experiment, then what it can be limited to, the larger parts first."""
        for n_limits in range(3):
            for air, dataset in product(("", *self.airs), ("", *self.datasets)):
                with suppress(ParameterError):  # it may not have every air with every data set
                    form = self.on(dataset, air)
                    if n_limits == bool(dataset) + bool(air) == bool(form.dataset) + bool(form.air):
                        yield form

    @classmethod
    def needs(cls) -> str:
        """Return in words which extras, data sets and time the experiment needs."""
        parts = [f"extra {extra}" for extra in cls.extras]
        for each in (cls.at("quick"), cls.at("full")):
            told = [*each.datasets, *filter(None, [cls.time.get(each.scale)])]
            parts += [f"{each.scale}: {', '.join(told)}"] if told else []
        return "; ".join(parts)


registry: Registry[type[Experiment]] = Registry(
    "experiment",
    "freshband.experiments",
    needs={"title": "what it shows, in one line", "question": "what it answers, in one line"},
)


def register(name: str) -> Callable[[type[Experiment]], type[Experiment]]:
    """Return a decorator that registers an experiment under a name."""

    def enter(experiment: type[Experiment]) -> type[Experiment]:
        if name in _COMMANDS:
            raise ParameterError(f"an experiment cannot be called {name!r}: that is a command")
        experiment.at("quick")  # an incomplete class fails here, not when it is used
        return registry.register(name)(experiment)

    return enter


def _experiment_names() -> list[str]:
    """Return the names of all experiments in their order."""
    return sorted(registry, key=lambda name: (registry[name].order, name))


def _find_verdicts(file: str) -> Experiment | None:
    """Return the experiment whose verdicts are in a file of this name; None if there is none."""
    found = _VERDICTS.fullmatch(file)
    if found is None or found["name"] not in registry:
        return None
    forms = registry[found["name"]].at(cast(_Scale, found["scale"])).forms()
    return next((form for form in forms if form.verdicts == file), None)


def _with_verdicts(name: str, folder: Path) -> list[Experiment]:
    """Return an experiment at the fullest scale with verdicts in a folder, whole or in parts."""
    for whole in (registry[name].at("full"), registry[name].at("quick")):
        found, seen = [], set[str]()
        for form in whole.forms():
            if (folder / form.verdicts).exists():
                keys = {piece.key for piece in form.pieces()}
                found += [form] if keys - seen else []  # a part of what is shown is left out
                seen |= keys
        if found:
            return found
    return []


def reproduce(
    experiment: Experiment,
    folder: Path,
    machine: Machine | None = None,
    at_most: int | None = None,
) -> Iterator[tuple[Piece, bool]]:
    """Compute the missing pieces of an experiment in a folder, then write its verdicts there.

    Yields each piece once its file exists, and whether it existed before. Never more than
    ``at_most`` pieces, if that is given, are made together.
    """
    from freshband._sealed import is_whole, save_sealed  # xarray takes half a second to import

    def missing(piece: Piece) -> bool:  # a damaged file is made again
        path = check_writable(folder / f"{piece.key}.nc")
        return not (path.exists() and is_whole(path))

    left, made = list(experiment.pieces()), set[str]()
    while left:
        piece = left[0]
        if piece.key not in made and missing(piece):
            alike = [each for each in left[1:] if piece.group == each.group != "" and missing(each)]
            group = [piece, *alike][: min(experiment.together, at_most or experiment.together)]
            for one, result in zip(
                group, experiment.make(group, machine or Machine()), strict=True
            ):
                if result.attrs.get("format") not in _FORMATS:
                    raise ParameterError(
                        f"piece {one.key!r} must be a result of simulate or compare"
                    )
                config = json.dumps(dict(one.config))
                save_sealed(result.assign_attrs(experiment=config), folder / f"{one.key}.nc")
                made.add(one.key)
        elif piece.key not in made:  # an interrupted command resumes here
            _load(piece, folder / f"{piece.key}.nc")  # refuses a file with other settings
        yield left.pop(0), piece.key not in made
    results = load_pieces(experiment, folder)
    found = [asdict(claim) for claim in correct(experiment.claims(results))]
    told = {"claims": found, "made": _describe(results.values())}
    write_whole(folder / experiment.verdicts, (json.dumps(told, indent=1) + "\n").encode())


def load_pieces(experiment: Experiment, folder: Path) -> dict[str, xr.Dataset]:
    """Return all pieces by key; `FileError` if one is missing or was made with other settings."""
    results = {}
    for piece in experiment.pieces():
        path = folder / f"{piece.key}.nc"
        if not path.exists():
            raise FileError(
                f"{path} does not exist yet: freshband {experiment.command} --out {folder} makes it"
            )
        results[piece.key] = _load(piece, path)
    return results


def _load(piece: Piece, path: Path) -> xr.Dataset:
    from freshband._sealed import load_sealed

    result = load_sealed(path, *_FORMATS)
    if not _same_settings(json.loads(result.attrs.get("experiment", "null")), piece.config):
        raise FileError(f"{path} was made with other settings: move it away, or use another --out")
    return result


def _same_settings(stored: Any, present: Mapping[str, Any]) -> bool:
    """Whether the settings in a file are those of a piece, also in an earlier spelling."""
    return bool(_spelt_alike(stored) == _spelt_alike(json.loads(json.dumps(dict(present)))))


def _spelt_alike(config: Any) -> Any:
    """Return a piece's configuration, with settings of training in today's spelling."""
    if isinstance(config, dict) and "settings" in config:
        from freshband.federated.settings import Training

        return {**config, "settings": Training.as_stored(config["settings"])}
    return config


def _describe(results: Iterable[xr.Dataset]) -> dict[str, Any]:
    """Return how the files of an experiment were made, for its page."""
    made = [result.attrs for result in results]
    where: dict[str, float] = {}
    for each in made:
        precision = str(each.get("precision", "auto"))
        device = str(each.get("device", "cpu"))
        name = device + (f" in {precision}" if precision != "auto" else "")
        where[name] = where.get(name, 0.0) + float(each["seconds"])
    return {
        "files": len(made),
        "seconds": {name: round(taken, 1) for name, taken in sorted(where.items())},
        "freshband": made[-1]["freshband"],
        "versions": json.loads(made[-1]["versions"]),
        "imported": json.loads(made[-1].get("imported", "[]")),
    }


def _read_json(path: Path) -> Any:
    """Return what a file of ``freshband reproduce`` holds, or raise `FileError`."""
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    except ValueError:
        raise FileError(f"{path} is damaged or not a result") from None


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the verdicts or trials in a file of ``freshband reproduce``, or raise `FileError`."""
    found = _read_json(path)
    rows = found.get("claims") if isinstance(found, dict) else found
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise FileError(f"{path} holds neither verdicts nor trials of freshband reproduce")
    return rows
