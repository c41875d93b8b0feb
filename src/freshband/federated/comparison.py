"""Comparisons: several policies train on the same air, data, initial weights and batches."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Unpack

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband import __version__
from freshband._backends import Backend, open_backend
from freshband._plugins import imports_to_keep
from freshband._policy import read_options, spelled
from freshband._sealed import complete, load_sealed, save_sealed, versions_of
from freshband.channels.base import ChannelModel, _same_air
from freshband.errors import FreshbandError, ParameterError, shown
from freshband.federated._kept import KeptRecords, Records
from freshband.federated._own_things import (
    OwnThings,
    check_own_things,
    check_settings,
    given_things,
)
from freshband.federated._rules import settings_of, unused_by_all
from freshband.federated.algorithms import Rule
from freshband.federated.clients import name_device, pick_device
from freshband.federated.data import load_dataset
from freshband.federated.engine import Federation
from freshband.federated.records import RoundRecord
from freshband.federated.result import (
    _LIBRARIES,
    _facts_of,
    _spelt_today,
    collect_records,
    counted_ages,
    measure_training,
)
from freshband.federated.settings import Training
from freshband.federated.together import train_together
from freshband.parameters import whole_number
from freshband.simulation.monte_carlo import _name_policies, _Plan, _play_run, _progress_bar
from freshband.simulation.result import _mask_detections
from freshband.statistics import mean_and_error

__all__ = [
    "compare",
    "load_comparison",
    "measure_comparison",
    "save_comparison",
    "settings_of",
    "summarise_comparison",
]

_Asked: TypeAlias = Mapping[str, Sequence[Training]]  # of each policy, the settings of every run
_Own: TypeAlias = Mapping[str, Rule | None]  # the user's own rule, of each policy that has it
_Things: TypeAlias = Mapping[str, Any]  # further objects of the user's own, by what they replace

_FORMAT: Final = "freshband comparison 1"
_IN_STEP: Final = 256  # clients that train in one batch on a GPU, at most
_DATA_BY_RUN: Final = frozenset({"synthetic"})  # data sets that every run draws anew


def compare(
    settings: Training,
    policies: Sequence[str] | str,
    *,
    runs: int = 1,
    policy_options: Mapping[str, Mapping[str, Any]] | None = None,
    backend: Literal["threads", "ray"] = "threads",
    address: str | None = None,
    gpus: float = 0.0,
    progress: bool = True,
    keep: str | os.PathLike[str] | None = None,
    **own: Unpack[OwnThings],
) -> xr.Dataset:
    """Train with several policies under the same conditions, several times.

    In each run all policies meet the same channel environment ("air"), clients hold the same
    samples, models begin with the same weights, and a client that trains in a round draws the same
    batches, so differences between policies are paired.

    Parameters
    ----------
    settings : Training
        What all have in common; policy, matching, their options and the run are replaced.
    policies : sequence of str
        ``scheduler[:preset][+token...][@algorithm]``, such as ``"glr-cucb+priority"`` or
        ``"random@fixed+average"``. A rule behind ``@`` replaces that of the settings, a wrapper is
        added to it. ``@paper`` is the paper's mean with the weights (43), so that
        ``"glr-cucb:paper+priority:paper@paper"`` is everything as printed. A string is split at
        commas. The others are compared with the first.
    runs : int >= 1, default 1
        Independent repetitions, from ``settings.run`` on: other air, split, weights and batches.
    policy_options : mapping of str to mapping, optional
        Hyper-parameters by policy, as written in ``policies``.
    backend : {"threads", "ray"}, default "threads"
        Where runs are computed: one after another in this process, each with all its cores, or at
        the same time as Ray tasks. Results are the same.
    address : str, optional
        The address of a Ray cluster; by default one is started on this machine.
    gpus : float >= 0, default 0
        The share of a GPU that a run takes on Ray, such as 0.25.
    progress : bool, default True
        Show a progress bar on stderr if it is a terminal.
    keep : path, optional
        Keep every finished run in the folder ``KEEP.runs``, and compute only those missing there.
    **own
        Objects of your own in place of names, as for `Federation`: ``dataset``, ``model``,
        ``channels``, ``partition``, ``loss``, ``optimiser``, ``metric``, and ``algorithm`` for the
        policies that name none behind ``@``. A module begins with the same weights in every run.

    Returns
    -------
    xarray.Dataset
        What `freshband.federated.result.collect_records` returns of one run, over (policy, run);
        besides ``regret`` over (policy, run, round), the cumulative age beyond that of the
        mean+age oracle on the same air, and ``regret_fixed``, that beyond the best fixed set's
        where channels have no means; each NaN where the other applies. Ages are weighted by the
        fleet's weights, and oracles know who is there and all outcomes. ``seconds`` of a round are
        those of all policies that were played in step.

    Examples
    --------
    >>> settings = Training(model="mlp", clients=3, rounds=4)
    >>> result = compare(settings, ["random", "glr-cucb+age"], runs=2, progress=False)
    >>> result.regret.dims, result.ages.dims
    (('policy', 'run', 'round'), ('policy', 'run', 'round', 'client'))
    """
    options = read_options("policy_options", policy_options)
    named = _name_policies(policies, options, "compared")
    things = given_things(**own)
    check_own_things(**{name: value for name, value in things.items() if name != "model"})
    algorithm, channels = things.pop("algorithm", None), things.get("channels")
    several = whole_number("runs", runs, at_least=1)
    first = check_settings(settings).run
    for why in unused_by_all(settings, named, options).values():
        raise ParameterError(why)
    asked = {
        name: [
            settings_of(settings, text, options.get(name), first + run) for run in range(several)
        ]
        for name, text in named.items()
    }
    rules = {name: None if "@" in spelled(text) else algorithm for name, text in named.items()}
    began = time.perf_counter()
    where = open_backend(backend, address=address, gpus=gpus)  # says what does not fit
    kept = KeptRecords(keep, settings, asked, algorithm, things)
    if backend == "threads":
        records = _train_all(asked, rules, things, progress, kept)
    else:
        records = _train_on(where, asked, rules, things, progress, kept)
    results = [
        xr.concat(
            [collect_records(records[name, run], each) for run, each in enumerate(row)],
            dim="run",
            combine_attrs="drop",
        )
        for name, row in asked.items()
    ]
    result = xr.concat(results, dim="policy", combine_attrs="drop").assign_coords(
        policy=list(asked), run=first + np.arange(several)
    )
    result = result.assign(_regrets(result, next(iter(asked.values())), channels))
    config = {
        "settings": settings.model_dump(mode="json"),
        "policies": [spelled(text) for text in named.values()],
        "policy_options": {name: dict(values) for name, values in options.items()},
        "runs": several,
    }
    air, met = channels or settings.build_channels(), range(first, first + several)
    same = _same_air(air, settings.rounds, settings.seed, met, settings.clients)
    return result.assign_attrs(
        format=_FORMAT,
        config=json.dumps(config),
        freshband=__version__,
        versions=versions_of(_LIBRARIES),
        device=name_device(pick_device(settings.device)),
        seconds=time.perf_counter() - began,
        **imports_to_keep(),
        **({} if algorithm is None else {"own_algorithm": repr(algorithm)}),
        **({"own": " ".join(things)} if things else {}),
        **({"same_air": 1} if same else {}),
    )


def _train_all(
    asked: _Asked, own: _Own, things: _Things, progress: bool, kept: KeptRecords
) -> Records:
    some = next(iter(asked.values()))
    records = kept.load(range(len(some)))
    done = {run for _, run in records}
    with _progress_bar(progress) as bar:
        rounds = some[0].rounds
        task = bar.add_task("loading", total=rounds * len(some), completed=rounds * len(done))
        for group in _groups(asked, [run for run in range(len(some)) if run not in done]):
            told = f"run {group[0] + 1}" + (f" to {group[-1] + 1}" if len(group) > 1 else "")
            bar.update(task, description=f"training, {told} of {len(some)}")
            keys = [(name, run) for run in group for name in asked]
            rules = [own[name] for name, _ in keys]
            for played in _in_step([asked[name][run] for name, run in keys], rules, things):
                for key, record in zip(keys, played, strict=True):
                    records.setdefault(key, []).append(record)
                bar.advance(task, len(group))
            for run in group:
                kept.save(run, records)
    return records


def _train_on(
    backend: Backend,
    asked: _Asked,
    own: _Own,
    things: _Things,
    progress: bool,
    kept: KeptRecords,
) -> Records:
    """Train with every run a call of its own."""
    runs = range(len(next(iter(asked.values()))))
    records = kept.load(runs)
    missing = [run for run in runs if (next(iter(asked)), run) not in records]
    with _progress_bar(progress) as bar:
        task = bar.add_task("training", total=len(runs), completed=len(runs) - len(missing))
        play = partial(_play_one, dict(asked), own, things)
        for place, found in backend.compute(play, missing) if missing else ():
            records |= found
            kept.save(missing[place], records)
            bar.advance(task)
    return records


def _play_one(asked: _Asked, own: _Own, things: _Things, run: int) -> Records:
    """Play all policies of one run in step, with one worker unless the settings say otherwise."""
    settings = [
        row[run] if row[run].workers else row[run].model_copy(update={"workers": 1})
        for row in asked.values()
    ]
    played = zip(*_in_step(settings, list(own.values()), things), strict=True)
    return {(name, run): list(records) for name, records in zip(asked, played, strict=True)}


def _groups(asked: _Asked, runs: Sequence[int]) -> list[list[int]]:
    """Return the runs that are played in step: on a GPU many small ones at a time."""
    some = next(iter(asked.values()))
    settings, at_a_time = some[0], 1
    if settings.dataset not in _DATA_BY_RUN and pick_device(settings.device).type != "cpu":
        at_a_time = max(1, _IN_STEP // (settings.clients * len(asked)))
    return [list(runs[first : first + at_a_time]) for first in range(0, len(runs), at_a_time)]


def _in_step(
    settings: Sequence[Training], rules: Sequence[Rule | None], things: _Things
) -> Iterator[tuple[RoundRecord, ...]]:
    """Play several federations of the same data set and model in step."""
    first = settings[0]
    given: Any = dict(things)
    if "dataset" not in given:
        given["dataset"] = load_dataset(
            first.dataset, seed=first.seed, run=first.run, **first.dataset_options
        )
    with Federation(first, algorithm=rules[0], **given) as leader:
        others = [
            Federation(one, clients=leader.clients, algorithm=rule, **given)
            for one, rule in zip(settings[1:], rules[1:], strict=True)
        ]
        yield from train_together([leader, *others])


def _regrets(
    result: xr.Dataset, settings: Sequence[Training], channels: ChannelModel | None
) -> dict[str, Any]:
    """Return the cumulative age beyond an oracle's on the same air, weighted by client."""
    weights = settings[0].build_fleet().weights or [1] * settings[0].clients
    age = counted_ages(result) * xr.DataArray(list(weights), dims="client")
    age = age.sum("client").cumsum("round").transpose("policy", "run", "round")
    regrets = {name: np.full(age.shape, np.nan) for name in ("regret", "regret_fixed")}
    curves = [_oracle_ages(one, channels) for one in settings]
    for name in regrets.keys() & curves[0].keys():
        regrets[name] = (age.values - [each[name] for each in curves]).astype(np.float64)
    return {name: (age.dims, values) for name, values in regrets.items()}


def _oracle_ages(settings: Training, channels: ChannelModel | None) -> dict[str, NDArray[Any]]:
    """Return the sum of ages so far, round by round, as oracles would have it, by measure."""
    plan = _Plan(
        model=channels or settings.build_channels(),
        policies=[],
        clients=settings.clients,
        rounds=settings.rounds,
        runs=1,
        seed=settings.seed,
        points=settings.rounds,
        fleet=settings.build_fleet(),
    )
    return _play_run(plan, settings.run).yardsticks


# ------------------------------------------------------------------------------------------ files


def save_comparison(result: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write a comparison as NetCDF, completely or not at all."""
    _read_comparison(result)
    save_sealed(result, path)


def load_comparison(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a comparison written by `save_comparison`; `FileError` says if that cannot be done."""
    result = load_sealed(path, _FORMAT)
    with complete(path):
        return _spelt_today(result, "settings")


def _read_comparison(
    result: object, folder: Path | None = None, notes: list[str] | None = None
) -> dict[str, Any]:
    """Return what a comparison was made with: `compare` with it gives the same again.

    Recordings that are gone are looked for in ``folder``. Settings that no policy used, which
    earlier versions let through, are left out. ``notes`` gets a sentence for each.

    Examples
    --------
    >>> mine = compare(Training(model="mlp", clients=2, rounds=3), "random", progress=False)
    >>> compare(**_read_comparison(mine), progress=False).accuracy.equals(mine.accuracy)
    True
    """
    if not isinstance(result, xr.Dataset) or result.attrs.get("format") != _FORMAT:
        raise ParameterError(
            f"result must come from compare or load_comparison, got {shown(result)}"
        )
    config: dict[str, Any] = json.loads(result.attrs["config"])
    settings = Training.as_stored(config["settings"], folder, notes)
    named, idle = _name_policies(config["policies"], {}), {}
    with suppress(FreshbandError):  # a policy of somebody's own may be unknown here
        idle = unused_by_all(settings, named, config["policy_options"])
    if notes is not None:
        notes += [f"left out: {why}" for why in idle.values()]
    kept = Training.as_stored(settings.without(idle))
    return {**config, "settings": kept}


# ---------------------------------------------------------------------------------------- summary


def measure_comparison(result: xr.Dataset) -> xr.Dataset:
    """Return the measures of every policy and run, over (policy, run), with the last regrets.

    ``alarms`` is NaN where a policy looks for no changes.
    """
    regrets = [name for name in ("regret", "regret_fixed") if name in result]
    measures = measure_training(result).assign(result[regrets].isel(round=-1, drop=True))
    return _mask_detections(measures, json.loads(result.attrs["config"]))


def summarise_comparison(result: xr.Dataset) -> dict[str, Any]:
    """Return mean and standard error over runs of every measure, as plain JSON values.

    ``policies.<name>.<measure>`` is ``{"mean": …, "se": …}``, or None where the measure does not
    apply; a standard error of a single run is None. ``policies.<name>.versus_first`` holds the same
    of the differences to the first policy, run by run. Where ``same_air`` is true all runs met the
    same states of the channels: standard errors then say nothing of the channel environment.
    """
    config = _read_comparison(result)
    measures = measure_comparison(result)
    names = [str(name) for name in result.policy.values]
    policies: dict[str, Any] = {}
    for name in names:
        row, base = measures.sel(policy=name), measures.sel(policy=names[0])
        policies[name] = {str(measure): mean_and_error(row[measure].values) for measure in measures}
        policies[name]["participation"] = (
            result.participation.sel(policy=name).mean("run").values.tolist()
        )
        policies[name]["versus_first"] = {
            str(measure): mean_and_error(row[measure].values - base[measure].values)
            for measure in measures
            if name != names[0]
        }
    settings: Training = config.pop("settings")
    return {
        **_facts_of(result, settings),
        "runs": config["runs"],
        "policies": policies,
        "policy_options": config["policy_options"],
        "config": settings.model_dump(mode="json"),
        "same_air": bool(result.attrs.get("same_air", 0)),
        "seconds": result.attrs["seconds"],
    }
