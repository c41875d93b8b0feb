"""Registries of names: one per kind, such as schedulers and channel models.

A registry imports every module of its package on first use, so that adding a scheduler means adding
a file that registers it; user code registers from its own modules in the same way.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from freshband.errors import ParameterError, UnknownNameError, nearest, shown

_Thing = TypeVar("_Thing")

_RESERVED = frozenset(":+,.={}@ \t\n")  # these separate names in policies and settings


class Registry(Generic[_Thing]):
    """A mapping from public names to things of a ``kind``, filled by decorated definitions.

    ``needs`` are the attributes that every class must have, with their meanings; ``defaults`` are
    given to classes that lack them, and then ``complete`` is called with the class. ``distant``
    are things that modules above the package register, imported when their name is used.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        needs: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        complete: Callable[[Any], None] | None = None,
        distant: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self._needs = dict(needs or {})
        self._defaults = dict(defaults or {})
        self._complete = complete
        self._package = package
        self._distant = dict(distant or {})
        self._things: dict[str, _Thing] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[_Thing], _Thing]:
        """Return a decorator that registers its target under ``name``."""
        if not isinstance(name, str) or not name or set(name) & _RESERVED:
            raise ParameterError(
                f"the name of a {self.kind} must be text without spaces and any of "
                f"':+,.={{}}@', got {shown(name)}"
            )

        def enter(thing: _Thing) -> _Thing:
            if not thing.__module__.startswith(f"{self._package}."):
                self._load()  # so that names of the package are taken from the start
            known = self._things.get(name)
            if known is not None and getattr(known, "__module__", 0) != thing.__module__:
                raise ParameterError(f"{self.kind} {name!r} is registered already, by {known!r}")
            for part, meaning in self._needs.items():
                if not hasattr(thing, part):
                    raise ParameterError(f"{self.kind} {name!r} needs {part!r}: {meaning}")
            for part in sorted(getattr(thing, "__abstractmethods__", ())):
                raise ParameterError(f"{self.kind} {name!r} needs a method {part!r}")
            for part, value in self._defaults.items():
                if not hasattr(thing, part):
                    setattr(thing, part, value)
            if self._complete is not None:
                self._complete(thing)
            self._things[name] = thing
            return thing

        return enter

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self._load()
        return sorted({*self._things, *self._distant})

    def __getitem__(self, name: str) -> _Thing:
        self._load()
        try:
            if name not in self._things and name in self._distant:
                module, _, declared = self._distant[name].rpartition(".")
                self._things[name] = getattr(importlib.import_module(module), declared)
            return self._things[name]
        except (KeyError, TypeError):
            hint = nearest(str(name), self.names())
            raise UnknownNameError(f"unknown {self.kind} {shown(name)}; {hint}") from None

    def make(
        self, given: object, options: Mapping[str, object], ready: Any, wanted: str, hint: str = ""
    ) -> Any:
        """Return the thing of a name with these options, or a ``ready`` object as it is."""
        if isinstance(given, str):
            make: Any = self[given]
            return make(**options)
        if not isinstance(given, ready) or isinstance(given, type):
            hint = "; give an object, not its class" if isinstance(given, type) else hint
            raise ParameterError(f"{wanted}, got {shown(given)}{hint}")
        if options:
            raise ParameterError(
                f"parameters need a {self.kind} given by name, got {sorted(options)} with a "
                f"ready {type(given).__name__}"
            )
        return given

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._things or name in self._distant

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def name_of(self, thing: _Thing) -> str | None:
        """Return the name under which ``thing`` is registered, or None."""
        self._load()
        return next((name for name, known in self._things.items() if known is thing), None)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True  # the modules themselves may look something up
        try:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__, self._package + "."):
                importlib.import_module(module.name)
        except BaseException:
            self._loaded = False  # a partly filled registry would look complete
            raise
