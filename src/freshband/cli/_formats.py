"""Results in forms for other programs: JSON, CSV and LaTeX."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from freshband.cli._options import Format
from freshband.cli._settings import print_json
from freshband.reporting._numbers import MISSING, latex_table

SCHEMA: Final = 1  # raised when a key changes its name or meaning; new keys may appear at any time
_UNKNOWN: Final = {"mean": None, "se": None}  # of a measure that does not apply
_SINGLE: Final = ("growth_exponent", "rounds_per_second")  # one value for all runs


def print_result(
    output: Format,
    command: str,
    summary: Mapping[str, Any],
    columns: Mapping[str, Sequence[str]] | None = None,
) -> bool:
    """Print a summary for other programs, or return False if a table for people is wanted.

    ``columns`` are the cells of that table by heading, for LaTeX.
    """
    if output is Format.table:
        return False
    if output is Format.json:
        print_json({"schema": f"freshband {command} {SCHEMA}", **summary})
        return True
    rows = list(rows_of(summary))
    if output is Format.csv:
        _print_csv(rows)
        return True
    heads = list(dict.fromkeys(head for row in rows for head in row))
    cells = columns or {head: [_text(row.get(head)) for row in rows] for head in heads}
    sys.stdout.write(latex_table(list(cells), list(zip(*cells.values(), strict=True))))
    return True


def rows_of(summary: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the rows of a summary: policies, bounds, claims of experiments, or the one of a run.

    Examples
    --------
    >>> list(rows_of({"policies": {"cucb": {"age": {"mean": 2.0, "se": 0.5}, "delay": None}}}))
    [{'policy': 'cucb', 'age_mean': 2.0, 'age_se': 0.5, 'delay_mean': None, 'delay_se': None}]
    """
    if isinstance(summary.get("policies"), Mapping):
        for name, row in summary["policies"].items():
            missing = {key: _UNKNOWN for key in row if row[key] is None and key not in _SINGLE}
            yield {"policy": name, **_flat({**row, **missing})}
    elif "bounds" in summary:
        yield from map(_flat, summary["bounds"])
    elif summary and all(isinstance(claims, list) for claims in summary.values()):
        for name, claims in summary.items():
            yield from ({"experiment": name, **_flat(claim)} for claim in claims)
    else:
        yield _flat(summary)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of a row, and those in tables such as ``{"mean": …, "se": …}``."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}_{inner}": each for inner, each in _flat(value).items()}
        elif not isinstance(value, list):
            flat[name] = value
    return flat


def _print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    heads = list(dict.fromkeys(head for row in rows for head in row))
    writer = csv.DictWriter(sys.stdout, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _text(value: Any) -> str:
    return MISSING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
