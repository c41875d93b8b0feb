"""Reports: what `bayes` believed, played again from the file."""

from __future__ import annotations

import numpy as np
import pytest

from freshband import Coordinator, simulate
from freshband._policy import parse_policy
from freshband.channels import build, open_air
from freshband.fleet.conditions import SimulatedFleet
from freshband.reporting._air import cut_rounds, read_air
from freshband.reporting._page.beliefs import beliefs_charts
from freshband.simulation._players import Game
from freshband.simulation.replaying import replay_beliefs
from freshband.simulation.result import _read_config

ROUNDS, SEED, RUN = 300, 4, 1
MODEL = build("piecewise", {"n_channels": 4, "n_breakpoints": 2})


def test_beliefs_are_those_of_the_coordinator_on_the_same_air() -> None:
    game = Game(MODEL, SimulatedFleet(), 2, ROUNDS, SEED, RUN, np.array([ROUNDS]))
    cuts = np.array([0, 100, 250, ROUNDS])
    found = replay_beliefs(parse_policy("bayes"), game, cuts)
    states = open_air(MODEL, ROUNDS, SEED, RUN).block(ROUNDS).states
    server = Coordinator("bayes", 2, 4, SEED, run=RUN)
    for t in range(ROUNDS):
        server.observe(states[t, server.plan()].astype(bool))
        if t + 1 in cuts:
            place = cuts.tolist().index(t + 1) - 1
            told = server.beliefs
            assert told is not None
            np.testing.assert_allclose(found[place].rate, told.rate, rtol=1e-9)
            np.testing.assert_allclose(found[place].changed, told.changed, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("policies", "pictures"), [("random,bayes", 2), ("random,cucb", 0)])
def test_the_first_policy_that_explains_itself_is_shown(policies: str, pictures: int) -> None:
    result = simulate(MODEL, policies, rounds=ROUNDS, runs=1, seed=SEED, progress=False)
    air = read_air(MODEL, ROUNDS, SEED, 0, cut_rounds(ROUNDS))
    charts = beliefs_charts(result, _read_config(result), MODEL, air, 0)
    assert len(charts) == pictures
    if pictures:
        beliefs, models = charts
        assert len(beliefs.table.rows) == 4
        assert [row[-1] for row in beliefs.table.rows] == ["none"] * 4  # nothing repeats
        assert "What bayes knew in run 0" in beliefs.says
        lines = [trace.y for trace in models.traces]
        np.testing.assert_allclose(np.sum(lines, axis=0), 1.0, atol=1e-4)
