"""The Gymnasium environment: its own checker, the same air as a simulation, agents in the arena."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from freshband import gym
from freshband.arena import compete
from freshband.channels import build, open_air
from freshband.errors import ParameterError, SequenceError, UnknownNameError
from freshband.gym import SchedulingEnv, play_agent

EXAMPLE = Path(__file__).parent.parent / "examples" / "gym_agent.py"


class Stubborn:
    """Always the same scores."""

    def __init__(self, *scores: float) -> None:
        self.scores = np.array(scores, np.float32)

    def reset(self, n_clients: int, n_channels: int, history: int) -> None:
        pass

    def act(self, observation: Any) -> Any:
        return self.scores


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example, whose agent is forgotten afterwards."""
    monkeypatch.setattr(gym, "_agents", {})
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.delitem(sys.modules, "gym_agent", raising=False)
    return importlib.import_module("gym_agent")


@pytest.mark.parametrize("channels", ["piecewise", "reactive"])
def test_gymnasium_finds_nothing_wrong(channels: str) -> None:
    check_env(SchedulingEnv(channels, n_clients=3, rounds=30), skip_render_check=True)


def test_an_episode_is_a_run_of_the_same_air() -> None:
    environment = SchedulingEnv("stationary", n_clients=2, rounds=1100)
    sums = play_agent(Stubborn(0.1, 0.9, 0.2, 0.8, 0.3), environment, seed=4, run=2)
    states = open_air(build("stationary"), 1100, seed=4, run=2).block(1100).states
    ages, expected = [1, 1], []
    for row in states:  # channel 1 for the older client; ties do not change the sum of means
        used = [row[1], row[3]] if ages[0] >= ages[1] else [row[3], row[1]]
        ages = [1 if good else age + 1 for good, age in zip(used, ages, strict=True)]
        expected.append(sum(ages))
    assert sums.mean() == pytest.approx(np.mean(expected), rel=0.02)
    assert set(np.unique(states)) == {0, 1}


def test_what_is_observed() -> None:
    environment = SchedulingEnv("stationary", n_clients=1, rounds=2, history=2, means=[1, 0])
    observation, _ = environment.reset(seed=1)
    assert observation.tolist() == [0, 0, 0, 0, 0]
    observation, reward, terminated, truncated, facts = environment.step(
        np.array([0, 1], np.float32)
    )
    assert (observation.tolist(), reward) == ([0.5, 0, -1, 0, 0], -2.0)
    assert not terminated
    assert not truncated
    assert (facts["assignment"].tolist(), facts["ages"].tolist()) == ([1], [2])
    observation, reward, _, truncated, _ = environment.step(np.array([1, 0], np.float32))
    assert (observation.tolist(), reward, truncated) == ([0, 1, 0, 0, -1], -1.0, True)
    with pytest.raises(SequenceError, match="call reset"):
        environment.step(np.array([1, 0], np.float32))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ParameterError, match="n_clients must be at most 5, got 6"):
        SchedulingEnv(n_clients=6)
    with pytest.raises(ParameterError, match="links that differ"):
        SchedulingEnv("stationary", per_client=True)
    environment = SchedulingEnv(rounds=10)
    with pytest.raises(ParameterError, match="options must be seed and run, got"):
        environment.reset(options={"rum": 1})
    environment.reset()
    with pytest.raises(ParameterError, match="action must be 5 finite scores"):
        environment.step(np.full(5, np.nan, np.float32))


@pytest.mark.usefixtures("example")
def test_agents_take_part_in_the_arena(tmp_path: Path) -> None:
    few: dict[str, Any] = {"runs": 6, "rounds": 250, "progress": False, "keep": tmp_path}
    result = compete("random", ["hazard-middle"], agents=["learnt"], **few)
    learnt, chance = (result.mean_age.sel(policy=name).mean() for name in ("learnt", "random"))
    assert float(learnt) < float(chance)
    again = compete("random", ["hazard-middle"], agents=["learnt"], **few)
    assert again.ns_per_round.equals(result.ns_per_round)  # kept
    with pytest.raises(UnknownNameError, match="unknown agent 'lernt'; did you mean 'learnt'"):
        compete("random", ["short"], agents=["lernt"])
    with pytest.raises(ParameterError, match="policies and agents must differ"):
        compete("random", ["short"], agents=["learnt", "learnt"])


def test_the_example_learns(example: Any, capsys: Any) -> None:
    weights = example.train(rounds=1, candidates=4, best=1)
    assert weights.shape == (9,)
    assert capsys.readouterr().out.startswith("step 1: mean age ")
