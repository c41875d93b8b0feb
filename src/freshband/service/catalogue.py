"""Coordinators by name."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from freshband._default import DEFAULT_POLICY
from freshband._policy import parse_policy
from freshband.errors import (
    FileError,
    FreshbandError,
    ParameterError,
    SequenceError,
    UnknownNameError,
    nearest,
    reason,
    shown,
)
from freshband.parameters import whole_number
from freshband.service.calls import SETTINGS, check_body
from freshband.service.hosted import Hosted

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_NUMBERS: Final = 10**7  # that a coordinator started by a request may hold
_MOST: Final = 64  # coordinators


class Catalogue:
    """Coordinators in service, by name.

    Parameters
    ----------
    state : Path, optional
        Where the first coordinator is kept; those that are added later are kept in the folder
        ``STATE.d``. Without it all live in memory.
    key : bytes, optional
        A secret that seals all files.

    Examples
    --------
    >>> catalogue = Catalogue()
    >>> created = catalogue.add("roof", {"policy": "cucb", "n_clients": 1, "n_channels": 2})
    >>> list(catalogue), catalogue.add("roof", {"policy": "cucb", "n_clients": 1, "n_channels": 2})
    (['roof'], False)
    """

    def __init__(self, state: Path | None = None, key: bytes | None = None) -> None:
        self._state, self._key = state, key
        self._folder = None if state is None else state.with_name(f"{state.name}.d")
        self._hosted: dict[str, Hosted] = {}
        self._first = ""
        self._adding = threading.Lock()

    def __len__(self) -> int:
        return len(self._hosted)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._hosted))

    def __getitem__(self, name: str) -> Hosted:
        try:
            return self._hosted[name]
        except KeyError:
            hint = nearest(name, self._hosted) if self._hosted else "there is none"
            raise UnknownNameError(f"there is no coordinator {shown(name)}; {hint}") from None

    def items(self) -> list[tuple[str, Hosted]]:
        """Return all coordinators with their names."""
        return sorted(self._hosted.items())

    def open(self, name: str, settings: Mapping[str, Any]) -> None:
        """Start or restore the first coordinator, and restore those that were added to it."""
        if self._folder is not None and (self._folder / f"{name}.npz").exists():
            raise ParameterError(f"{name!r} is the name of a coordinator in {self._folder}")
        # Its lock comes before all else: the folder may be that of a service that runs.
        self._hosted[_read_name(name)] = Hosted(settings, self._state, self._key)
        self._first = name
        if self._folder is None:
            return
        for orphan in self._folder.glob("*.journal"):  # of a deletion that was killed
            if not orphan.with_suffix("").exists():
                with suppress(OSError):
                    orphan.unlink()
        for path in sorted(self._folder.glob("[!.]*.npz")):  # not those half written
            self._hosted[path.stem] = Hosted.reopened(path, self._key)

    def add(self, name: str, settings: Any, *, trusted: bool = False) -> bool:
        """Start a coordinator, and return True; False if there is one with the same settings.

        Only a ``trusted`` caller may start one of any size.
        """
        given = check_body("a coordinator", settings, SETTINGS)
        with self._adding:
            if name in self._hosted:
                if self._hosted[name].settings != given:
                    raise SequenceError(f"there is a coordinator {name!r} with other settings")
                return False
            if len(self._hosted) >= _MOST:
                raise ParameterError(f"there may be at most {_MOST} coordinators")
            if not trusted:
                _check_size(given)
            path = None if self._folder is None else self._folder / f"{_read_name(name)}.npz"
            try:
                self._hosted[_read_name(name)] = Hosted(given, path, self._key)
            except MemoryError:
                raise ParameterError("there is not enough memory for this coordinator") from None
            except (TypeError, ValueError) as error:
                if isinstance(error, FreshbandError):
                    raise
                raise ParameterError(reason(error)) from None
            return True

    def remove(self, name: str) -> None:
        """End a coordinator that was added, and delete its files."""
        with self._adding:
            hosted = self[name]
            if name == self._first:
                raise SequenceError(f"{name!r} was started with the service, and ends with it")
            del self._hosted[name]
            hosted.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save all coordinators; raises the last `FileError`, after all have been tried."""
        failure: FileError | None = None
        for hosted in self._hosted.values():
            try:
                hosted.close()
            except FileError as error:
                failure = error
        self._hosted.clear()
        if failure is not None:
            raise failure


def _read_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ParameterError(
            "the name of a coordinator must be 1 to 64 letters, digits, '.', '_' and '-', and not "
            f"begin with '.', got {shown(name)}"
        )
    return name


def _check_size(given: Mapping[str, Any]) -> None:
    clients = whole_number("n_clients", given["n_clients"], at_least=1)
    channels = whole_number("n_channels", given["n_channels"], at_least=1)
    delay = whole_number("max_delay", given.get("max_delay", 100), at_least=0)
    links = clients * channels if given.get("links") == "differ" else 0
    if clients + channels + (delay + 1) * min(clients, channels) + links > _NUMBERS:
        raise ParameterError(
            f"a coordinator of n_clients={clients}, n_channels={channels}, max_delay={delay} is "
            "too large to be started by a request; start it with the service"
        )
    policy = parse_policy(given.get("policy", DEFAULT_POLICY), given.get("options"))
    for part in (policy.scheduler, policy.matching):
        for name, value in vars(part).items():  # such as the length of a window
            if isinstance(value, int) and value * (channels + links) > _NUMBERS:
                raise ParameterError(
                    f"a coordinator of n_channels={channels}, {name}={value} is too large to be "
                    "started by a request; start it with the service"
                )
