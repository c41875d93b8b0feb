"""GLR-CUCB round for round against Algorithm 2 with lists."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband.ranking import CLIENTS
from tests.reference.glr_cucb import SlowGlrCucb
from tests.reference.matching import age, rotate
from tests.schedulers.stepping import Game


def moving_air(seed: int, rounds: int, n_channels: int, segments: int = 4) -> NDArray[np.int8]:
    """Rates far apart that change all at once, so that there are alarms to get right."""
    rng = np.random.default_rng(seed)
    rates = np.repeat(
        [rng.permutation(np.linspace(0.05, 0.95, n_channels)) for _ in range(segments)],
        rounds // segments,
        axis=0,
    )
    return (rng.random(rates.shape) < rates).astype(np.int8)


def paper_rate(horizon: int) -> Any:
    return lambda elapsed, episode: 0.05 * math.sqrt(math.log(horizon) / horizon)


def anytime_rate(elapsed: int, episode: int) -> float:
    return 0.05 * math.sqrt(math.log(elapsed + 1) / (elapsed + 1))


def constant(alpha: float) -> Any:
    return lambda elapsed, episode: alpha


def growing(alpha: float) -> Any:
    return lambda elapsed, episode: alpha * math.sqrt(episode)


CASES = [
    ("glr-cucb:paper", {}, paper_rate(1200), "random", "global"),
    ("glr-cucb:paper", {"alpha": 0.3}, constant(0.3), "random", "global"),
    ("glr-cucb:paper", {"alpha": 1.0}, constant(1.0), "random", "global"),
    ("glr-cucb:paper", {"threshold": "lai"}, paper_rate(1200), "random", "global"),
    ("glr-cucb", {}, anytime_rate, "index", "global"),
    ("glr-cucb", {"restart": "localised"}, anytime_rate, "index", "localised"),
    ("glr-cucb", {"restart": "local", "alpha": 0.1}, constant(0.1), "index", "local"),
    ("glr-cucb", {"alpha": 0.0}, constant(0.0), "index", "global"),
    ("glr-cucb", {"alpha": 0.9, "index_c": 0.5}, constant(0.9), "index", "global"),
    ("glr-cucb", {"alpha": 0.1, "alpha_schedule": "sqrt_episode"}, growing(0.1), "index", "global"),
    ("glr-cucb", {"explore_fill": "random", "alpha": 0.2}, constant(0.2), "random", "global"),
    (
        "glr-cucb",
        {"restart": "localised", "explore_fill": "random", "threshold": "besson"},
        anytime_rate,
        "random",
        "localised",
    ),
]


@pytest.mark.parametrize(("name", "options", "rate", "fill", "restart"), CASES)
@pytest.mark.parametrize(("n_clients", "n_channels"), [(2, 5), (1, 3), (3, 3)])
def test_round_for_round_the_algorithm_with_lists(
    name: str,
    options: dict[str, Any],
    rate: Any,
    fill: str,
    restart: str,
    n_clients: int,
    n_channels: int,
) -> None:
    rounds = 400
    air = moving_air(n_channels, rounds, n_channels)
    unknown = np.random.default_rng(1).random((rounds, n_clients)) < 0.05
    game = Game(name, n_clients, n_channels, horizon=1200, seed=3, **{"delta": 0.05, **options})
    slow = SlowGlrCucb(
        n_clients,
        n_channels,
        rate,
        fill,
        restart,
        0.05,
        threshold=options.get("threshold", "paper"),
        index_c=options.get("index_c", 1.5),
    )
    rng = np.random.default_rng(3)
    lot = int(rng.random() * CLIENTS)  # the matching's, drawn first
    ages = [1] * n_clients
    alarms = 0
    for t in range(1, rounds + 1):
        chosen, indices = slow.select(t, rng)
        if name == "glr-cucb:paper":
            expected = rotate(t, chosen, indices)
        else:
            means = [slow.mean(channel) for channel in range(n_channels)]
            expected = age(t, chosen, means, ages, lot)
        assert game.plan() == expected, t
        outcome = np.where(unknown[t - 1], -1, air[t - 1, expected])
        alarm = slow.observe(t, expected, outcome)
        assert game.observe(outcome) == alarm, t
        alarms += alarm >= 0
        ages = [1 if x == 1 else a + 1 for a, x in zip(ages, outcome, strict=True)]
        counts = game.scheduler.index.counts
        assert counts.pulls.tolist() == [len(heard) for heard in slow.heard], t
        assert counts.wins.tolist() == [sum(heard) for heard in slow.heard], t
        watched = game.scheduler.detector.book["count"].tolist()
        assert watched == [len(w) for w in slow.watched], t
    assert game.desk.ages.tolist() == ages
    assert alarms >= 1
    assert game.scheduler.clock[0]["tau"] == slow.tau
