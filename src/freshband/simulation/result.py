"""Results: labelled arrays with everything needed to reproduce them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband import __version__
from freshband._plugins import imports_to_keep
from freshband._policy import has_detector, label_of
from freshband._sealed import load_sealed, save_sealed, versions_of
from freshband.aoi import growth_exponent, jain_index, match_alarms
from freshband.errors import ParameterError, shown
from freshband.simulation._loop import Tally
from freshband.statistics import mean_and_error

_OF_DETECTORS = ("alarms", "detected", "missed", "false_alarms", "delay")
_REGRETS = ("regret", "regret_rotate", "regret_fixed")
_FORMAT = "freshband simulation 1"
_LIBRARIES = ("numpy", "numba", "xarray")


@dataclass(frozen=True)
class _Record:
    """The measurements of one run."""

    tallies: list[Tally]
    seconds: list[float]
    exposure: list[float]  # sum of weights over all rounds and clients that were there
    yardsticks: dict[str, NDArray[Any]]  # the oracles' age curves, by measure
    breakpoints: NDArray[np.int64] | None  # true changes; None if unknown

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name."""
        arrays = {
            f"tally.{place}.{name}": array
            for place, tally in enumerate(self.tallies)
            for name, array in tally._asdict().items()
        }
        arrays |= {f"yardstick.{name}": curve for name, curve in self.yardsticks.items()}
        arrays |= {"seconds": np.array(self.seconds), "exposure": np.array(self.exposure)}
        return arrays | ({} if self.breakpoints is None else {"breakpoints": self.breakpoints})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> _Record:
        """Return the record that `to_arrays` took apart."""
        tallies = [
            Tally(*(arrays[f"tally.{place}.{name}"] for name in Tally._fields))
            for place in range(len(arrays["seconds"]))
        ]
        judges = [name for name in arrays if name.startswith("yardstick.")]
        return cls(
            tallies=tallies,
            seconds=arrays["seconds"].tolist(),
            exposure=arrays["exposure"].tolist(),
            yardsticks={name.partition(".")[2]: arrays[name] for name in judges},
            breakpoints=arrays.get("breakpoints"),
        )


def _collect(
    names: Sequence[str],
    checkpoints: NDArray[np.int64],
    records: Sequence[_Record],
    config: dict[str, Any],
    seconds: float,
) -> xr.Dataset:
    """Combine the records of all runs into a dataset."""
    rounds, clients = config["rounds"], config["clients"]

    def over_runs(measure: Callable[[Tally], Any]) -> NDArray[Any]:
        return np.array(
            [[measure(record.tallies[p]) for record in records] for p in range(len(names))]
        )

    curve, total = ("policy", "run", "round"), ("policy", "run")
    age = over_runs(lambda tally: tally.age_curve)
    delivered = over_runs(lambda tally: tally.delivered)
    data: dict[str, Any] = {
        "age_curve": (curve, age),
        "variance_curve": (curve, over_runs(lambda tally: tally.variance_curve) / clients**2),
        "delivered_curve": (curve, over_runs(lambda tally: tally.delivered_curve)),
        "mean_age": (total, age[:, :, -1] / np.array([record.exposure for record in records]).T),
        "cumulative_variance": (total, over_runs(lambda tally: tally.variance[0]) / clients**2),
        "max_age": (total, over_runs(lambda tally: tally.mark[0]["oldest"])),
        "delivered": (total, delivered.sum(axis=-1)),
        "participation": (("policy", "run", "client"), delivered / rounds),
        "jain": (total, jain_index(delivered)),
        "alarms": (total, over_runs(lambda tally: tally.mark[0]["alarms"])),
        "seconds": (total, np.array([record.seconds for record in records]).T),
    }
    for name in _REGRETS:
        oracle = [record.yardsticks.get(name) for record in records]
        known = all(each is not None for each in oracle)
        regret = age - np.array(oracle)[None] if known else np.full(age.shape, np.nan)
        data[f"{name}_curve"] = (curve, regret.astype(np.float64))
        data[name] = (total, regret[:, :, -1].astype(np.float64))
    data |= {name: (total, values) for name, values in _detections(names, records).items()}
    return xr.Dataset(
        data,
        coords={
            "policy": list(names),
            "run": np.arange(len(records)),
            "round": checkpoints,
            "client": np.arange(clients),
        },
        attrs={
            "format": _FORMAT,
            "config": json.dumps(config),
            "freshband": __version__,
            "versions": versions_of(_LIBRARIES),
            "seconds": seconds,
            **imports_to_keep(),
        },
    )


def _detections(names: Sequence[str], records: Sequence[_Record]) -> dict[str, NDArray[np.float64]]:
    """Compare alarms with true changes; NaN where these are unknown."""
    fields = {"detected": "detected", "missed": "missed", "false_alarms": "false", "delay": "delay"}
    found = {name: np.full((len(names), len(records)), np.nan) for name in fields}
    for r, record in enumerate(records):
        if record.breakpoints is None:
            continue
        for p, tally in enumerate(record.tallies):
            alarms = tally.alarm[: min(tally.mark[0]["alarms"], len(tally.alarm)), 0]
            # an alarm is raised at the end of its round, a change begins before it
            detections = match_alarms(alarms, record.breakpoints)._asdict()
            for name, field in fields.items():
                found[name][p, r] = detections[field]
    return found


def _mask_detections(measures: xr.Dataset, config: Mapping[str, Any]) -> xr.Dataset:
    """Return measures with NaN where a policy without a detector has no value.

    A policy that does not look for changes misses none.

    Parameters
    ----------
    measures : xarray.Dataset
        Over (policy, run), ``alarms`` among them.
    config : mapping
        Of the result: ``policies`` as written, and ``policy_options`` by name.
    """
    texts = {label_of(text): text for text in config["policies"]}
    options = config.get("policy_options", {})
    raised = measures.alarms.sum("run")
    looks = [
        has_detector(texts[str(name)], options.get(str(name)), int(raised.sel(policy=name)))
        for name in measures.policy.values
    ]
    known = xr.DataArray(looks, dims="policy", coords={"policy": measures.policy})
    concerned = [name for name in _OF_DETECTORS if name in measures]
    return measures.assign({name: measures[name].where(known) for name in concerned})


def summarise(result: xr.Dataset) -> dict[str, Any]:
    """Return mean and standard error over runs of every measure, as plain JSON values.

    Returns
    -------
    dict
        ``policies.<name>.<measure>`` is ``{"mean": …, "se": …}``, or None where the measure does
        not apply, such as ``missed`` of a policy without a detector; a standard error of a single
        run is None. ``growth_exponent`` is the exponent of the mean regret over the last nine
        tenths of the rounds, None where regret is not positive. ``rounds_per_second`` counts the
        compiled rounds of each policy. Where ``same_air`` is true, all runs met the same states:
        standard errors then come only from a policy's own random choices, and are 0 without any.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate("stationary", "random", rounds=100, runs=2)
    >>> sorted(summarise(result)["policies"]["random"]["regret"])
    ['mean', 'se']
    """
    config = _read_config(result)
    measures = [str(name) for name, array in result.items() if array.dims == ("policy", "run")]
    masked = _mask_detections(result, config)
    policies: dict[str, Any] = {}
    for name in result.policy.values:
        row = masked.sel(policy=name)
        policies[str(name)] = {
            measure: mean_and_error(row[measure].values)
            for measure in measures
            if measure != "seconds"
        }
        late = result["round"].values >= config["rounds"] / 10  # the start says little about growth
        main = "regret_curve" if bool(row.regret.notnull().any()) else "regret_fixed_curve"
        growth = growth_exponent(result["round"].values[late], row[main].mean("run").values[late])
        policies[str(name)]["growth_exponent"] = None if np.isnan(growth) else growth
        seconds = float(row.seconds.sum())
        played = config["rounds"] * config["runs"]
        policies[str(name)]["rounds_per_second"] = played / seconds if seconds > 0 else None
    return {
        **config,
        "policies": policies,
        "same_air": bool(result.attrs.get("same_air", 0)),
        "seconds": result.attrs["seconds"],
        "freshband": result.attrs["freshband"],
        "versions": json.loads(result.attrs["versions"]),
    }


def save_result(result: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write a result as NetCDF, completely or not at all."""
    _read_config(result)
    save_sealed(result, path)


def _read_config(result: object) -> dict[str, Any]:
    """Return the configuration of a result, or raise `ParameterError`."""
    if not isinstance(result, xr.Dataset) or result.attrs.get("format") != _FORMAT:
        raise ParameterError(f"result must come from simulate or load_result, got {shown(result)}")
    config: dict[str, Any] = json.loads(result.attrs["config"])
    return config


def load_result(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a result written by `save_result`.

    Raises
    ------
    FileError
        If the file is missing, damaged, or not a simulation's.
    """
    return load_sealed(path, _FORMAT)
