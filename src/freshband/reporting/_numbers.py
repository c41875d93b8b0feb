"""How numbers and tables are written for readers, on pages and terminals."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

MISSING: Final = "—"
_SPECIAL: Final = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    MISSING: "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "\n": " ",
}  # what LaTeX writes otherwise


class Table(NamedTuple):
    """A table whose first column names the rows; ``words`` is for one that holds sentences."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: bool = False


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "run"), counted(2000, "breakpoint"), counted(3, "policy")
    ('1 run', '2,000 breakpoints', '3 policies')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def number(value: float | None, error: float | None = None, *, percent: bool = False) -> str:
    """Return a number with as many digits as its size or its standard error suggests.

    Examples
    --------
    >>> number(71244.3, 210.2), number(0.9634, percent=True), number(float("nan")), number(3)
    ('71,244 ± 210', '96.3 %', '—', '3')
    """
    if value is None or math.isnan(value):
        return MISSING
    scale, unit = (100, " %") if percent else (1, "")
    error = 0.0 if error is None or math.isnan(error) else scale * error
    if error < 0.0005:
        digits = 1 if percent else _digits(value)
        return f"{scale * value:,.{digits}f}{unit}".replace("-", "−")
    most = 1 if percent else 3
    digits = min(most, max(0, 1 - math.floor(math.log10(error))))  # two digits of the error
    return f"{scale * value:,.{digits}f} ± {error:,.{digits}f}{unit}".replace("-", "−")


def _digits(value: float) -> int:
    size = abs(value)
    if value == int(value) or size >= 1000:
        return 0
    return 1 if size >= 100 else 2 if size >= 1 else 3


def with_digits(
    value: float | None, digits: int = 0, error: float | None = None, *, sign: bool = False
) -> str:
    """Return a number with a fixed number of decimals, and its standard error where one is given.

    Examples
    --------
    >>> with_digits(1234.56, 1, 7.89), with_digits(0.5, 2, sign=True), with_digits(None)
    ('1,234.6 ± 7.9', '+0.50', '—')
    """
    if value is None:
        return MISSING
    text = f"{value:{'+' if sign else ''},.{digits}f}"
    return text if error is None else f"{text} ± {error:,.{digits}f}"


def written_number(value: float) -> str:
    """Return a number with about three significant digits and no exponent.

    Examples
    --------
    >>> written_number(18292.3), written_number(0.1234), written_number(-5.678)
    ('18,292', '0.123', '-5.68')
    """
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def latex_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    rules: tuple[str, str, str] = ("", r"\hline", ""),
) -> str:
    r"""Return a tabular with these rules at its top, below its head and at its end.

    Examples
    --------
    >>> print(latex_table(["policy", "age"], [["[bold]glr_cucb[/bold]", "3 ± 1"]]), end="")
    \begin{tabular}{lr}
    policy & age \\
    \hline
    \textbf{glr\_cucb} & 3 $\pm$ 1 \\
    \end{tabular}
    """
    first, *others = (rf"{' & '.join(map(_latex, row))} \\" for row in (head, *rows))
    lines = filter(None, [rules[0], first, rules[1], *others, rules[2]])
    form = "l" + "r" * (len(head) - 1)
    return "\n".join([rf"\begin{{tabular}}{{{form}}}", *lines, r"\end{tabular}"]) + "\n"


def _latex(cell: str) -> str:
    plain = re.sub(r"\[bold\](.*?)\[/bold\]", "\0\\1\1", cell)
    escaped = "".join(_SPECIAL.get(sign, sign) for sign in plain)
    return escaped.replace("\0", r"\textbf{").replace("\1", "}")
