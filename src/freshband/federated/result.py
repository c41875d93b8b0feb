"""Training results: the rounds as labelled arrays, with everything needed to run them again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

from freshband import __version__
from freshband._plugins import imports_to_keep
from freshband._sealed import complete, load_sealed, save_sealed, versions_of
from freshband.aoi import jain_index
from freshband.errors import FreshbandError, ParameterError, shown
from freshband.federated._spelling import modernise
from freshband.federated.clients import name_device, pick_device
from freshband.federated.records import RoundRecord, _stack_records
from freshband.federated.settings import Training

_FORMAT: Final = "freshband training 1"
_LIBRARIES: Final = ("numpy", "numba", "torch", "xarray")
_MEASURES: Final = (
    "final_accuracy", "best_accuracy", "best_round", "mean_accuracy", "final_loss",
    "accuracy_spread", "mean_age", "max_age", "cumulative_variance", "jain", "mean_staleness",
    "delivered", "refused", "too_long", "alarms", "trained", "bytes_up", "bytes_down",
)  # fmt: skip
_BY_CHANNEL: Final = frozenset({"channel_means"})
_LATEST: Final = 5  # updates of a client; if all of these were refused, it is kept out


def collect_records(
    records: Sequence[RoundRecord],
    settings: Training,
    seconds: float | None = None,
    *,
    device: str | None = None,
) -> xr.Dataset:
    """Return the records of a run, of rounds 1, 2, …, as a dataset.

    It has every field of `RoundRecord` over (round), (round, client) or (round, channel); besides
    ``cumulative_variance``, the running sum of ``variance``, and ``participation``, the share of
    rounds in which each client's update got through. By default ``seconds`` is the sum over rounds,
    and ``device`` what that of the settings stands for on this machine.
    """
    if not records:
        raise ParameterError("records must hold at least one round, got none")
    data: dict[str, Any] = {}
    stacked = _stack_records(records)
    stacked.setdefault("too_long", np.zeros_like(stacked["refused"]))  # other runs may have some
    for name, values in stacked.items():
        over = "channel" if name in _BY_CHANNEL else "client"
        data[name] = (("round",) if values.ndim == 1 else ("round", over), values)
    rounds = data.pop("round")[1]
    data["cumulative_variance"] = (("round",), np.cumsum(data["variance"][1]))
    data["participation"] = (("client",), data["delivered"][1].mean(axis=0))
    return xr.Dataset(
        data,
        coords={
            "round": rounds,
            "client": np.arange(data["ages"][1].shape[1]),
            "channel": np.arange(data["channel_means"][1].shape[1]),
        },
        attrs={
            "format": _FORMAT,
            "config": json.dumps(settings.model_dump(mode="json")),
            "freshband": __version__,
            "versions": versions_of(_LIBRARIES),
            "device": device or name_device(pick_device(settings.device)),
            "seconds": float(data["seconds"][1].sum() if seconds is None else seconds),
            **imports_to_keep(),
        },
    )


def save_training(result: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write a training result as NetCDF, completely or not at all."""
    _check(result)
    save_sealed(result, path)


def load_training(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a result written by `save_training`; `FileError` says if that cannot be done."""
    result = load_sealed(path, _FORMAT)
    with complete(path):
        return _spelt_today(result)


def _spelt_today(result: xr.Dataset, *where: str) -> xr.Dataset:
    """Return a result with the settings in its configuration as they are spelt today."""
    config = json.loads(result.attrs["config"])
    with suppress(FreshbandError):  # a rule of somebody's own may be unknown here
        spelt = {key: modernise(config[key]) for key in where}
        config = {**config, **spelt} if where else modernise(config)
    return result.assign_attrs(config=json.dumps(config))


def _read_settings(
    result: object, folder: Path | None = None, notes: list[str] | None = None
) -> Training:
    """Return the settings a result was made with: they give the same run again.

    Recordings that are gone are looked for in ``folder``; ``notes`` gets a sentence for each found.
    """
    return Training.as_stored(json.loads(_check(result).attrs["config"]), folder, notes)


def _check(result: object) -> xr.Dataset:
    if not isinstance(result, xr.Dataset) or result.attrs.get("format") != _FORMAT:
        raise ParameterError(
            f"result must come from collect_records or load_training, got {shown(result)}"
        )
    return result


def summarise_training(result: xr.Dataset) -> dict[str, Any]:
    """Return a summary of a run as plain JSON values.

    These are the measures of `measure_training`, None where they do not apply; by client
    ``participation`` and ``client_accuracy``; ``kept_out``, the clients whose last five updates, or
    more, were refused as too long; ``policy``, ``rounds_per_second``, and under ``config`` the
    settings.
    """
    settings = _read_settings(result)
    measures = {str(name): _plain(one.item()) for name, one in measure_training(result).items()}
    if measures["best_round"] is not None:
        measures["best_round"] = int(measures["best_round"])
    if not measures["alarms"] and not settings.build_policy().has_detector:
        measures["alarms"] = None
    seconds = float(result.attrs["seconds"])
    looks = result.accuracy.notnull().values
    by_client = result.client_accuracy.values[looks]
    return {
        "policy": settings.build_policy().name,
        "algorithm": settings.algorithm,
        **_facts_of(result, settings),
        "rounds": result.sizes["round"],
        **measures,
        "participation": result.participation.values.tolist(),
        "kept_out": _kept_out(result),
        "client_accuracy": [_plain(x) for x in by_client[-1].tolist()] if len(by_client) else None,
        "seconds": seconds,
        "rounds_per_second": result.sizes["round"] / seconds if seconds > 0 else None,
        "config": json.loads(result.attrs["config"]),
    }


def _facts_of(result: xr.Dataset, settings: Training) -> dict[str, Any]:
    """Return what every summary says of the settings and of how a result was made."""
    chosen = settings.model_dump(include={"dataset", "channels", "clients", "rounds", "seed"})
    made = {name: result.attrs[name] for name in ("device", "freshband")}
    return {**chosen, **made, "versions": json.loads(result.attrs["versions"])}


def _kept_out(result: xr.Dataset) -> list[int]:
    """Return the clients whose last updates were all refused as too long."""
    if "too_long" not in result:
        return []
    too_long, arrived = result.too_long.values, (result.delivered | result.refused).values
    latest = [row[came][-_LATEST:] for row, came in zip(too_long.T, arrived.T, strict=True)]
    return [client for client, refused in enumerate(latest) if refused.sum() == _LATEST]


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else value


def measure_training(result: xr.Dataset) -> xr.Dataset:
    """Return the measures that summarise a run, or several.

    Returns
    -------
    xarray.Dataset
        ``final_accuracy``, ``final_loss`` and ``accuracy_spread`` as of the last evaluation;
        ``best_accuracy``, ``best_round``, and ``mean_accuracy`` over all evaluations, which tells
        who learns faster; ``mean_age`` and ``max_age``, not counting clients in rounds in which
        they were not there; ``cumulative_variance``; ``jain`` of the
        deliveries by client; ``mean_staleness`` of the updates applied; ``delivered``, ``refused``,
        ``too_long`` among these, ``alarms``, ``trained``, ``bytes_up`` and ``bytes_down`` in all. A
        file of ``freshband reproduce`` has means over clients only, so it gets those that follow
        from means.
    """
    looked = result.accuracy.notnull()
    looked = looked.any([dim for dim in looked.dims if dim != "round"])
    last = np.flatnonzero(looked.values)[-1] if looked.any() else -1
    seen = result.isel(round=last, drop=True)
    known = {
        "final_accuracy": seen.accuracy,
        "best_accuracy": result.accuracy.max("round"),
        "best_round": result.accuracy.idxmax("round"),
        "mean_accuracy": result.accuracy.mean("round"),
        "final_loss": seen.loss,
        "accuracy_spread": seen.accuracy_spread,
        "cumulative_variance": result.variance.sum("round"),
        "alarms": (result.alarm >= 0).sum("round"),
        "trained": result.trained.sum("round"),
    }
    known |= _measure_clients(result) if "ages" in result else _measure_means(result)
    return xr.Dataset({name: known[name] for name in _MEASURES if name in known})


def counted_ages(result: xr.Dataset) -> xr.DataArray:
    """Return the ages of clients in rounds in which they were there, else NaN."""
    ages: xr.DataArray = result.ages
    return ages.where(result.present) if "present" in result else ages


def _measure_clients(result: xr.Dataset) -> dict[str, xr.DataArray]:
    deliveries = result.delivered.sum("round")
    staleness = result.staleness.where(result.staleness >= 0)
    return {
        "mean_age": counted_ages(result).mean(["round", "client"]),
        "max_age": counted_ages(result).max(["round", "client"]),
        "jain": _fairness(deliveries),
        "mean_staleness": staleness.mean(["round", "client"]),
        "delivered": deliveries.sum("client"),
        "refused": result.refused.sum(["round", "client"]),
        "too_long": result.get("too_long", 0 * result.refused).sum(["round", "client"]),
        "bytes_up": result.bytes_up.sum("round"),
        "bytes_down": result.bytes_down.sum("round"),
    }


def _measure_means(result: xr.Dataset) -> dict[str, xr.DataArray]:
    return {
        "mean_age": result.mean_age.mean("round"),
        "jain": _fairness(result.participation),
        "delivered": result.n_delivered.sum("round"),
    }


def _fairness(shares: xr.DataArray) -> xr.DataArray:
    """Return Jain's index over clients, of numbers or of shares."""
    last = shares.transpose(..., "client")
    index = xr.zeros_like(last.isel(client=0, drop=True), dtype=np.float64)
    return index.copy(data=jain_index(last.values))
