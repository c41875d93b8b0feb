"""States of `bayes` saved by earlier versions: what they know is used, the rest begins anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband.schedulers._bayes_links import BayesLinksState
from freshband.schedulers._bayes_state import REPEATED, SHARED_CONTEXT, BayesState
from freshband.schedulers._segments import HAZARDS, Segments
from freshband.states import _arrays, upgrade

_THEIRS = (1e-4, 1e-3, 1e-2, 0.05, 0.2)  # the hazards of those versions
# For each hazard of now the nearest one of then.
_NEAREST = np.abs(np.log(HAZARDS)[:, None] - np.log(_THEIRS)).argmin(axis=1)

_Arrays = Mapping[str, NDArray[Any]]


def _beginnings(
    segments: Segments, prior: NDArray[Any], trust: NDArray[Any], saved: _Arrays, prefix: str
) -> dict[str, NDArray[Any]]:
    """Return the fields of segments that a saved state knows, or can do without."""
    wins, tries = saved[f"{prefix}wins"], saved[f"{prefix}tries"]
    weight = np.ascontiguousarray(saved[f"{prefix}weight"][:, _NEAREST])
    rate = (prior[0] + wins) / (prior[1] + tries)
    known = {
        "wins": wins,
        "tries": tries,
        "rate": rate,
        "square": rate * (prior[0] + wins + 1.0) / (prior[1] + tries + 1.0),
        "weight": weight,
        "pooled": np.einsum("h,ghk->gk", trust, weight),
        "fresh": saved[f"{prefix}fresh"],
        "since": saved.get(f"{prefix}since", np.zeros_like(segments.since)),
    }
    return {f"{prefix}{name}": array for name, array in known.items()}


def _more_priors(fresh: BayesState, saved: _Arrays, prefix: str) -> _Arrays:
    """Let a state that knew fewer priors believe in the others as at first."""
    betas, belief = saved.get(f"{prefix}priors.betas"), saved.get(f"{prefix}priors.belief")
    ours = fresh.priors
    if betas is None or belief is None or belief.shape != (len(betas),) or len(betas) == 0:
        return saved
    if len(betas) >= len(ours.betas) or not np.array_equal(betas, ours.betas[: len(betas)]):
        return saved
    more = ours.belief.copy()
    more[: len(belief)] = belief * more[: len(belief)].sum()
    return {**saved, f"{prefix}priors.betas": ours.betas, f"{prefix}priors.belief": more}


def _long_gaps(fresh: BayesState, saved: _Arrays, prefix: str) -> _Arrays:
    """Let a state that took all long gaps for one begin to tell them apart."""
    ours, theirs = fresh.contexts, saved.get(f"{prefix}contexts.shared")
    if theirs is None or theirs.shape != (ours.own.shape[1], 2) or theirs.dtype != np.float64:
        return saved
    shared = ours.shared.copy()
    shared[: len(theirs)] = theirs
    return {**saved, f"{prefix}contexts.shared": shared}


def _periods(fresh: BayesState, saved: _Arrays, prefix: str) -> _Arrays:
    """Let a state that knew no periods trust them as at first."""
    trust = saved.get(f"{prefix}trust.now")
    if trust is None or trust.shape != (REPEATED,) or trust.dtype != np.float64:
        return saved
    ours = fresh.trust.first
    now = np.append(trust * (1.0 - ours[REPEATED]), ours[REPEATED])
    return {**saved, f"{prefix}trust.now": now, f"{prefix}trust.first": ours}


@upgrade(BayesState)
def _from_before(fresh: BayesState, saved: _Arrays, prefix: str) -> _Arrays:
    if f"{prefix}evidence" not in saved:
        for missing in (_more_priors, _long_gaps, _periods):
            saved = missing(fresh, saved, prefix)
        return saved
    try:
        share = saved[f"{prefix}trust"][:, _NEAREST]
        trust = fresh.trust.now.copy()
        filters = SHARED_CONTEXT
        trust[:filters] = share.ravel() / share.sum() * trust[:filters].sum()
        ours = {f"{prefix}{name}": array for name, array in _arrays(fresh)}
        ours[f"{prefix}trust.now"] = trust
        ours[f"{prefix}stale"] = np.ones(1, np.int8)
        half = filters // 2
        for name, part in (("alone", trust[:half]), ("together", trust[half:filters])):
            segments, prior = getattr(fresh, name), fresh.priors.pooled
            ours |= _beginnings(segments, prior, part, saved, f"{prefix}{name}.")
    except (KeyError, IndexError, ValueError):  # a damaged file is refused field by field
        return saved
    return {**saved, **ours}


@upgrade(BayesLinksState)
def _without_alarm(fresh: BayesLinksState, saved: _Arrays, prefix: str) -> _Arrays:
    """Let a state that reported no changes count all that it knows as known."""
    since = saved.get(f"{prefix}since")
    if f"{prefix}anchor" in saved or since is None or since.dtype != np.int64 or not since.size:
        return saved
    known = {"anchor": np.array([since.max()]), "alarm": fresh.alarm}
    return {**saved, **{f"{prefix}{name}": array for name, array in known.items()}}
