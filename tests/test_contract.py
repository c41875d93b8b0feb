"""What everything registered promises: one way to run, whatever runs it.

A new scheduler, matching or channel model is covered by its registration alone.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import freshband
from freshband._policy import parse_policy
from freshband.aoi import ages_of
from freshband.channels import Block, Piecewise
from freshband.channels import registry as channel_registry
from freshband.contract import SIZES, assignment_problems
from freshband.coordinator import Coordinator
from freshband.errors import ParameterError
from freshband.parameters import Parameters
from freshband.schedulers.oracle import Oracle
from freshband.simulation._loop import Tally
from freshband.states import _arrays
from tests.playing import (
    CHANNELS,
    CLIENTS,
    COMPILED,
    LEARNERS,
    PLAIN,
    ROOM,
    ROUNDS,
    Run,
    assert_same_arrays,
    assert_same_run,
    draw,
    every_kind,
    every_policy,
    interpret_coordinator,
    next_plan,
    ours,
    play,
    presets,
    saved,
    step,
)


@pytest.fixture(autouse=True)
def _compiled_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    called = getattr(request.node, "callspec", None)
    policy = called.params.get("policy", COMPILED[0]) if called else COMPILED[0]
    if policy in LEARNERS and policy not in COMPILED:
        interpret_coordinator(monkeypatch)


# --------------------------------------------------------------- fused = stepwise = not compiled


@every_policy
def test_fused_equals_stepwise_equals_plain_python(policy: str, tmp_path: Path) -> None:
    air = draw()
    fused = play(policy, air)
    assert_same_run(fused, play(policy, air, engine=PLAIN))
    if policy in LEARNERS:
        assert_stepwise_is_the_same(policy, air, fused, tmp_path)
    if policy.startswith("glr-cucb"):
        assert fused.tally.mark[0]["alarms"] > 0, (
            "the air must raise an alarm for restarts to be compared"
        )


def assert_stepwise_is_the_same(policy: str, air: Block, fused: Run, folder: Path) -> None:
    coordinator = Coordinator(policy, CLIENTS, CHANNELS, seed=0, horizon=ROUNDS)
    plans, alarms, ages = zip(*step(coordinator, air, range(ROUNDS)), strict=True)
    np.testing.assert_array_equal(plans, fused.tally.assignment_log)
    np.testing.assert_array_equal(ages, ages_of(fused.tally.outcome_log))
    raised = [[t, channel] for t, channel in enumerate(alarms, start=1) if channel is not None]
    assert raised == fused.tally.alarm[: fused.tally.mark[0]["alarms"]].tolist()
    header, held = saved(coordinator, folder)
    expected = fused.arrays()
    assert expected.pop("desk.ages").tolist() == coordinator.ages.tolist()
    found = {path.removeprefix("fleet."): array for path, array in held.items()}
    assert_same_arrays({path: found.get(path) for path in expected}, expected)
    assert header["rng"] == fused.rng.bit_generator.state
    assert header["round"] == coordinator.round == ROUNDS


@every_policy
def test_whoever_raises_alarms_has_a_detector(policy: str) -> None:
    raised = play(policy, draw()).tally.mark[0]["alarms"]
    assert parse_policy(policy).has_detector == (raised > 0)


@every_policy
def test_compiled_equals_plain_python_with_many_clients(policy: str) -> None:
    air = draw(80, model=Piecewise(n_channels=20, n_breakpoints=1))
    assert_same_run(
        play(policy, air, clients=18),  # more than are sorted by insertion
        play(policy, air, clients=18, engine=PLAIN),
    )


@every_policy
def test_outcomes_are_the_states_of_the_assigned_channels(policy: str) -> None:
    air = draw()
    tally = play(policy, air).tally
    delivered = np.take_along_axis(air.states, tally.assignment_log, axis=1)
    np.testing.assert_array_equal(tally.outcome_log, delivered)
    ages = ages_of(delivered)
    assert tally.mark[0]["age"] == ages.sum()
    assert tally.mark[0]["oldest"] == ages.max()
    np.testing.assert_array_equal(tally.delivered, delivered.sum(axis=0))
    assert math.isclose(tally.variance[0], CLIENTS**2 * ages.var(axis=1).sum())


@every_policy
def test_block_size_changes_nothing(policy: str) -> None:
    air = draw()
    sizes = [1, 2, 7, 64, 129, 3, 90, 104]
    whole, parts = play(policy, air, room=None), play(policy, air, sizes=sizes, room=None)
    for field, a, b in zip(Tally._fields, whole.tally, parts.tally, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=field)
    assert whole.rng.bit_generator.state == parts.rng.bit_generator.state
    held = parts.arrays()
    for path, array in whole.arrays().items():  # one may have more room than the other
        common = tuple(slice(min(pair)) for pair in zip(array.shape, held[path].shape, strict=True))
        np.testing.assert_array_equal(array[common], held[path][common], err_msg=path)


# ----------------------------------------------------------------------------- seeds and channels


@every_policy
def test_same_seed_same_run_and_other_seeds_differ(policy: str) -> None:
    def run(seed: int) -> Run:
        return play(policy, draw(seed=seed), seed=seed)

    first = run(0)
    assert_same_run(first, run(0))
    assert not np.array_equal(first.tally.assignment_log, run(1).tally.assignment_log)


@every_policy
@pytest.mark.parametrize(("clients", "channels"), SIZES)
def test_channels_are_distinct_and_in_range(policy: str, clients: int, channels: int) -> None:
    air = draw(120, model=Piecewise(n_channels=channels, n_breakpoints=2))
    log = play(policy, air, clients=clients).tally.assignment_log
    assert list(assignment_problems(log, channels)) == []


@every_policy
def test_the_air_is_not_written_to(policy: str) -> None:
    air = draw()
    kept = Block(air.states.copy(), air.means.copy())
    play(policy, air)
    np.testing.assert_array_equal(air.states, kept.states)
    np.testing.assert_array_equal(air.means, kept.means)


@every_policy
def test_hyper_parameters_do_not_change_during_a_run(policy: str) -> None:
    parsed = parse_policy(policy)
    assert isinstance(parsed.scheduler, Parameters)
    before = parsed.scheduler.model_dump()
    rng = np.random.default_rng(0)
    one, _ = parsed.start(CLIENTS, CHANNELS, rng, ROUNDS)
    kept = {path: array.copy() for path, array in _arrays(one)}
    another, _ = parsed.start(CLIENTS, CHANNELS, rng, ROUNDS)
    for _, array in _arrays(another):
        array.fill(1)
    assert_same_arrays(dict(_arrays(one)), kept)  # states share no arrays
    assert parsed.scheduler.model_dump() == before


def test_options_are_not_written_to() -> None:
    options = {"delta": 0.01, "alpha": 0.1}
    Coordinator("glr-cucb:paper", 2, 5, options=options)
    freshband.simulate(
        "stationary", "glr-cucb", rounds=20, runs=1, policy_options={"glr-cucb": options}
    )
    assert options == {"delta": 0.01, "alpha": 0.1}


# -------------------------------------------------------------------------------- permutations


@pytest.mark.parametrize("policy", presets("oracle")[:2])
def test_an_oracle_follows_its_channels_wherever_they_are(policy: str) -> None:
    """T16, exactly: with distinct means no tie depends on a channel's number."""
    air = draw()
    order = np.array([3, 0, 4, 2, 1])
    moved = Block(air.states[:, order].copy(), air.means[:, order].copy())
    here, there = play(policy, air), play(policy, moved)
    np.testing.assert_array_equal(order[there.tally.assignment_log], here.tally.assignment_log)
    np.testing.assert_array_equal(there.tally.outcome_log, here.tally.outcome_log)


# -------------------------------------------------------------------------------- save and load


@every_kind
@pytest.mark.parametrize("in_the_middle", [False, True], ids=["between", "mid-round"])
def test_a_saved_run_continues_identically(
    policy: str, in_the_middle: bool, tmp_path: Path
) -> None:
    """T18, across the point where the coordinator makes room for more rounds."""
    rounds, cut = ROOM + 200, 700
    air = draw(rounds)
    whole = Coordinator(policy, CLIENTS, CHANNELS, seed=3, horizon=rounds)
    step(whole, air, range(cut))
    if in_the_middle:
        next_plan(whole)
    whole.save(tmp_path / "state.npz")
    part = Coordinator.load(tmp_path / "state.npz")
    assert part.round == cut
    np.testing.assert_array_equal(part.ages, whole.ages)
    assert (part.pending is not None) == in_the_middle
    rest = range(cut, rounds)
    assert step(part, air, rest) == step(whole, air, rest)
    (header, held), (expected_header, expected) = saved(part, tmp_path), saved(whole, tmp_path)
    assert_same_arrays(held, expected)
    assert header == expected_header


def test_room_for_super_arms_survives_saving(tmp_path: Path) -> None:
    """Of C(14, 7) = 3432 super-arms only the played ones are held: the tree of weights grows."""
    rounds, cut = 2 * ROOM + 300, ROOM + 500
    air = draw(rounds, model=Piecewise(n_channels=14, n_breakpoints=1))
    whole = Coordinator("m-exp3", 7, 14, seed=0)
    step(whole, air, range(cut))
    whole.save(tmp_path / "state.npz")
    part = Coordinator.load(tmp_path / "state.npz")
    rest = range(cut, rounds)
    assert step(part, air, rest) == step(whole, air, rest)
    assert_same_arrays(saved(part, tmp_path)[1], saved(whole, tmp_path)[1])


# ------------------------------------------------------------------------------ channel models

NEEDS_ARGUMENTS = {"table": "one of states and means must be given", "trace": "'path'"}


@pytest.mark.parametrize("name", ours(channel_registry))
def test_every_channel_model_is_accepted_by_simulate(name: str) -> None:
    if name in NEEDS_ARGUMENTS:
        with pytest.raises(ParameterError, match=NEEDS_ARGUMENTS[name]):
            freshband.simulate(name, "random", clients=1, rounds=7000, runs=1)
        return
    result = freshband.simulate(name, "random", clients=1, rounds=7000, runs=1)
    assert result.regret.notnull().all()
    assert json.loads(result.attrs["config"])["channels"] == name


def test_oracles_are_for_simulation_only() -> None:
    for policy in presets("oracle"):
        assert isinstance(parse_policy(policy).scheduler, Oracle)
        with pytest.raises(ParameterError, match=f"'{policy}' sees the channels"):
            Coordinator(policy, 2, 5)
