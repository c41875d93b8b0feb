"""What everything registered is played on: policies, rounds in one loop and step by step."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband import coordinator as coordinating
from freshband._lending import Caller
from freshband._policy import parse_policy
from freshband._rounds import Desk, open_desk
from freshband._seeding import Role, generator
from freshband.channels import Block, Piecewise, open_air
from freshband.channels.adversary import start_reacting
from freshband.coordinator import Coordinator
from freshband.fleet.conditions import SimulatedFleet
from freshband.matching.base import registry as matching_registry
from freshband.parameters import Parameters
from freshband.schedulers.base import registry as scheduler_registry
from freshband.simulation._fleet_loop import run_fleet_block
from freshband.simulation._loop import Tally, open_tally, run_block
from freshband.simulation._players import Game, _FleetPlayer
from freshband.states import _arrays, _nested, reserve


def ours(registry: Any) -> list[str]:
    """Names registered by the package itself, whatever other tests have added."""
    return [name for name in registry if registry[name].__module__.startswith("freshband.")]


def presets(scheduler: str) -> list[str]:
    """The policies a scheduler's presets make, each with its default matching."""
    kind = scheduler_registry[scheduler]
    return [scheduler, *(f"{scheduler}:{each}" for each in kind.presets if each != "default")]


ROOM = 1024  # rounds the coordinator reserves at a time: fused runs reserve the same
ROUNDS = 400
CLIENTS, CHANNELS = 2, 5
AIR = Piecewise(means=[[0.95, 0.85, 0.3, 0.1, 0.05], [0.05, 0.1, 0.3, 0.85, 0.95]])

SCHEDULERS = ours(scheduler_registry)
AWARE = ["m-exp3+aa", "m-exp3+aa-sum"]
MATCHED = [f"cucb+{matching}" for matching in ours(matching_registry)]
POLICIES = [*(policy for name in SCHEDULERS for policy in presets(name)), *AWARE, *MATCHED]
LEARNERS = [policy for policy in POLICIES if not parse_policy(policy).scheduler.sees_channels]
PLAIN: Callable[..., None] = getattr(run_block, "py_func", run_block)  # the source, not compiled


def _kinds(policy: str) -> list[str]:
    """The types of a policy's states, the outermost of the scheduler first."""
    states = parse_policy(policy).start(CLIENTS, CHANNELS, np.random.default_rng(0), ROUNDS)
    return [type(part).__name__ for state in states for part in _nested(state)]


def _first_of_each(policies: Sequence[str], kind: Callable[[str], object]) -> list[str]:
    return list({kind(policy): policy for policy in reversed(policies)}.values())[::-1]


# Where the code is all that matters, policies with the same states are one.
KINDS = _first_of_each(LEARNERS, lambda policy: tuple(_kinds(policy)))
# The coordinator's entry points are compiled once per outermost state: what is inside has been
# compiled and compared in the loop.
COMPILED = _first_of_each(LEARNERS, lambda policy: _kinds(policy)[0])

every_policy = pytest.mark.parametrize("policy", POLICIES)
every_learner = pytest.mark.parametrize("policy", LEARNERS)
every_kind = pytest.mark.parametrize("policy", KINDS)


class Run(NamedTuple):
    """Everything a run leaves behind."""

    scheduler: Any
    matching: Any
    desk: Desk
    tally: Tally
    rng: np.random.Generator

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array of every state, by the path it is saved under."""
        parts = {"scheduler": self.scheduler, "matching": self.matching, "desk": self.desk}
        return {f"{part}.{path}": a for part, s in parts.items() for path, a in _arrays(s)}


def draw(rounds: int = ROUNDS, seed: int = 0, model: Any = AIR) -> Block:
    return open_air(model, rounds, seed).block(rounds)


def play(
    policy: str,
    air: Block,
    *,
    clients: int = CLIENTS,
    seed: int = 0,
    engine: Callable[..., None] = run_block,
    sizes: Sequence[int] | None = None,
    room: int | None = ROOM,
) -> Run:
    """Run the fused loop over the air, in one block or in several, logging every round."""
    rounds, n_channels = air.states.shape
    rng = generator(seed, Role.POLICY)
    parsed = parse_policy(policy)
    scheduler, matching = parsed.start(clients, n_channels, rng, rounds)
    desk = open_desk(clients, n_channels, parsed.scheduler.client_scores)
    tally = open_tally(clients, np.array([rounds]), logged=rounds)
    jammer, t = start_reacting(AIR), 0
    for size in sizes or [rounds]:
        scheduler = reserve(scheduler, room or size)
        states, truth = air.states[t : t + size], air.means[t : t + size]
        Caller(engine)((scheduler, matching, desk, tally, jammer, rng, states, truth), t)
        t += size
    assert t == rounds
    return Run(scheduler, matching, desk, tally, rng)


def play_fleet(
    policy: str,
    rounds: int = ROUNDS,
    *,
    model: Any = AIR,
    clients: int = CLIENTS,
    compiled: bool = True,
    **options: Any,
) -> _FleetPlayer:
    """Run the loop for any fleet in one block, whatever the policy and the options."""
    game = Game(model, SimulatedFleet(**options), clients, rounds, 0, 0, np.array([rounds]))
    player = _FleetPlayer(parse_policy(policy), game, informed=False)
    player.scheduler = reserve(player.scheduler, ROOM)
    block, fates = game.open_air().block(rounds), game.open_fates().block(rounds)
    if not compiled:
        player._run = Caller(getattr(run_fleet_block, "py_func", run_fleet_block))
    assert player._play(0, block, fates) == (0, -1)
    return player


def states_of(player: Any) -> dict[str, NDArray[Any]]:
    """Every array of the states of a player, or of a coordinator, that is saved."""
    parts = {"scheduler": player.scheduler, "matching": player.matching, "fleet": player.fleet}
    return {f"{part}.{path}": a for part, s in parts.items() for path, a in _arrays(s)}


def assert_fleet_steps_are_the_same(policy: str, folder: Path, rounds: int = ROUNDS) -> None:
    """Compare the loop for any fleet, compiled and plain, with the coordinator's steps."""
    fused, plain = (play_fleet(policy, rounds, compiled=compiled) for compiled in (True, False))
    assert_same_arrays(states_of(fused), states_of(plain))
    for field, a, b in zip(Tally._fields, fused.tally, plain.tally, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=field)
    coordinator = Coordinator(policy, CLIENTS, CHANNELS, seed=0, horizon=rounds)
    step(coordinator, draw(rounds), range(rounds))
    header, held = saved(coordinator, folder)
    expected = states_of(fused)
    assert_same_arrays({path: held[path] for path in expected}, expected)
    assert header["rng"] == fused.rng.bit_generator.state
    np.testing.assert_array_equal(coordinator.ages, rounds - fused.truth.last + 1)


def interpret_coordinator(patch: pytest.MonkeyPatch) -> None:
    """Let coordinators play the sources, not what is compiled of them."""
    for name in ("plan", "observe", "observe_late"):
        entry = getattr(coordinating, name)
        patch.setattr(coordinating, name, getattr(entry, "py_func", entry))


def next_plan(coordinator: Coordinator) -> Any:
    """Plan, with the contributions the fused loop has: none."""
    if coordinator.policy.needs_contributions:
        return coordinator.plan(contributions=np.zeros(coordinator.n_clients))
    return coordinator.plan()


def step(coordinator: Coordinator, air: Block, rounds: Sequence[int]) -> list[Any]:
    """Drive a coordinator through some rounds of the air; return what it did."""
    story = []
    for t in rounds:
        pending = coordinator.pending
        plan = next_plan(coordinator) if pending is None else pending
        alarm = coordinator.observe(air.states[t, plan])
        story.append((plan.tolist(), alarm, coordinator.ages.tolist()))
    return story


def saved(coordinator: Coordinator, folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What a coordinator writes down: its header and its arrays."""
    path = folder / "saved.npz"
    coordinator.save(path)
    with np.load(path, allow_pickle=False) as archive:
        held = {name: archive[name] for name in archive.files}
    header = json.loads(str(held.pop("header")))
    held.pop("checksum")
    return header, held


def assert_same_arrays(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> None:
    assert set(one) == set(other)
    for path, array in one.items():
        assert array.dtype == other[path].dtype, path
        np.testing.assert_array_equal(array, other[path], err_msg=path, strict=True)


def assert_same_run(one: Run, other: Run) -> None:
    for field in ("assignment_log", "outcome_log"):  # first, since they name the round
        np.testing.assert_array_equal(getattr(one.tally, field), getattr(other.tally, field))
    for field, a, b in zip(Tally._fields, one.tally, other.tally, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=field)
    assert_same_arrays(one.arrays(), other.arrays())
    assert one.rng.bit_generator.state == other.rng.bit_generator.state


def documented(kind: type[Parameters], field: str) -> str:
    """The first line of a parameter's entry in the docstring."""
    found = re.search(rf"^(\w+, )*{field}(, \w+)* : (.*)$", inspect.getdoc(kind) or "", re.M)
    assert found, f"{kind.__name__} does not document {field}"
    other = re.fullmatch(r"as in `([\w-]+)`", found.group(3))
    if other is not None:  # written once, where the other one documents it
        return documented(scheduler_registry[other.group(1)], field)  # type: ignore[arg-type]
    return found.group(3)


def outside_and_inside(text: str) -> tuple[list[float], list[float]]:
    """Values a documented range forbids and allows, such as those of ``float in (0, 1]``."""
    interval = re.search(r"in ([\[(])([\d.]+), ([\d.]+)([\])])", text)
    if interval:
        left, low, high, right = interval.groups()
        ends = [(float(low), left == "["), (float(high), right == "]")]
        outside = [ends[0][0] - 0.5, ends[1][0] + 0.5, *(x for x, is_in in ends if not is_in)]
        return outside, [x for x, is_in in ends if is_in]
    bound = re.search(r"(>=|>) ([\d.]+)", text)
    if bound is None:
        return [], []
    limit = float(bound.group(2))
    return ([limit - 1], [limit]) if bound.group(1) == ">=" else ([limit, limit - 1], [])
