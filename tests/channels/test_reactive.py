from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband._jit import entry_point
from freshband.channels import Reactive, Stationary, build, registry
from freshband.channels.adversary import Still, react, start_reacting
from freshband.channels.reactive import ReactiveState
from freshband.errors import ParameterError
from freshband.ranking import sort_by
from tests.channels.margins import draw


@entry_point
def play(air: Any, assignments: Any, states: Any, means: Any) -> int:
    """Let the air react to given assignments, shape (rounds, M), as a simulation's loop does."""
    for i in range(len(states)):
        react(air, i + 1, assignments[i - 1], states[i], means[i])
    return len(states)


def random_assignments(rounds: int, clients: int, channels: int, seed: int) -> Any:
    """Draw distinct channels for each client and round; some clients are idle."""
    rng = np.random.default_rng(seed)
    order = rng.permuted(np.tile(np.arange(channels), (rounds, 1)), axis=1)[:, :clients]
    return np.where(rng.random(order.shape) < 0.3, -1, order)


def played(model: Reactive, assignments: Any) -> Any:
    """Return the states of a run without free losses, which are then the jammer's alone."""
    states, means = draw(model, len(assignments))
    play(start_reacting(model), assignments, states, means)
    np.testing.assert_array_equal(means == 0, states == 0)
    return states


def watched(model: Reactive, assignments: Any) -> Any:
    """Return the same, computed anew in every round from all assignments so far."""
    states = np.ones((len(assignments), model.n_channels), int)
    active = 0
    for t in range(1, len(assignments) + 1):
        recent = assignments[max(0, t - 1 - model.window) : t - 1]
        uses = np.array([(recent == channel).sum() for channel in range(model.n_channels)])
        ranked = np.arange(model.n_channels)
        sort_by(uses, t, ranked)
        targets = [channel for channel in ranked[: model.width] if uses[channel] > 0]
        if targets and active + 1 <= model.budget * t + 1e-9:
            active += 1
            states[t - 1, targets] = 0
    return states


@pytest.mark.parametrize("window", [1, 2, 7, 500])
@pytest.mark.parametrize(("width", "budget"), [(1, 1.0), (2, 0.5), (5, 0.3), (3, 0.0)])
def test_the_jammer_does_what_a_slow_one_does(window: int, width: int, budget: float) -> None:
    model = Reactive(means=[1.0] * 6, window=window, width=width, budget=budget)
    assignments = random_assignments(300, 3, 6, seed=window)
    np.testing.assert_array_equal(played(model, assignments), watched(model, assignments))


def test_compiled_and_plain_are_equal() -> None:
    model = Reactive(means=[1.0] * 4, window=3, width=2)
    assignments = random_assignments(200, 2, 4, seed=0)
    states, means = draw(model, 200)
    air = start_reacting(model)
    for i in range(200):
        react(air, i + 1, assignments[i - 1], states[i], means[i])
    np.testing.assert_array_equal(states, played(model, assignments))


def test_what_was_used_last_is_blocked() -> None:
    model = Reactive(means=[1, 1, 1], budget=1)
    staying = np.zeros((50, 1), int)
    assert not played(model, staying)[1:, 0].any()
    moving = np.arange(50)[:, None] % 3
    states = played(model, moving)
    assert states[np.arange(50), moving[:, 0]].all()  # it is always one round late
    assert (states.sum(axis=1)[1:] == 2).all()


def test_what_is_used_most_is_blocked_in_a_long_window() -> None:
    model = Reactive(means=[1, 1, 1], budget=1, window=40)
    mostly = np.where(np.arange(200) % 4 == 0, 2, 1)[:, None]
    states = played(model, mostly)
    assert not states[5:, 1].any()
    assert states[5:, [0, 2]].all()


@pytest.mark.parametrize("budget", [0.0, 0.1, 0.25, 0.57, 1.0])
def test_the_budget_is_kept_at_all_times_and_spent(budget: float) -> None:
    model = Reactive(means=[1, 1], budget=budget)
    jammed = (played(model, np.zeros((1000, 1), int)) == 0).any(axis=1)
    spent, rounds = np.cumsum(jammed), np.arange(1, 1001)
    assert (spent <= budget * rounds + 1e-9).all()
    assert spent[-1] == (1000 * budget if budget < 1 else 999)  # nothing was seen before round 1


def test_what_is_not_spent_is_kept() -> None:
    model = Reactive(means=[1, 1], budget=0.5)
    late = np.full((100, 1), -1)
    late[60:] = 0
    jammed = (played(model, late) == 0).any(axis=1)
    assert not jammed[:61].any()
    assert jammed[61:].all()


def test_the_free_air_is_stationary() -> None:
    np.testing.assert_array_equal(draw(Reactive(), 500).states, draw(Stationary(), 500).states)


def test_no_other_model_reacts() -> None:
    for name in registry:
        if name not in ("reactive", "table", "trace"):
            assert isinstance(start_reacting(build(name)), Still), name
    assert isinstance(start_reacting(Reactive()), ReactiveState)


def test_still_air_stays_as_it_is() -> None:
    states, means = draw("stationary", 20)
    before = states.copy(), means.copy()
    play(start_reacting(build("stationary")), random_assignments(20, 2, 5, 0), states, means)
    np.testing.assert_array_equal(states, before[0])
    np.testing.assert_array_equal(means, before[1])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"width": 6}, "width must be at most n_channels = 5, got 6"),
        ({"width": 0}, "width must be a whole number >= 1, got 0"),
        ({"window": 0}, "window must be a whole number >= 1, got 0"),
        ({"budget": 1.5}, "budget must be a number in [0, 1], got 1.5"),
        ({"means": [0.5], "mean_low": 0.2}, "mean_low must be left out when means is given"),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Reactive(**params)
    assert str(caught.value).startswith(message)


# ------------------------------------------------------------------------------ a user's own model


def from_the_page() -> Any:
    """Return the model of the page "Add your own scheduler"."""
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    (block,) = [block for block in blocks if "react.register" in block]
    scope: dict[str, Any] = {"__name__": "extending"}
    exec(compile(block, page.name, "exec", dont_inherit=True), scope)
    return scope["Fire"]


Fire = from_the_page()


class Broken(Fire):  # type: ignore[misc, valid-type]
    """Returns what is no state."""

    def start_reacting(self) -> Any:
        return [1, 2]


def test_a_users_model_may_react() -> None:
    states, means = draw(Fire(), 4)
    play(start_reacting(Fire()), np.array([[0], [2], [-1], [1]]), states, means)
    assert (means == 0).astype(int).tolist() == [
        [0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 0, 1, 0, 0],
    ]
    assert not states[means == 0].any()


def test_a_users_state_is_checked() -> None:
    with pytest.raises(ParameterError, match="the start of Broken must return a state"):
        start_reacting(Broken())
