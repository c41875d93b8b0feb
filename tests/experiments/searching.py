"""Searches for settings whose accuracies are given instead of trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from freshband.experiments._choice import Search, Setting, _next

Score = Callable[[Setting, int], float]  # of a setting in a run


def recorded(accuracies: Mapping[Setting, Sequence[float]]) -> Score:
    """Return a score that reads accuracies by setting and run."""
    return lambda setting, run: accuracies[setting][run]


def walk(search: Search, score: Score) -> tuple[dict[Setting, list[float]], list[Setting]]:
    """Play a search; return the accuracies by setting, and the settings in the order of trials."""
    known: dict[Setting, list[float]] = {}
    order = []
    while job := _next(known, search):
        setting, runs = job
        known[setting] = known.get(setting, []) + [score(setting, run) for run in runs]
        order.append(setting)
    return known, order


def as_trials(place: tuple[str, str], known: dict[Setting, list[float]]) -> list[dict[str, Any]]:
    """Return what the file of a search would hold."""
    head = {"dataset": place[0], "air": place[1]}
    return [{**head, **each._asdict(), "accuracies": runs} for each, runs in known.items()]
