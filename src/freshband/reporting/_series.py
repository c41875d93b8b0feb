"""Curves of several runs for pages and pictures: one series for each policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband.statistics import standard_error


class Series(NamedTuple):
    """One curve: its x values, shape (n,), and the values of every run, shape (runs, n)."""

    x: NDArray[Any]
    values: NDArray[np.float64]

    def summarise(
        self, spread: Callable[[NDArray[np.float64]], NDArray[Any]] = standard_error
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
        """Return x values, mean and standard error over runs, where every run has a value."""
        known = ~np.isnan(self.values).any(axis=0)
        values = self.values[:, known]
        return np.asarray(self.x)[known], values.mean(axis=0), spread(values)


def over_policies(
    array: xr.DataArray, along: str = "round", *, from_zero: bool = False
) -> dict[str, Series]:
    """Return a series for each policy of an array over (policy, run, ``along``)."""
    places = array[along].values
    found: dict[str, Series] = {}
    for name in array.policy.values:
        values = array.sel(policy=name).transpose("run", along).values.astype(np.float64)
        if from_zero:
            start = np.zeros((len(values), 1))
            series = Series(np.append(0, places), np.append(start, values, axis=1))
        else:
            series = Series(places, values)
        found[str(name)] = series
    return found


def rank_clients(values: xr.DataArray) -> xr.DataArray:
    """Return values over (policy, run, client) sorted in each run, the lowest value first."""
    ranked = values.transpose("policy", "run", "client")
    ranked = ranked.copy(data=np.sort(ranked.values, axis=-1))
    return ranked.assign_coords(client=np.arange(1, ranked.sizes["client"] + 1))
