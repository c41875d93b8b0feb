"""JSON and TOML made by somebody else, read with bounded depth.

Deep nesting ends a parser, or whatever walks through its result, in RecursionError; TOML's dotted
keys take Python's parser quadratic time.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, Final

__all__ = ["check_depth", "parse_json", "parse_toml"]

_DEEP: Final = 64  # a file of ours has less than 16
# Texts and comments as the parsers see them. One without an end goes on to the end of its line or
# file, where parsers give up; to look for its end anew from each quote takes quadratic time.
_TEXTS: Final = re.compile(
    r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*+(?:"{3,5})?'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5})?"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+"
)
_BRACKETS: Final = re.compile(r"[\[\]{}]")
_KEYS: Final = re.compile(r"[\[\]{}=,\n]")


def parse_json(text: str | bytes) -> Any:
    """Return what JSON holds; raises ValueError where it is none or nested too deeply.

    Examples
    --------
    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json("[" * 1000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    plain = text.decode() if isinstance(text, bytes) else text
    check_depth(plain)
    return json.loads(plain)


def parse_toml(text: str) -> dict[str, Any]:
    """Return what TOML holds; raises ValueError where it is none or nested too deeply.

    Examples
    --------
    >>> parse_toml("a.b = 1")
    {'a': {'b': 1}}
    >>> parse_toml(".".join("a" * 1000) + " = 1")
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    check_depth(text)
    if any(part.count(".") > _DEEP for part in _KEYS.split(_TEXTS.sub("", text))):
        raise ValueError("it is nested too deeply")
    tables = tomllib.loads(text)
    _check_nesting(tables)
    return tables


def check_depth(text: str) -> None:
    """Raise ValueError if more brackets are open at once than any file needs."""
    depth = 0
    for bracket in _BRACKETS.findall(_TEXTS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > _DEEP:
            raise ValueError("it is nested too deeply")


def _check_nesting(value: Any) -> None:
    """Raise ValueError if tables and lists hold each other too deeply: brackets times dots."""
    level = [value]
    for _ in range(_DEEP + 2):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError("it is nested too deeply")
