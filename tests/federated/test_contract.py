"""What every registered server rule promises, alone and inside of every wrapper.

A new rule is covered by its registration alone.
"""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from freshband.cli.app import app
from freshband.errors import ParameterError, UnknownNameError
from freshband.federated import Federation
from freshband.federated._state import ServerState, copy_into
from freshband.federated.algorithms import Arrivals, Rule, Wrapper, build_algorithm, registry
from freshband.federated.algorithms.base import _options_of, read_algorithm
from tests.federated.playing import tiny
from tests.playing import documented, ours, outside_and_inside

NAMES = ours(registry)
RULES = [name for name in NAMES if not issubclass(registry[name], Wrapper)]
WRAPPERS = [name for name in NAMES if name not in RULES]
WRAPPED = [
    f"{rule}+{wrapper}"
    for rule in RULES
    for wrapper in WRAPPERS
    if not (wrapper == "eager" and build_algorithm(rule).everybody_trains)
]
CLIENTS, SIZE, ROUNDS = 5, 7, 12

every_algorithm = pytest.mark.parametrize("algorithm", [*RULES, *WRAPPED])


def draw(t: int, nobody: bool = False) -> Arrivals:
    """What gets through in round t; rows of the others hold NaN, which must not be read."""
    rng = np.random.default_rng(t)
    delivered = np.zeros(CLIENTS, bool) if nobody else rng.random(CLIENTS) < 0.6
    rows = torch.from_numpy(rng.normal(size=(2, CLIENTS, SIZE)))
    rows[:, ~torch.from_numpy(delivered)] = math.nan
    weights = rng.random(CLIENTS) + 0.1
    staleness = np.where(delivered, rng.integers(0, 6, CLIENTS), -1)
    return Arrivals(delivered, rows[0], rows[1], staleness, weights / weights.sum(), 0.2, t)


def begin(rule: Rule) -> ServerState:
    model = torch.linspace(-1, 1, SIZE, dtype=torch.float64)
    memory, weights = rule.start(model), np.zeros(CLIENTS)
    state = ServerState.first(model, memory, weights, counts_work=False, delay=0)
    state.receivers = np.zeros(CLIENTS, bool)
    return state


def play(rule: Rule, state: ServerState, rounds: range, relabel: Any = None) -> list[Any]:
    story = []
    for t in rounds:
        given = draw(t) if relabel is None else relabel(draw(t))
        steps, passed = rule.apply(state.model, state.memory, given)
        state.version += passed
        story.append((steps.tolist(), passed, rule.serve(state.model, state.memory).tolist()))
    return story


@every_algorithm
def test_steps_and_models_are_finite_and_of_those_that_arrived(algorithm: str) -> None:
    rule = build_algorithm(algorithm)
    state = begin(rule)
    before = state.model.clone()
    for t in range(1, ROUNDS):
        given = draw(t)
        steps, passed = rule.apply(state.model, state.memory, given)
        assert steps.shape == (CLIENTS,)
        assert np.isfinite(steps).all()
        assert (steps[~given.delivered] == 0).all()
        assert (steps[given.delivered] > 0).all()
        assert passed >= 0
        assert state.model.isfinite().all()
        assert rule.serve(state.model, state.memory).isfinite().all()
    assert not torch.equal(state.model, before)


@every_algorithm
def test_the_same_arrivals_give_the_same_models(algorithm: str) -> None:
    first, second = (build_algorithm(algorithm) for _ in range(2))
    assert first == second
    one, other = begin(first), begin(second)
    assert play(first, one, range(1, ROUNDS)) == play(second, other, range(1, ROUNDS))
    assert first == build_algorithm(algorithm)  # nothing is kept in the rule itself


@every_algorithm
def test_what_arrived_is_not_written_to(algorithm: str) -> None:
    rule = build_algorithm(algorithm)
    state, given = begin(rule), draw(3)
    for array in (given.delivered, given.staleness, given.weights):
        array.flags.writeable = False
    rows = [rows.clone() for rows in (given.updates, given.models)]
    rule.apply(state.model, state.memory, given)
    assert torch.equal(rows[0].nan_to_num(), given.updates.nan_to_num())
    assert torch.equal(rows[1].nan_to_num(), given.models.nan_to_num())


@every_algorithm
def test_where_nothing_arrived_the_model_stays(algorithm: str) -> None:
    rule = build_algorithm(algorithm)
    state = begin(rule)
    play(rule, state, range(1, 4))
    before = state.model.clone()
    steps, passed = rule.apply(state.model, state.memory, draw(4, nobody=True))
    assert torch.equal(state.model, before)
    assert steps.tolist() == [0.0] * CLIENTS
    assert passed <= 1


@every_algorithm
def test_clients_may_change_places(algorithm: str) -> None:
    """Unless the rule says that it goes by the order of clients."""
    rule = build_algorithm(algorithm)
    name = algorithm.partition("+")[0]
    order = np.array([3, 0, 4, 1, 2])

    def relabel(given: Arrivals) -> Arrivals:
        return Arrivals(
            given.delivered[order], given.updates[order], given.models[order],
            given.staleness[order], given.weights[order], given.client_lr, given.round,
        )  # fmt: skip

    one, other = begin(rule), begin(rule)
    plain, moved = play(rule, one, range(1, ROUNDS)), play(rule, other, range(1, ROUNDS), relabel)
    if "order of clients" in (inspect.getdoc(registry[name]) or ""):
        assert one.version == other.version
        return
    for (steps, passed, model), (others, too, same) in zip(plain, moved, strict=True):
        assert np.array(steps)[order] == pytest.approx(others, rel=1e-12)
        assert passed == too
        assert model == pytest.approx(same, rel=1e-12)


@every_algorithm
def test_rows_may_be_those_of_the_clients_that_arrived_alone(algorithm: str) -> None:
    def sparse(given: Arrivals) -> Arrivals:
        updates, models = (
            {m: rows[m] for m in given.clients} for rows in (given.updates, given.models)
        )
        return Arrivals(
            given.delivered, updates, models if rule.needs_models else {}, given.staleness,
            given.weights, given.client_lr, given.round,
        )  # fmt: skip

    rule = build_algorithm(algorithm)
    plain = play(rule, begin(rule), range(1, ROUNDS))
    assert play(rule, begin(rule), range(1, ROUNDS), sparse) == plain


@every_algorithm
@pytest.mark.parametrize("at", [1, 4, 9])
def test_what_a_rule_remembers_can_be_saved_at_any_time(algorithm: str, at: int) -> None:
    rule = build_algorithm(algorithm)
    whole = begin(rule)
    expected = play(rule, whole, range(1, ROUNDS))
    first, second = begin(rule), begin(rule)
    play(rule, first, range(1, at))
    saved = {name: tensor.clone() for name, tensor in first.to_tensors().items()}
    play(rule, first, range(at, ROUNDS))
    copy_into(second.to_tensors(), saved)
    assert play(rule, second, range(at, ROUNDS)) == expected[at - 1 :]


@every_algorithm
def test_every_rule_trains(algorithm: str) -> None:
    with Federation(tiny(algorithm=algorithm, algorithm_options={})) as run:
        records = list(run)
        assert run.server.served.isfinite().all()
    assert np.isfinite([record.loss for record in records]).all()
    if not algorithm.endswith("eager"):  # whose clients go on training while they wait
        everybody = build_algorithm(algorithm).everybody_trains
        assert all(record.trained == 4 for record in records) == everybody


# ---------------------------------------------------------------------------------- registration


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_is_one_file_and_its_docstring_the_documentation(name: str) -> None:
    kind = registry[name]
    text = inspect.getdoc(kind) or ""
    assert text.splitlines()[0].endswith(".")
    assert "**Deviations" in text
    assert "Examples\n--------\n>>> " in text
    assert Path(inspect.getfile(kind)).stem == name
    assert kind.__final__  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="frozen"):
        build_algorithm(name).server_lr = 2  # type: ignore[attr-defined]
    shown = CliRunner().invoke(app, ["list", "algorithms"])
    assert re.search(rf"^ *{name} ", shown.stdout, re.MULTILINE)
    assert f"{name} (algorithm)" in CliRunner().invoke(app, ["list", name]).stdout


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name in NAMES for field in sorted(_options_of(name))]
)
def test_bad_options_are_refused_by_name(name: str, field: str) -> None:
    text = documented(registry[name], field)
    number = re.match(r"(float|int)\b", text)
    outside, inside = outside_and_inside(text) if number else ([], [])
    assert not number or outside, f"{name} documents no range for {field}"
    wrong: list[Any] = [math.nan, math.inf, True, np.True_, "0.5", "no such", b"1", [0.5], {}, 1j]
    wrong += [*outside, *([1.5, 10**30] if number and number.group(1) == "int" else [])]
    for value in wrong:
        for build in (
            lambda value: build_algorithm(name, {field: value}),
            lambda value: tiny(algorithm=name, algorithm_options={field: value}),
        ):
            with pytest.raises(ParameterError, match=f"^{field} must be .*, got ") as caught:
                build(value)
            assert "\n" not in str(caught.value)
    for value in inside:
        if field != "staleness_b":  # it belongs to one form of staleness
            build_algorithm(name, {field: int(value) if value.is_integer() else value})


@pytest.mark.parametrize("name", NAMES)
def test_options_of_others_are_refused_with_their_home(name: str) -> None:
    everything = {field for each in NAMES for field in _options_of(each)}
    own = {field for each in read_algorithm(name) for field in _options_of(each)}
    for field in everything - own:
        with pytest.raises(ParameterError, match=f"^{field} belongs to algorithm '.* not to "):
            build_algorithm(name, {field: 1})
    with pytest.raises(UnknownNameError, match="no algorithm has an option 'hazzard'"):
        build_algorithm(name, {"hazzard": 1})


def test_wrappers_wrap_rules_alone() -> None:
    for name in WRAPPERS:
        kind: Any = registry[name]
        for value in (None, "fedbuff", object()):
            with pytest.raises(ParameterError, match="rule"):
                kind(rule=value)
        with pytest.raises(ParameterError, match="needs a value for 'rule'"):
            kind()
