"""The exceptions that freshband raises.

Every error that a user can cause derives from `FreshbandError`, has a one-line message that names
the parameter, the allowed values and the value given, and leaves all state unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class FreshbandError(Exception):
    """Base class of all errors freshband raises on purpose."""


class ParameterError(FreshbandError, ValueError):
    """A parameter has the wrong type, is out of range, or does not fit another one."""


class UnknownNameError(ParameterError):
    """A scheduler, channel model, matching, preset or parameter name that is not registered."""


class SequenceError(FreshbandError, RuntimeError):
    """A call out of order, such as observing twice or observing before planning."""


class RuleError(FreshbandError, RuntimeError):
    """User code that breaks the rules of its kind, or cannot be compiled."""


class FileError(FreshbandError, OSError):
    """A file that cannot be read or written, is damaged, or belongs to another problem."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the known name closest to ``name``, or lists all of them."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)


def shown(value: object, width: int = 80) -> str:
    """Return how a value looks in a message: on one line, cut off at ``width``."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an error message must not fail itself
        text = f"an unprintable {type(value).__name__}"
    return text if len(text) <= width else text[: width - 3] + "..."


def reason(error: BaseException) -> str:
    """Return in one line what went wrong; system errors lose their number and path."""
    said = error.strerror if isinstance(error, OSError) else None
    return " ".join(str(said or error).split())


@contextmanager
def accessing(how: str, path: object) -> Iterator[None]:
    """Turn errors of the system into a `FileError`: cannot ``how`` the file, and why.

    Examples
    --------
    >>> with accessing("read", "trace.csv"):
    ...     raise PermissionError(13, "Permission denied")
    Traceback (most recent call last):
    freshband.errors.FileError: cannot read trace.csv: Permission denied
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot {how} {path}: {reason(error)}") from None
