"""Names of clients and channels: their numbers, unless the user gives others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np

from freshband.errors import ParameterError, shown

Name = str | int


class Names:
    """Names of ``count`` things, which are counted from 0.

    Where a client left, its number is ``free`` and its name None; a new list of names has none.
    """

    def __init__(
        self, what: str, count: int, given: Sequence[Name | None] | None = None, free: bool = False
    ) -> None:
        self.what, self.count = what, count
        self._names: list[Name | None] | None = None  # None: the numbers are the names
        self._numbers: dict[Name, int] = {}
        if given is None:
            return
        if isinstance(given, Set | Mapping) or not isinstance(given, Iterable):  # have no order
            raise ParameterError(
                f"{what}_ids must hold one name per {what}, {count}, in order, got {shown(given)}"
            )
        names = [given] if isinstance(given, str) else list(given)
        if len(names) != count:
            raise ParameterError(
                f"{what}_ids must hold one name per {what}, {count}, got {len(names)}"
            )
        self._names = [None] * count
        for number, name in enumerate(names):
            if not (free and name is None):
                self.enter(self._read(name), number)

    def __getitem__(self, number: int) -> Name | None:
        return number if self._names is None else self._names[number]

    def to_list(self) -> list[Name | None] | None:
        """Return all names, or None if the numbers are the names."""
        return None if self._names is None else list(self._names)

    def number(self, name: Name) -> int:
        """Return the number of a name, or raise `ParameterError`."""
        name = self._read(name)
        found = self._find(name)
        if found is None:
            raise ParameterError(f"there is no {self.what} {shown(name)}")
        return found

    def _find(self, name: Name) -> int | None:
        if self._names is not None:
            return self._numbers.get(name)
        return name if isinstance(name, int) and 0 <= name < self.count else None

    def _read(self, name: Name | None) -> Name:
        """Return a name as plain text or number, or raise `ParameterError`."""
        plain = name.item() if isinstance(name, np.generic) else name
        if not isinstance(plain, str | int) or isinstance(plain, bool):
            raise ParameterError(
                f"the id of a {self.what} must be text or a whole number, got {shown(name)}"
            )
        return plain

    def enter(self, name: Name | None, number: int) -> Name:
        """Name a free number, or the next one; without a name it is called by its number."""
        name = number if name is None else self._read(name)
        if self._find(name) is not None:
            raise ParameterError(f"there is a {self.what} {name!r} already")
        names = self._listed()
        if number == self.count:
            names.append(None)
            self.count += 1
        names[number] = name
        self._numbers[name] = number
        return name

    def remove(self, number: int) -> None:
        """Free a number."""
        names = self._listed()
        name, names[number] = names[number], None
        if name is not None:
            del self._numbers[name]

    def _listed(self) -> list[Name | None]:
        if self._names is None:
            self._names = list(range(self.count))
            self._numbers = {number: number for number in range(self.count)}
        return self._names
