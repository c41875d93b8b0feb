"""The fused loop against drawing the air (channel environment) alone, by scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import interleave
from freshband._policy import parse_policy
from freshband.channels import build, open_air
from freshband.schedulers.base import registry
from freshband.simulation.monte_carlo import _Plan, _play_run

__all__ = ["draw_air", "single_run", "table"]

N_CHANNELS, CLIENTS, ROUNDS, BREAKPOINTS = 5, 2, 20_000, 5
LARGE = (4_000, 30, 20)  # rounds, channels, clients


def draw_air(rounds: int = ROUNDS, n_channels: int = N_CHANNELS) -> Callable[[int], object]:
    """Return the baseline: one comparison of uniforms with the means, without learning."""
    model = build("piecewise", n_channels=n_channels, n_breakpoints=BREAKPOINTS)
    means = open_air(model, rounds, seed=0).block(rounds).means
    rng = np.random.default_rng(0)

    def draw(turn: int) -> object:
        return rng.random((rounds, n_channels)) < means

    return draw


def single_run(
    policy: str,
    rounds: int = ROUNDS,
    n_channels: int = N_CHANNELS,
    clients: int = CLIENTS,
    breakpoints: int = BREAKPOINTS,
) -> Callable[[int], object]:
    """Return one whole run of one policy on one thread: draw the air, play, measure."""
    plan = _Plan(
        model=build("piecewise", n_channels=n_channels, n_breakpoints=breakpoints),
        policies=[parse_policy(policy)],
        clients=clients,
        rounds=rounds,
        runs=1,
        seed=0,
        points=200,
    )
    return lambda turn: _play_run(plan, turn, yardsticks=False)


def table(repeats: int) -> dict[str, Any]:
    """Time every registered scheduler, and both forms of the paper's."""
    names = [
        "glr-cucb:paper",
        "glr-cucb:paper+aa",
        "m-exp3:paper",
        *registry.names(),
        "glr-cucb+aa",
        "oracle:csi",
    ]
    actions: dict[str, Callable[[int], object]] = {"air": draw_air()}
    actions |= {name: single_run(name) for name in dict.fromkeys(names)}
    seconds = interleave(actions, repeats)
    air = seconds.pop("air")
    rounds, n_channels, clients = LARGE
    large = interleave({"bayes": single_run("bayes", *LARGE)}, repeats)["bayes"]
    return {
        "setting": f"N={N_CHANNELS}, M={CLIENTS}, T={ROUNDS:,}, {BREAKPOINTS} breakpoints, "
        "one thread",
        "air_ns_per_round": air / ROUNDS * 1e9,
        "large": f"N={n_channels}, M={clients}",
        "large_us_per_round": large / rounds * 1e6,
        "rows": {
            name: {"ns_per_round": value / ROUNDS * 1e9, "times_air": value / air}
            for name, value in seconds.items()
        },
    }
