"""What everything registered promises: one way to run, whatever runs it.

A new scheduler, matching or channel model is covered by its registration alone.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import Field
from typer.testing import CliRunner

import freshband
from freshband._policy import parse_policy
from freshband._rounds import Desk, open_desk
from freshband._seeding import Role, generator
from freshband.aoi import ages_of
from freshband.channels import Block, Piecewise, Stationary, open_air
from freshband.channels import registry as channel_registry
from freshband.cli.app import app
from freshband.coordinator import Coordinator
from freshband.errors import ParameterError, UnknownNameError
from freshband.matching.base import registry as matching_registry
from freshband.parameters import Parameters
from freshband.ranking import take_best
from freshband.schedulers.base import Matchings, Presets, means, score, select, update
from freshband.schedulers.base import registry as scheduler_registry
from freshband.schedulers.oracle import Oracle
from freshband.simulation._loop import Tally, open_tally, run_block
from freshband.states import _arrays, reserve


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
LEARNERS = [policy for policy in POLICIES if not policy.startswith("oracle")]
PLAIN: Callable[..., None] = getattr(run_block, "py_func", run_block)  # the source, not compiled

every_policy = pytest.mark.parametrize("policy", POLICIES)
every_learner = pytest.mark.parametrize("policy", LEARNERS)


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
    t = 0
    for size in sizes or [rounds]:
        scheduler = reserve(scheduler, room or size)
        states, truth = air.states[t : t + size], air.means[t : t + size]
        engine(scheduler, matching, desk, tally, rng, t, states, truth)
        t += size
    assert t == rounds
    return Run(scheduler, matching, desk, tally, rng)


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


# --------------------------------------------------------------- fused = stepwise = not compiled


@every_policy
def test_fused_equals_stepwise_equals_plain_python(policy: str, tmp_path: Path) -> None:
    air = draw()
    fused = play(policy, air)
    assert_same_run(fused, play(policy, air, engine=PLAIN))
    if not policy.startswith("oracle"):
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
    assert_same_arrays(held, fused.arrays())
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
@pytest.mark.parametrize(("clients", "channels"), [(1, 1), (1, 6), (4, 4), (3, 7), (17, 19)])
def test_channels_are_distinct_and_in_range(policy: str, clients: int, channels: int) -> None:
    air = draw(120, model=Piecewise(n_channels=channels, n_breakpoints=2))
    log = play(policy, air, clients=clients).tally.assignment_log
    assert log.min() >= 0
    assert log.max() < channels
    ordered = np.sort(log, axis=1)
    assert (ordered[:, 1:] > ordered[:, :-1]).all()


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


@every_learner
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


# ------------------------------------------------------------------------------- bad parameters


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


SCHEDULER_FIELDS = [
    (name, field)
    for name in SCHEDULERS
    for field in scheduler_registry[name].model_fields  # type: ignore[attr-defined]
]


@pytest.mark.parametrize(("name", "field"), SCHEDULER_FIELDS)
def test_bad_hyper_parameters_are_refused_by_name(name: str, field: str) -> None:
    kind: Any = scheduler_registry[name]
    text = documented(kind, field)
    number = re.match(r"(float|int)\b", text)
    outside, inside = outside_and_inside(text) if number else ([], [])
    assert not number or outside, f"{name} documents no range for {field}"
    wrong: list[Any] = [math.nan, math.inf, -math.inf, True, np.True_, "0.5", "no such", b"1"]
    wrong += [[0.5], {}, object(), np.zeros((9, 9)), 1j, *outside]
    if number and number.group(1) == "int":
        wrong += [1.5, 10**30]
    for value in wrong:
        for build in (
            lambda value: kind(**{field: value}),
            lambda value: parse_policy(name, {field: value}),
        ):
            with pytest.raises(ParameterError, match=f"^{field} must be .*, got ") as caught:
                build(value)
            assert "\n" not in str(caught.value)
    for value in inside:
        kind(**{field: int(value) if value.is_integer() else value})


@pytest.mark.parametrize("name", SCHEDULERS)
def test_unknown_hyper_parameters_are_refused_with_a_hint(name: str) -> None:
    kind: Any = scheduler_registry[name]
    with pytest.raises(UnknownNameError, match="has no parameter 'hazzard'"):
        kind(hazzard=1)
    for field in kind.model_fields:
        with pytest.raises(UnknownNameError, match=f"did you mean '{field}'"):
            kind(**{field + "x": 1})


@pytest.mark.parametrize("name", SCHEDULERS)
def test_presets_and_matchings_of_a_scheduler_exist(name: str) -> None:
    kind = scheduler_registry[name]
    assert kind.presets["default"] == {}
    assert set(kind.matchings) <= set(kind.presets)
    for policy in presets(name):
        parsed = parse_policy(policy)
        preset = policy.partition(":")[2] or "default"
        assert parsed.matching_name == kind.matchings.get(preset, "age")
        for key, value in kind.presets[preset].items():
            assert getattr(parsed.scheduler, key) == value
    assert not kind.matchings or name == "random" or set(kind.matchings.values()) == {"rotate"}


@pytest.mark.parametrize("name", [*SCHEDULERS, *ours(matching_registry)])
def test_docstrings_are_the_documentation(name: str) -> None:
    registry: Any = scheduler_registry if name in SCHEDULERS else matching_registry
    text = inspect.getdoc(registry[name]) or ""
    assert text.splitlines()[0].endswith(".")
    assert "**Deviations" in text
    assert "Examples\n--------\n>>> " in text
    file = Path(inspect.getfile(registry[name]))
    assert file.stem.replace("_", "-") == name


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


# -------------------------------------------------------------------- a scheduler in one file


class LoyalState(NamedTuple):
    """How far each channel is trusted."""

    trust: NDArray[np.float64]  # (N,)
    patience: NDArray[np.float64]  # (1,)


@select.register(LoyalState)
def _select(scheduler: LoyalState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    take_best(scheduler.trust, t, chosen)


@score.register(LoyalState)
def _score(scheduler: LoyalState, t: int, scores: Any) -> None:
    for channel in range(scores.shape[1]):
        scores[0, channel] = scheduler.trust[channel]


@means.register(LoyalState)
def _means(scheduler: LoyalState, out: Any) -> None:
    for channel in range(len(out)):
        out[channel] = 0.5


@update.register(LoyalState)
def _update(scheduler: LoyalState, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    for j in range(len(assignment)):
        if outcome[j] >= 0:
            step = 1.0 if outcome[j] == 1 else -scheduler.patience[0]
            scheduler.trust[assignment[j]] += step
    return -1


@final
class Loyal(Parameters):
    """Stays with channels that deliver [a test].

    Parameters
    ----------
    patience : float > 0, default 2
        Trust lost with an update.
    """

    presets: ClassVar[Presets] = {"hasty": {"patience": 50.0}}
    matchings: ClassVar[Matchings] = {"hasty": "rotate"}

    patience: float = Field(2.0, gt=0)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> LoyalState:
        return LoyalState(np.zeros(n_channels), np.array([self.patience]))


@pytest.fixture
def _loyal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a scheduler for one test only."""
    scheduler_registry.names()  # load before copying
    monkeypatch.setattr(scheduler_registry, "_things", dict(scheduler_registry._things))
    scheduler_registry.register("loyal")(Loyal)


@pytest.mark.usefixtures("_loyal")
def test_a_scheduler_of_ones_own_works_everywhere(tmp_path: Path) -> None:
    test_fused_equals_stepwise_equals_plain_python("loyal", tmp_path)
    test_a_saved_run_continues_identically("loyal", True, tmp_path)
    test_bad_hyper_parameters_are_refused_by_name("loyal", "patience")
    result = freshband.simulate(
        Stationary(means=[0.9, 0.1, 0.1, 0.1]), ["random", "loyal"], clients=1, rounds=300, runs=4
    )
    assert (result.mean_age.sel(policy="loyal") < result.mean_age.sel(policy="random")).all()
    assert parse_policy("loyal:hasty").matching_name == "rotate"
    assert Coordinator("loyal", 2, 5, options={"patience": 3}).policy.options == {"patience": 3}
    listed = CliRunner().invoke(app, ["list"]).stdout
    assert "loyal     Stays with channels that deliver [a test]." in listed
    assert "loyal:hasty  patience=50.0" in CliRunner().invoke(app, ["list", "loyal"]).stdout
    with pytest.raises(UnknownNameError, match="did you mean 'loyal'"):
        Coordinator("loyel", 2, 5)


def test_oracles_are_for_simulation_only() -> None:
    for policy in presets("oracle"):
        assert isinstance(parse_policy(policy).scheduler, Oracle)
        with pytest.raises(ParameterError, match="'oracle' sees the channels"):
            Coordinator(policy, 2, 5)
