"""The result of a theorem: a number, and whether its conditions hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from freshband.theory._inputs import Array, Flags


@dataclass(frozen=True, eq=False)
class Bound:
    """A bound with the conditions under which it holds.

    Attributes
    ----------
    value : float64 array
        The value of the formula, which is a bound only where the conditions hold.
    kind : {"lower", "upper"}
        A lower bound is about every policy on *some* air (channel environment), which the theorem
        constructs, or on the air it is given (`weighted_age_bound`); an upper bound is about one
        policy on *every* air that the conditions allow.
    conditions : mapping of str to bool array
        Each condition, in words, and where it holds; shapes broadcast to that of ``value``.

    Examples
    --------
    >>> bound = Bound(np.array([3.0, 5.0]), "upper", {"rounds > 10": np.array([True, False])})
    >>> bound.holds.tolist(), bound.failing
    ([True, False], ['rounds > 10'])
    """

    value: Array
    kind: Literal["lower", "upper"]
    conditions: Mapping[str, Flags]

    @property
    def holds(self) -> Flags:
        """Where all conditions hold, in the shape of ``value``."""
        result = np.ones(np.shape(self.value), np.bool_)
        for condition in self.conditions.values():
            result = result & condition
        return result

    @property
    def failing(self) -> list[str]:
        """The conditions that fail somewhere."""
        return [name for name, holds in self.conditions.items() if not np.all(holds)]
