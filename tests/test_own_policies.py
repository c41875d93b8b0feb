"""Schedulers and matchings of the user's own that break the rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import Field

import freshband
from freshband import Coordinator
from freshband import coordinator as coordinators
from freshband.errors import ParameterError, RuleError
from freshband.matching.base import match
from freshband.matching.base import registry as matchings
from freshband.parameters import Parameters
from freshband.schedulers.base import Matchings, Presets, means, select, update
from freshband.schedulers.base import registry as schedulers
from freshband.schedulers.counts import Counts, absorb, start_counts
from freshband.simulation import _players

with_compiler = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="about compiled code")

ONE_FOR_ALL, NOT_THERE, BELOW, WRITES_OUTSIDE, BAD_ALARM, COUNTS_TOO_SHORT = range(1, 7)


class FaultyState(NamedTuple):
    counts: Counts
    fault: NDArray[np.int64]


@select.register(FaultyState)
def _select(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    fault = scheduler.fault[0] if t > 2 else 0  # it behaves for two rounds
    for j in range(len(chosen)):
        chosen[j] = j
        if fault == ONE_FOR_ALL:
            chosen[j] = 0
        elif fault == NOT_THERE:
            chosen[j] = 99
        elif fault == BELOW:
            chosen[j] = -1 - j
    if fault == WRITES_OUTSIDE:
        for j in range(10 * len(chosen)):
            chosen[j] = 0


@update.register(FaultyState)
def _update(scheduler: Any, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    absorb(scheduler.counts, t, assignment, outcome)  # a kernel of the package
    return 17 if scheduler.fault[0] == BAD_ALARM and t > 2 else -1


class Faulty(Parameters):
    presets: ClassVar[Presets] = {"corrected": {}}
    matchings: ClassVar[Matchings] = {}

    fault: int = Field(default=0, ge=0)

    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> FaultyState:
        short = self.fault == COUNTS_TOO_SHORT
        return FaultyState(
            start_counts(1 if short else n_clients, 1 if short else n_channels),
            np.array([self.fault]),
        )


class SilentState(NamedTuple):
    said: NDArray[np.int64]


@select.register(SilentState)
def _select_first(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    for j in range(len(chosen)):
        chosen[j] = j


@update.register(SilentState)
def _say_nothing(scheduler: Any, t: int, assignment: Any, outcome: Any, overridden: Any) -> Any:
    scheduler.said[0] += 1  # and the ``return -1`` is forgotten


class Silent(Parameters):
    presets: ClassVar[Presets] = {"corrected": {}}
    matchings: ClassVar[Matchings] = {}

    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> SilentState:
        return SilentState(np.zeros(1, np.int64))


class MistypedState(NamedTuple):
    epsilon: NDArray[np.float64]


@select.register(MistypedState)
def _mistyped(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    chosen[0] = scheduler.epsilom[0]


class Mistyped(Silent):
    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> Any:
        return MistypedState(np.zeros(1))


class ScribblingState(NamedTuple):
    rates: NDArray[np.float64]


@select.register(ScribblingState)
def _scribble(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    for j in range(len(chosen)):
        chosen[j] = j
        ages[j] = 1


@means.register(ScribblingState)
def _scribbled(scheduler: Any, out: Any) -> None:
    for k in range(len(out)):
        out[k] = scheduler.rates[k]


class Scribbling(Silent):
    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> Any:
        return ScribblingState(np.zeros(n_channels))


class ShrinkingState(NamedTuple):
    unused: NDArray[np.float64]


@select.register(ShrinkingState)
def _shrink(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    ages -= 1  # numba stumbles over it


class Shrinking(Silent):
    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> Any:
        return ShrinkingState(np.zeros(1))


class Scalar(Silent):
    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> Any:
        return MistypedState(0.5)  # type: ignore[arg-type]


class Nothing(Silent):
    def start(self, n_clients: int, n_channels: int, rng: Any, horizon: Any) -> Any:
        return None


class TwiceState(NamedTuple):
    unused: NDArray[np.int64]


@match.register(TwiceState)
def _match(
    matching: Any,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    for j in range(len(assignment)):
        assignment[j] = chosen[0]


class Twice(Parameters):
    def start(self, n_clients: int, lot: int = 0) -> TwiceState:
        return TwiceState(np.zeros(1, np.int64))


class AgingState(NamedTuple):
    unused: NDArray[np.int64]


@match.register(AgingState)
def _match_aging(
    matching: Any,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    for j in range(len(assignment)):
        if ages[j] > 0:
            assignment[j] = chosen[len(chosen) - 1 - j]


class Aging(Parameters):
    def start(self, n_clients: int, lot: int = 0) -> AgingState:
        return AgingState(np.zeros(1, np.int64))


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play the sources: states of the user's own are compiled anew by every process."""
    for name in ("plan", "observe"):
        entry = getattr(coordinators, name)
        monkeypatch.setattr(coordinators, name, getattr(entry, "py_func", entry))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register for these tests only: contract tests go over everything that is registered."""
    own = [Faulty, Silent, Mistyped, Scribbling, Shrinking, Scalar, Nothing]
    for kind in own:
        schedulers.register(kind.__name__.lower())(kind)  # type: ignore[type-abstract]
    matchings.register("twice")(Twice)
    matchings.register("aging")(Aging)
    yield
    for kind in own:
        del schedulers._things[kind.__name__.lower()]
    del matchings._things["twice"], matchings._things["aging"]


def play(policy: str, rounds: int = 5, **options: Any) -> Coordinator:
    coordinator = Coordinator(policy, n_clients=2, n_channels=5, options=options)
    for _ in range(rounds):
        coordinator.plan()
        coordinator.observe([True, False])
    return coordinator


RULES = {
    ONE_FOR_ALL: r"select must choose 2 different channels from 0 to 4, got \[0, 0\]",
    NOT_THERE: r"select must choose 2 different channels from 0 to 4, got \[99, 99\]",
    BELOW: r"select must choose 2 different channels from 0 to 4, got \[-1, -2\]",
    BAD_ALARM: r"update must return a channel from 0 to 4, or -1, got 17",
}


@pytest.mark.parametrize("fault", RULES)
def test_a_scheduler_that_breaks_a_rule_is_refused_in_the_round_it_does(fault: int) -> None:
    rule = rf"policy 'faulty' broke a rule in round 3: {RULES[fault]}"
    with pytest.raises(RuleError, match=rule):
        play("faulty", fault=fault)
    with pytest.raises(RuleError, match=rule):
        freshband.simulate(
            "piecewise", ["faulty"], rounds=50, runs=1, policy_options={"faulty": {"fault": fault}}
        )


def test_one_that_keeps_the_rules_is_not() -> None:
    assert play("faulty").round == 5


@pytest.mark.parametrize("fault", [WRITES_OUTSIDE, COUNTS_TOO_SHORT])
def test_compiled_code_does_not_reach_outside_arrays(fault: int) -> None:
    """Neither the user's kernels nor those of the package on arrays the user made too short."""
    play("random")  # the package's kernels are compiled without checks for their own states
    with pytest.raises(RuleError, match="policy 'faulty' used an index outside an array"):
        play("faulty", fault=fault)
    with pytest.raises(RuleError, match="policy 'faulty' used an index outside an array"):
        freshband.simulate(
            "piecewise", ["faulty"], rounds=50, runs=1, policy_options={"faulty": {"fault": fault}}
        )


def test_a_refused_plan_leaves_the_round_where_it_was() -> None:
    coordinator = play("faulty", rounds=2, fault=ONE_FOR_ALL)
    for _ in range(2):
        with pytest.raises(RuleError, match="round 3"):
            coordinator.plan()
    assert coordinator.round == 2
    assert coordinator.pending is None


def test_a_matching_that_gives_one_channel_twice_is_refused() -> None:
    with pytest.raises(RuleError, match=r"each client must get a channel of its own .* got \["):
        play("cucb+twice")


FLEET: dict[str, Any] = {"n_clients": 6, "n_channels": 4, "max_transmissions": 3, "max_delay": 5}
SOME = [True, True, False, True, True, True]


def play_fleet(policy: str, rounds: int = 8, **options: Any) -> Coordinator:
    """Masks, late outcomes, and more clients than channels."""
    coordinator = Coordinator(policy, **FLEET, options=options)
    for t in range(1, rounds + 1):
        available = [k != t % 4 for k in range(4)] if t % 2 else None
        plan = coordinator.plan(present=SOME, available=available)
        assert plan[2] == -1
        assert available is None or t % 4 not in plan
        assert (plan >= 0).sum() == 3
        assert len(set(plan.tolist()) - {-1}) == 3
        if t > 2:
            coordinator.observe([True, False, None, True, None, False], round=t - 2)
    return coordinator


def test_own_schedulers_and_matchings_play_any_fleet(uncompiled: None) -> None:
    for policy in ("faulty", "silent", "silent+aging", "cucb+aging", "faulty+rotate"):
        again = Coordinator.from_bytes(play_fleet(policy).to_bytes())
        assert again.round == 7
        assert again.join("another") == 6
        assert len(again.plan()) == 7


@pytest.mark.parametrize("fault", [ONE_FOR_ALL, NOT_THERE, BELOW])
def test_rules_hold_in_any_fleet(fault: int, uncompiled: None) -> None:
    """Also where the channel that is chosen twice is missing, and so would be replaced."""
    with pytest.raises(RuleError, match="policy 'faulty' broke a rule in round 3: select must"):
        play_fleet("faulty", fault=fault)
    coordinator = Coordinator("faulty", 2, 5, options={"fault": fault})
    for _ in range(2):
        coordinator.plan()
        coordinator.observe([True, False])
    with pytest.raises(RuleError, match="broke a rule in round 3: select must choose 2 different"):
        coordinator.plan(available=[False, True, True, True, True])


@pytest.mark.parametrize("fault", [ONE_FOR_ALL, NOT_THERE])
def test_rules_hold_in_simulated_fleets(fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = getattr(_players.run_fleet_block, "py_func", _players.run_fleet_block)
    monkeypatch.setattr(_players, "run_fleet_block", source)
    options = {"faulty": {"fault": fault}}
    with pytest.raises(RuleError, match="policy 'faulty' broke a rule in round 3: select must"):
        freshband.simulate(
            "piecewise", ["faulty"], clients=6, rounds=50, runs=1, policy_options=options
        )


def test_a_matching_that_gives_one_channel_twice_is_refused_in_any_fleet(uncompiled: None) -> None:
    rule = r"policy '.*\+twice' broke a rule in round 1: each client must get a channel of its own"
    with pytest.raises(RuleError, match=rule):
        play_fleet("cucb+twice")
    coordinator = Coordinator("bayes+twice", n_clients=3, n_channels=4, links="differ")
    with pytest.raises(RuleError, match=rule):
        coordinator.plan()


def test_own_matchings_decide_where_links_differ(uncompiled: None) -> None:
    coordinator = Coordinator("bayes+aging", n_clients=4, n_channels=2, links="differ")
    sent = coordinator.plan()
    coordinator.observe(sent >= 0)
    plan = coordinator.plan()
    assert (plan[sent >= 0] == -1).all()  # the oldest are served
    assert plan[sent < 0].tolist() == [1, 0]  # in the order of the matching


def test_own_schedulers_say_that_they_do_not_learn_links() -> None:
    with pytest.raises(ParameterError, match="policy 'silent' learns one success rate per channel"):
        Coordinator("silent", 2, 5, links="differ")


def test_an_update_without_return_notices_nothing() -> None:
    coordinator = Coordinator("silent", n_clients=2, n_channels=5)
    coordinator.plan()
    assert coordinator.observe([True, False]) is None


@with_compiler
@pytest.mark.parametrize("policy", ["scribbling", "scribbling+aa"])
def test_a_scheduler_that_writes_ages_is_not_compiled(policy: str) -> None:
    with pytest.raises(RuleError, match=r"may only read.*\(test_own_policies.py, line \d+\)"):
        play(policy)


@with_compiler
def test_an_error_inside_the_compiler_is_one_line() -> None:
    with pytest.raises(RuleError, match="compiled, which numba does not explain") as caught:
        play("shrinking")
    assert "\n" not in str(caught.value)


@with_compiler
def test_what_the_compiler_says_is_one_line_that_names_the_users_own() -> None:
    with pytest.raises(RuleError) as caught:
        play("mistyped")
    assert "\n" not in str(caught.value)
    assert "Unknown attribute 'epsilom' of MistypedState" in str(caught.value)
    assert f"({Path(__file__).name}, line " in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("scalar", r"field 'epsilon' of the MistypedState of policy 'scalar' must be an array"),
        ("nothing", r"the start of policy 'nothing' must return a state.* got None"),
    ],
)
def test_a_state_that_is_none_is_refused_at_the_start(policy: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Coordinator(policy)


class Bare:
    def start(self) -> None: ...


class WithoutStart(Parameters):
    presets: ClassVar[Presets] = {}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Bare, "derive it from freshband.parameters.Parameters"),
        (WithoutStart, "allocates the state"),
    ],
)
def test_a_class_that_lacks_something_is_refused_when_registered(kind: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        schedulers.register("lacking")(kind)
    assert "lacking" not in schedulers
