"""Values written as text: those of ``--set key=value`` and of a policy's braces."""

from __future__ import annotations

import ast
import json
from typing import Any, Final

from freshband.errors import ParameterError, shown

_DEEP: Final = 16  # lists in lists that no setting needs


def read_value(text: str) -> Any:
    """Return a value as JSON or Python writes it (numbers, truth values, none, lists), else text.

    Examples
    --------
    >>> [read_value(text) for text in (".6", "1_000", "true", "None", "[.1, .9]", "paper")]
    [0.6, 1000, True, None, [0.1, 0.9], 'paper']
    """
    plain = text.strip()
    if plain.startswith("[" * _DEEP):
        raise ParameterError(f"lists must not be nested so deeply, got {shown(plain)}")
    if plain.lower() in ("true", "false"):
        return plain.lower() == "true"
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a number may have too many digits
        pass
    # Python's numbers and lists only: its texts, tuples and tables would change what texts mean.
    if plain != "None" and not plain.startswith(tuple("[+-.0123456789")):
        return text
    try:
        value = ast.literal_eval(plain)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if value is None or isinstance(value, int | float | list) else text


def split_outside(text: str) -> list[str]:
    """Split a text at its commas, except at those inside brackets and braces.

    Examples
    --------
    >>> split_outside("random, fast=cucb{mean_window=200,discount=none},bayes")
    ['random', ' fast=cucb{mean_window=200,discount=none}', 'bayes']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "{[") - (letter in "]}")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
