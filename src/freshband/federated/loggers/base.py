"""What a logger is: it is told the settings, every round, and the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from freshband._files import write_whole
from freshband._registry import Registry
from freshband.errors import FreshbandError, ParameterError, shown
from freshband.federated.records import RoundRecord
from freshband.federated.settings import Training

__all__ = ["Logger", "logging_to", "register", "registry", "scalars_of"]


@runtime_checkable
class Logger(Protocol):
    """Three methods, called in this order; a plain function of records is a logger too."""

    def start(self, settings: Training, folder: Path | None, done: int) -> None:
        """Begin with a run that is kept in a folder, if any; ``done`` rounds were played before."""
        ...

    def log(self, record: RoundRecord) -> None:
        """Take one round."""
        ...

    def close(self) -> None:
        """End; also where the run was stopped or broke off."""
        ...


AnyLogger: TypeAlias = Logger | Callable[[RoundRecord], Any]

registry: Registry[type[Logger]] = Registry("logger", "freshband.federated.loggers")
register = registry.register


@contextlib.contextmanager
def logging_to(
    loggers: Sequence[AnyLogger | str],
    settings: Training,
    folder: Path | None = None,
    done: int = 0,
) -> Iterator[Callable[[RoundRecord], None]]:
    """Start loggers, given by name or as objects; yield a function that gives them a round.

    Examples
    --------
    >>> class Rounds(list):
    ...     def start(self, settings, folder, done):
    ...         self.append(f"{done} of {settings.rounds}")
    ...
    ...     def log(self, record):
    ...         self.append(record.round)
    ...
    ...     def close(self):
    ...         self.append("end")
    >>> mine = Rounds()
    >>> with logging_to([mine], Training(rounds=3)) as log:
    ...     pass
    >>> mine
    ['0 of 3', 'end']
    """
    opened = open_loggers(loggers)
    with contextlib.ExitStack() as stack:
        for one in opened:
            if isinstance(one, Logger):
                one.start(settings, folder, done)
                stack.callback(one.close)

        def log(record: RoundRecord) -> None:
            for one in opened:
                (one.log if isinstance(one, Logger) else one)(record)

        yield log


def open_loggers(loggers: Sequence[AnyLogger | str]) -> list[AnyLogger]:
    """Return loggers that are given by name or as objects; refuse what is none."""
    if not isinstance(loggers, list | tuple):
        raise ParameterError(f"loggers must be a list, got {shown(loggers)}; put it into one")
    return [_open(one) for one in loggers]


def _open(given: AnyLogger | str) -> AnyLogger:
    if isinstance(given, str):
        return registry[given]()
    if isinstance(given, type) or not (isinstance(given, Logger) or callable(given)):
        hint = "; give an object, not its class" if isinstance(given, type) else ""
        raise ParameterError(
            "a logger must be a name, have the methods start, log and close, or be a function of "
            f"records, got {shown(given)}{hint}"
        )
    return given


def scalars_of(record: RoundRecord) -> dict[str, float]:
    """Return a round's scalars; rounds without an evaluation have no accuracy."""
    scalars = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "accuracy_spread": record.accuracy_spread,
        "age/mean": record.counted_ages.mean(),
        "age/oldest": record.counted_ages.max(),
        "age/variance": record.variance,
        "round/delivered": record.delivered.sum(),
        "round/refused": record.refused.sum(),
        "round/too_long": 0 if record.too_long is None else record.too_long.sum(),
        "round/trained": record.trained,
        "round/seconds": record.seconds,
    }
    return {name: float(value) for name, value in scalars.items() if value == value}


def flat_settings(settings: Training) -> dict[str, Any]:
    """Return what differs from the defaults, options by ``thing.option``, for tables of runs."""
    found: dict[str, Any] = {}
    for name, value in settings.model_dump(mode="json", exclude_defaults=True).items():
        if isinstance(value, dict):
            found |= {f"{name.removesuffix('_options')}.{key}": one for key, one in value.items()}
        else:
            found[name] = value
    return found


def missing(library: str, extra: str) -> FreshbandError:
    """Return the error for a library that is not installed."""
    return FreshbandError(
        f"{library} is missing; install it with: pip install 'freshband[{extra}]'"
    )


def remembered(folder: Path | None, name: str, make: Callable[[], str]) -> str:
    """Return the identifier a run has elsewhere: the one in its folder, or a new one."""
    path = None if folder is None else folder / f"{name}.id"
    if path is not None and path.exists():
        return path.read_text(encoding="utf-8").strip()
    made = make()
    if path is not None:
        write_whole(path, f"{made}\n".encode())
    return made
