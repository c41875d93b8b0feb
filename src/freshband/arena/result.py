"""Results of the arena: labelled arrays, and what they say about the policies."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband import __version__
from freshband._plugins import imports_to_keep
from freshband._sealed import load_sealed, save_sealed, versions_of
from freshband.arena.families import Family
from freshband.arena.pieces import POINTS, Contest, Found, Piece
from freshband.errors import ParameterError, shown
from freshband.simulation.result import _LIBRARIES
from freshband.statistics import margin, mean_and_error, standard_error

__all__ = [
    "behind_best",
    "count_wins",
    "load_arena",
    "rank_policies",
    "read_request",
    "save_arena",
    "summarise_arena",
]

FORMAT: Final = "freshband arena 1"


def collect(
    contest: Contest,
    names: Sequence[str],
    texts: Sequence[str | None],
    found: Mapping[Piece, Found],
) -> xr.Dataset:
    """Combine all pieces; ``texts`` are the oracle's, None, and then those of the policies."""
    plans = [contest.plan(each, []) for each in contest.families]
    shape = (len(plans), len(names))
    runs = max(plan.runs for plan in plans)
    totals = {name: np.full((*shape, runs), np.nan) for name in ("mean_age", "regret")}
    curves = {
        f"{name}{part}": np.full((*shape, POINTS), np.nan)
        for name in ("age_curve", "regret_curve")
        for part in ("", "_se")
    }
    speed, rounds = np.full(shape, np.nan), np.zeros((len(plans), POINTS), np.int64)
    for f, plan in enumerate(plans):
        points = len(plan.checkpoints)
        rounds[f] = np.pad(plan.checkpoints, (0, POINTS - points), mode="edge")
        oracle = found[Piece(f, None)]["age"]
        for p, text in enumerate(texts[1:]):
            one = found[Piece(f, text)]
            age, played = one["age"], len(one["age"])
            if not played:
                speed[f, p] = 1e9 * one["trial"][0]
                continue
            speed[f, p] = 1e9 * one["seconds"].sum() / (played * plan.rounds)
            shares = one["exposure"][:, None] * plan.checkpoints / plan.rounds
            totals["mean_age"][f, p, :played] = age[:, -1] / one["exposure"]
            _enter(curves, "age_curve", (f, p), age / shares)
            if len(oracle):
                totals["regret"][f, p, :played] = age[:, -1] - oracle[:, -1]
                _enter(curves, "regret_curve", (f, p), age - oracle)
    over = ("family", "policy")
    data: dict[str, Any] = {name: ((*over, "run"), array) for name, array in totals.items()}
    data |= {name: ((*over, "point"), array) for name, array in curves.items()}
    data |= {"ns_per_round": (over, speed), "round": (("family", "point"), rounds)}
    return xr.Dataset(
        data,
        coords={"family": [each.name for each in contest.families], "policy": list(names)},
        attrs={
            "format": FORMAT,
            "config": json.dumps(
                {
                    "policies": list(texts[1:]),
                    "families": {each.name: contest.config(each) for each in contest.families},
                    "about": {each.name: each.about for each in contest.families},
                    "seed": contest.seed,
                    "full": contest.full,
                    "limit": contest.limit,
                }
            ),
            "freshband": __version__,
            "versions": versions_of(_LIBRARIES),
            **imports_to_keep(),
        },
    )


def _enter(
    curves: Mapping[str, NDArray[Any]], name: str, place: tuple[int, int], values: NDArray[Any]
) -> None:
    """Enter the mean over runs of a curve, and its standard error."""
    points = values.shape[1]
    curves[name][place][:points] = values.mean(axis=0)
    curves[f"{name}_se"][place][:points] = standard_error(values)


# --------------------------------------------------------------------------------- what they say


def read_config(result: object) -> dict[str, Any]:
    """Return the configuration of a result of the arena, or raise `ParameterError`."""
    if not isinstance(result, xr.Dataset) or result.attrs.get("format") != FORMAT:
        raise ParameterError(f"result must come from compete or load_arena, got {shown(result)}")
    config: dict[str, Any] = json.loads(result.attrs["config"])
    return config


def read_request(result: object) -> dict[str, Any]:
    """Return the arguments of `freshband.arena.compete` that make a result again.

    Examples
    --------
    >>> from freshband.arena import compete
    >>> result = compete("random", "stationary", runs=2, rounds=300, progress=False)
    >>> again = compete(**read_request(result), progress=False)
    >>> bool((again.mean_age == result.mean_age).all())
    True
    """
    config = read_config(result)
    texts = [Piece(0, text) for text in config["policies"]]
    return {
        "policies": [piece.policy for piece in texts if piece.agent is None],
        "agents": [piece.agent for piece in texts if piece.agent is not None],
        "families": [
            Family(
                name,
                config["about"][name],
                saved["channels"],
                saved["channel_options"],
                saved["clients"],
                saved["rounds"],
                runs=saved["runs"],
                full_runs=saved["runs"],
            )
            for name, saved in config["families"].items()
        ],
        **{name: config[name] for name in ("full", "seed", "limit")},
    }


def summarise_arena(result: xr.Dataset) -> dict[str, Any]:
    """Return a summary as plain JSON values.

    Returns
    -------
    dict
        ``families.<name>.policies.<policy>`` holds ``mean_age`` and ``regret``, each ``{"mean": …,
        "se": …}`` or None, and ``ns_per_round``; ``families.<name>.best`` is the policy with the
        lowest mean age; ``ranking`` lists the policies, the best first. A policy that was too slow
        for a family has no ``mean_age`` there.

    Examples
    --------
    >>> from freshband.arena import compete
    >>> result = compete("random,cucb", "stationary", runs=2, rounds=300, progress=False)
    >>> summary = summarise_arena(result)
    >>> summary["ranking"], summary["families"]["stationary"]["best"]
    (['cucb', 'random'], 'cucb')
    """
    read_config(result)
    families = {}
    for name in map(str, result.family.values):
        rows = {
            str(policy): {
                "mean_age": mean_and_error(result.mean_age.sel(family=name, policy=policy)),
                "regret": mean_and_error(result.regret.sel(family=name, policy=policy)),
                "ns_per_round": float(result.ns_per_round.sel(family=name, policy=policy)),
            }
            for policy in result.policy.values
        }
        families[name] = {"policies": rows, "best": best_of(result, name)}
    ranking = list(rank_policies(result))
    return {"schema": 1, "families": families, "ranking": ranking}


def best_of(result: xr.Dataset, family: str) -> str | None:
    """Return the policy with the lowest mean age in a family, or None if none was run."""
    means = result.mean_age.sel(family=family).mean("run")
    return None if bool(means.isnull().all()) else str(means.idxmin("policy").item())


def rank_policies(result: xr.Dataset) -> dict[str, float]:
    """Return the mean rank of every policy over the families, the best first.

    In each family policies are ranked by mean age. Equal ages share their mean rank, and so do the
    last ranks policies that were not run.
    """
    means = result.mean_age.mean("run").values
    ranks = np.array([_ranks(np.where(np.isnan(row), np.inf, row)) for row in means])
    average = dict(zip(map(str, result.policy.values), ranks.mean(axis=0).tolist(), strict=True))
    return dict(sorted(average.items(), key=lambda pair: pair[1]))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1, with the mean rank of equal values for each of them.

    Examples
    --------
    >>> _ranks(np.array([2.0, 1.0, np.inf, np.inf])).tolist()
    [2.0, 1.0, 3.5, 3.5]
    """
    below = (values[:, None] > values).sum(axis=1)
    equal = (values[:, None] == values).sum(axis=1)
    return np.asarray(below + (equal + 1) / 2)


def count_wins(result: xr.Dataset) -> NDArray[np.int64]:
    """Return in how many families one policy beats another, shape (policies, policies).

    A policy wins a family against another if the paired 95 % interval of the difference of their
    mean ages lies below 0.
    """
    n = result.sizes["policy"]
    wins = np.zeros((n, n), np.int64)
    for ages in result.mean_age.values:
        for one in range(n):
            for other in range(n):
                middle, half = _paired(ages[one], ages[other])
                wins[one, other] += one != other and middle + half < 0
    return wins


def _paired(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean difference of two rows, and half of its 95 % interval; NaN without any."""
    difference = (one - other)[~np.isnan(one - other)]
    if len(difference) == 0:
        return np.nan, np.nan
    return float(difference.mean()), float(margin(difference))


def behind_best(result: xr.Dataset, family: str, policy: str) -> tuple[float, float]:
    """Return how far a policy's mean age is above the best one's, and half its 95 % interval."""
    best = best_of(result, family)
    if best is None:
        return np.nan, np.nan
    ages = result.mean_age.sel(family=family)
    return _paired(ages.sel(policy=policy).values, ages.sel(policy=best).values)


def save_arena(result: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write a result as NetCDF, completely or not at all."""
    read_config(result)
    save_sealed(result, path)


def load_arena(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a result that `save_arena` wrote; raises `FileError` if it is damaged or another."""
    return load_sealed(path, FORMAT)
