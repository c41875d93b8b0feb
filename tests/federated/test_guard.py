"""Updates far longer than those of others are refused, whatever the server rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freshband import Coordinator
from freshband.federated import Federation, RoundRecord
from freshband.federated._state import Pending
from freshband.federated.algorithms import build_algorithm
from freshband.federated.inspection import longest_allowed
from freshband.federated.result import collect_records, measure_training, summarise_training
from freshband.federated.server import FederatedServer
from tests.federated.playing import KINDS, PERFECT, assert_identical, every_kind, play, tiny

_LENGTH = st.floats(1e-6, 1e9)
_HEARD = st.tuples(  # a client's last updates, the latest of which may be zero
    st.lists(st.just(np.nan) | _LENGTH, min_size=3, max_size=3), _LENGTH, st.just(0.0) | _LENGTH
).map(lambda drawn: [*drawn[0], *drawn[1:]])


def open_server(clients: int = 4, **options: Any) -> FederatedServer:
    """Return a server with a model of length 4, all of whose clients are heard."""
    return FederatedServer(
        torch.ones(16),
        coordinator=Coordinator("random", clients, clients),
        algorithm=build_algorithm("renorm"),
        rounds=100,
        client_lr=0.5,
        payload=64,
        **options,
    )


def hear(server: FederatedServer, lengths: dict[int, float]) -> RoundRecord:
    """Play a round in which updates of these lengths arrive."""
    plan = server.plan()
    version = server.hand_out(plan.receivers.tolist())
    row = torch.ones(16) / 4 / server.client_lr
    sent = {client: Pending(row * length, version) for client, length in lengths.items()}
    outcome = [client in lengths or None for client in range(server.coordinator.n_clients)]
    return server.finish(plan, outcome, sent)


def refused_for_length(record: RoundRecord) -> list[int]:
    return [] if record.too_long is None else np.flatnonzero(record.too_long).tolist()


def test_the_limit_is_five_times_the_median_of_this_round_included() -> None:
    server = open_server()
    record = hear(server, {0: 1.0, 1: 2.0, 2: 9.9, 3: 10.1})
    assert refused_for_length(record) == [3]
    assert record.refused.tolist() == [False, False, False, True]
    assert record.delivered.tolist() == [True, True, True, False]
    assert (record.steps[3], record.staleness[3]) == (0, -1)


def test_a_model_of_zeros_does_not_open_the_door() -> None:
    """A linear model may begin with zeros; two that arrive are held against each other."""
    lengths = np.array([[np.nan, 1e4], [np.nan, 2.0], [np.nan, np.nan]])
    assert longest_allowed(lengths, 5, torch.zeros(4)) == 10
    assert longest_allowed(lengths[2:], 5, torch.zeros(4)) == np.inf


def test_one_alone_in_the_first_round_is_held_against_the_model() -> None:
    for length, refused in ((19.9, []), (20.1, [0])):  # the model is 4 long
        assert refused_for_length(hear(open_server(), {0: length})) == refused
        assert refused_for_length(hear(open_server(), {0: length, 1: 0.1})) == refused


def test_a_client_that_is_heard_more_often_has_no_more_votes() -> None:
    server = open_server()
    hear(server, {client: 1.0 for client in range(4)})
    for _ in range(30):  # refused, so it is urgent, and sends in every round
        assert refused_for_length(hear(server, {3: 100.0})) == [3]


def test_where_all_updates_grow_the_limit_grows_with_them() -> None:
    server = open_server()
    for _ in range(5):
        hear(server, {client: 1.0 for client in range(4)})
    assert refused_for_length(hear(server, {0: 6.0})) == [0]
    assert refused_for_length(hear(server, {1: 6.0, 2: 6.0})) == []
    assert refused_for_length(hear(server, {0: 31.0})) == [0]


def test_where_first_updates_are_long_the_limit_follows_the_later_ones() -> None:
    """An attacker that sends ten times its update; the first of all are ten times as long."""
    server, honest = open_server(10), range(2, 10)
    record = hear(server, {0: 100.0, 1: 100.0} | {client: 10.0 for client in honest})
    assert refused_for_length(record) == [0, 1]
    for _ in range(10):
        record = hear(server, {0: 10.0, 1: 10.0} | {client: 1.0 for client in honest})
        assert refused_for_length(record) == [0, 1]
        assert record.delivered.sum() == 8


def test_a_late_first_update_is_refused_once() -> None:
    server = open_server()
    hear(server, {client: 10.0 for client in range(3)})
    hear(server, {client: 1.0 for client in range(3)})
    assert refused_for_length(hear(server, {3: 10.0})) == [3]
    assert hear(server, {3: 1.0}).delivered[3]


@given(
    honest=st.lists(_HEARD, min_size=3, max_size=8),
    liars=st.lists(_HEARD, max_size=7),
    limit=st.floats(1, 10),
)
def test_a_minority_cannot_raise_the_limit_above_honest_lengths(
    honest: list[list[float]], liars: list[list[float]], limit: float
) -> None:
    heard = [*liars[: len(honest) - 1], *honest]
    votes = sorted(
        max(sorted(length for length in row if length > 0)[-2:][0], row[-1]) for row in honest
    )
    found = longest_allowed(np.array(heard), limit, torch.ones(4))
    assert found <= limit * votes[(len(heard) - 1) // 2]


def test_an_update_of_zero_does_not_take_a_vote_away() -> None:
    """Otherwise two that lie would outvote six that have nothing more to learn."""
    server = open_server(8)
    hear(server, {client: 1.0 for client in range(8)})
    quiet = {client: 0.0 for client in range(2, 8)}
    assert refused_for_length(hear(server, {0: 100.0, 1: 100.0, **quiet})) == [0, 1]


def test_clients_that_learnt_nothing_have_no_vote() -> None:
    record = hear(open_server(), {0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0})
    assert record.delivered.all()


def test_it_can_be_set_and_switched_off() -> None:
    lengths = {0: 1.0, 1: 1.0, 2: 1.0, 3: 15.0}
    assert hear(open_server(length_limit=20), lengths).delivered.all()
    assert hear(open_server(length_limit=0), {**lengths, 3: 1e15}).delivered.all()
    assert refused_for_length(hear(open_server(length_limit=2), {**lengths, 2: 2.1})) == [2, 3]


@every_kind
def test_an_attacker_from_the_first_round_is_kept_out(kind: str) -> None:
    """It sends 10^4 everywhere: without a guard the model is gone after a round."""
    settings = tiny(rounds=20, **KINDS[kind], **PERFECT, length_limit=20)
    ruined: dict[float, float] = {}
    for limit in (20, 0):
        records, model = play(
            tiny(rounds=20, **KINDS[kind], **PERFECT, length_limit=limit),
            alter_update=lambda t, c, update: torch.full_like(update, 1e4) if c == 2 else None,
        )
        ruined[limit] = float(model.abs().max())
        if limit:
            assert all(refused_for_length(record) == [2] for record in records)
            assert not any(record.delivered[2] for record in records)
            result = collect_records(records, settings)
            assert int(measure_training(result).too_long) == settings.rounds
            assert summarise_training(result)["kept_out"] == [2]
            few = collect_records(records[:4], settings)  # too few to say so
            assert summarise_training(few)["kept_out"] == []
    assert ruined[20] < 10
    assert ruined[0] > 100


def test_nothing_changes_where_nothing_is_refused() -> None:
    (free, model), (guarded, other) = (
        play(tiny(rounds=30, matching="priority", length_limit=limit)) for limit in (0, 1e6)
    )
    assert_identical(free, guarded)
    assert torch.equal(model, other)
    assert all(record.too_long is None for record in guarded)


def test_lengths_are_part_of_a_checkpoint() -> None:
    settings = tiny(rounds=40, length_limit=1.2)  # refuses honest ones too
    with Federation(settings) as whole, Federation(settings) as first:
        records = list(whole)
        before = [first.step() for _ in range(9)]
        state, facts = first.checkpoint()
        with Federation.restore({n: each.clone() for n, each in state.items()}, facts) as second:
            assert_identical(records, [*before, *second])
    assert sum(len(refused_for_length(record)) for record in records) > 5


@pytest.mark.parametrize(
    ("rule", "moved"), [("median", [-0.5, -1.5]), ("trimmed", [-0.5, -1.5]), ("bounded", None)]
)
def test_a_middle_of_what_arrived(rule: str, moved: list[float] | None) -> None:
    """Three honest clients and one far away; by hand."""
    updates = torch.tensor([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0], [-900.0, 1200.0]])
    found = build_algorithm(rule).middle(updates)  # type: ignore[attr-defined]
    if moved is not None:
        assert (-0.5 * found).tolist() == pytest.approx([moved[0], -0.5 * 3.5])
        return
    lengths = updates.norm(dim=1)
    shortened = updates * (lengths.sort().values[1] / lengths).clamp(max=1)[:, None]
    assert found.tolist() == pytest.approx(shortened.mean(dim=0).tolist())
    assert float(found.norm()) <= float(lengths.sort().values[1])


@pytest.mark.parametrize("rule", ["median", "trimmed", "bounded"])
def test_one_arrival_alone_is_taken_as_it_is(rule: str) -> None:
    alone = torch.tensor([[3.0, -4.0]])
    assert build_algorithm(rule).middle(alone).tolist() == [3.0, -4.0]  # type: ignore[attr-defined]
