"""Exponential weights of channels: the scheme of `exp3-m` and `exp3-s`."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband._jit import kernel
from freshband.parameters import Parameters
from freshband.ranking import sort_by
from freshband.schedulers._marginals import (
    MarginalsState,
    close,
    credit,
    spread,
    start_marginals,
)
from freshband.schedulers.base import _needed_horizon
from freshband.states import FIXED, ORDER, between, declare, record

_FAINT = -30.0  # smaller weights, in logarithms relative to the largest, count as much
_CERTAIN = 1.0 - 1e-9


class WeightsState(NamedTuple):
    """Logarithms of N weights."""

    log_weight: NDArray[np.float64]  # (N,)
    order: NDArray[np.int64]  # (N,) channels by weight
    rate: NDArray[np.void]  # γ and the share α, at round 1 or fixed; M/N; whether they fall with t


declare(
    WeightsState,
    order=ORDER,
    rate={
        "gamma": between(0),  # it and `part` are those of the fleet at the start
        "share": between(0, 1),
        "part": between(0, 1),
        "gamma_falls": FIXED,
        "share_falls": FIXED,
    },
)


class Weighted(Parameters):
    """Hyper-parameters of both."""

    gamma: Annotated[float, Field(gt=0, le=1)] | Literal["auto", "anytime"] = "anytime"
    share: Annotated[float, Field(ge=0, le=1)] | Literal["auto", "anytime"] = "anytime"
    discount: float | None = Field(default=0.99, gt=0, lt=1)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> MarginalsState:
        """Allocate equal weights."""
        gamma, share = self.gamma, self.share
        hardness = self.hardness(n_clients, n_channels, horizon)
        tuned = math.sqrt(n_channels * hardness / ((math.e - 1.0) * n_clients))
        if "auto" in (gamma, share):
            rounds = _needed_horizon(horizon, "gamma='auto' or share='auto'")
            gamma = min(1.0, tuned / math.sqrt(rounds)) if gamma == "auto" else gamma
            share = 1.0 / rounds if share == "auto" else share
        scheme = WeightsState(
            log_weight=np.zeros(n_channels),
            order=np.arange(n_channels),
            rate=record(
                gamma=float(tuned if gamma == "anytime" else gamma),
                share=float(1.0 if share == "anytime" else share),
                part=n_clients / n_channels,
                gamma_falls=gamma == "anytime",
                share_falls=share == "anytime",
            ),
        )
        return start_marginals(scheme, n_clients, n_channels, self.discount)

    def hardness(self, n_clients: int, n_channels: int, horizon: int | None) -> float:
        """Return h of the tuned `γ = min(1, sqrt(N h / ((e-1) M T)))`."""
        return max(math.log(n_channels / n_clients), 1e-3)


@kernel
def _gamma(scheme: Any, t: int) -> float:
    gamma: float = scheme.rate[0]["gamma"]
    return min(1.0, gamma / math.sqrt(t)) if scheme.rate[0]["gamma_falls"] == 1 else gamma


@spread.register(WeightsState)
def _spread(scheme: WeightsState, t: int, offered: Any, size: int, marginals: Any) -> None:
    gamma = _gamma(scheme, t)
    order, log_weight = scheme.order, scheme.log_weight
    sort_by(log_weight, t, order)
    free, rest, top = 0, 0.0, -math.inf
    for channel in order:
        if offered[channel] == 1:
            free += 1
            top = max(top, log_weight[channel])
    for k in range(len(order) - 1, -1, -1):
        channel = order[k]
        if offered[channel] == 1:
            rest += math.exp(max(log_weight[channel] - top, _FAINT))
            marginals[channel] = rest  # the sum of its weight and of all smaller ones
    # The share of all weights with which a marginal is 1; larger weights are cut to it.
    most = (1.0 / size - gamma / free) / (1.0 - gamma) if gamma < 1.0 else 1.0
    cut = 0
    cap = math.inf
    for channel in order:
        if offered[channel] == 1:
            rest = marginals[channel]
            cap = most * rest / (1.0 - cut * most)
            if math.exp(log_weight[channel] - top) < cap:
                break
            cut += 1
    for channel in order:
        if offered[channel] == 1:
            weight = min(math.exp(max(log_weight[channel] - top, _FAINT)), cap)
            part = (1.0 - gamma) * weight / (rest + cut * cap) + gamma / free
            marginals[channel] = min(1.0, size * part)


@credit.register(WeightsState)
def _credit(scheme: WeightsState, t: int, channel: int, outcome: int, chance: float) -> None:
    if chance < _CERTAIN:  # a weight that was cut does not grow
        step = _gamma(scheme, t) * scheme.rate[0]["part"]
        scheme.log_weight[channel] += step * outcome / chance


@close.register(WeightsState)
def _close(scheme: WeightsState, t: int) -> None:
    rate = scheme.rate[0]
    share = rate["share"] / t if rate["share_falls"] == 1 else rate["share"]
    if share > 0.0:
        log_weight = scheme.log_weight
        top = -math.inf
        for channel in range(len(log_weight)):
            top = max(top, log_weight[channel])
        total = 0.0
        for channel in range(len(log_weight)):
            total += math.exp(log_weight[channel] - top)
        gift = math.e * share / len(log_weight) * total
        for channel in range(len(log_weight)):
            log_weight[channel] = math.log(math.exp(log_weight[channel] - top) + gift)
