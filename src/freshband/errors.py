"""What freshband raises.

Every error a user can cause derives from `FreshbandError`, has a one-line message that names the
parameter, what is allowed and what was given, and leaves everything as it was. The command line
turns each into exit code 2 without a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "FileError",
    "FreshbandError",
    "ParameterError",
    "RuleError",
    "SequenceError",
    "UnknownNameError",
    "nearest",
    "reason",
    "shown",
]


class FreshbandError(Exception):
    """Base class of all errors freshband raises on purpose."""


class ParameterError(FreshbandError, ValueError):
    """A parameter has the wrong type, is out of range, or does not fit another one."""


class UnknownNameError(ParameterError):
    """A scheduler, channel model, matching, preset or parameter name nobody registered."""


class SequenceError(FreshbandError, RuntimeError):
    """A call out of order, such as observing twice or observing before planning."""


class RuleError(FreshbandError, RuntimeError):
    """Something of the user's own that breaks the rules of its kind, or cannot be compiled."""


class FileError(FreshbandError, OSError):
    """A file that cannot be read or written, is damaged, or belongs to another problem."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint naming the known name closest to ``name``, or listing all of them.

    Examples
    --------
    >>> nearest("glr-cubc", ["random", "glr-cucb"])
    "did you mean 'glr-cucb'?"
    >>> nearest("xyz", ["b", "a", "b"])
    'known: a, b'
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)


def shown(value: object, width: int = 80) -> str:
    """Return how a value looks in a message: one line, and not a long one.

    Examples
    --------
    >>> shown("ten"), shown(list(range(100)), width=20)
    ("'ten'", '[0, 1, 2, 3, 4, 5...')
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a message must not fail over what it complains about
        text = f"an unprintable {type(value).__name__}"
    return text if len(text) <= width else text[: width - 3] + "..."


def reason(error: BaseException) -> str:
    """Return in one line what went wrong; of the system's errors without number and path.

    Examples
    --------
    >>> reason(FileNotFoundError(2, "No such file or directory", "air.csv"))
    'No such file or directory'
    """
    return " ".join(str(getattr(error, "strerror", None) or error).split())
