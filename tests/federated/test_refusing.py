"""Updates that cannot be taken as they are: refused, altered, clipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from freshband.federated import Federation
from tests.federated.playing import KINDS, PERFECT, assert_identical, play, tiny

# ------------------------------------------------------------------------------ refused updates

BROKEN: dict[str, Any] = {
    "NaN": lambda update: torch.where(torch.arange(len(update)) == 7, float("nan"), update),
    "infinite": lambda update: torch.where(torch.arange(len(update)) == 7, -float("inf"), update),
    "too short": lambda update: update[1:],
    "another shape": lambda update: update[None],
    "an array": lambda update: update.numpy(),
    "text": lambda update: "update",
    "a number": lambda update: 0.0,
    "complex": lambda update: update.to(torch.complex128),
    "sparse": lambda update: update.to_sparse(),
}


@pytest.mark.parametrize("kind", ["async", "priority", "fedasync", "fedbuff", "fedavg"])
@pytest.mark.parametrize("how", ["NaN", "too short"])
def test_a_refused_update_counts_as_not_delivered(how: str, kind: str) -> None:
    settings = tiny(rounds=30, **KINDS[kind])
    bad = 1

    def alter(t: int, client: int, update: torch.Tensor) -> Any:
        return BROKEN[how](update) if client == bad else None

    with Federation(settings, alter_update=alter) as run:
        again = False
        for t in range(1, settings.rounds + 1):
            before = run.pending.updates[bad].clone()
            model = run.state.model.clone()
            record = run.step()
            if not record.refused[bad]:  # else the row may hold what was refused
                trained = t == 1 or again or settings.algorithm == "fedavg"
                assert torch.equal(run.pending.updates[bad], before) is not trained
            assert not record.delivered[bad]
            assert not record.refused[[0, 2, 3]].any()
            assert record.ages[bad] == t + 1
            assert (record.steps[bad], record.staleness[bad]) == (0, -1)
            assert torch.isfinite(run.state.model).all()
            if not record.delivered.any():
                assert torch.equal(run.state.model, model)
            again = bool(record.refused[bad])  # it gets the model, and trains on it
        assert run.round == settings.rounds


@pytest.mark.parametrize("how", BROKEN)
def test_whatever_is_broken_is_refused(how: str) -> None:
    settings = tiny(matching="priority", **PERFECT)
    records, model = play(settings, alter_update=lambda t, client, update: BROKEN[how](update))
    for record in records:
        assert record.refused.all()
        assert not record.delivered.any()
        assert record.trained == 4
        assert (record.channel_means == 0.5).all()  # nothing was learnt of the channels
    with Federation(settings) as run:
        assert torch.equal(model, run.state.model)


def test_a_refused_update_tells_nothing_of_its_channel() -> None:
    settings = tiny(rounds=30)
    records, _ = play(settings, alter_update=lambda t, client, update: "" if client < 2 else None)
    tries, wins = np.zeros(6), np.zeros(6)
    for record in records:
        told = ~record.refused
        np.add.at(tries, record.assignment[told], 1)
        np.add.at(wins, record.assignment[record.delivered], 1)
        means = np.where(tries > 0, wins / np.maximum(tries, 1), 0.5)
        np.testing.assert_allclose(record.channel_means, means, atol=1e-12)
    assert sum(record.refused.sum() for record in records) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_clients_that_diverge_are_refused_and_the_run_goes_on(kind: str) -> None:
    options = {**KINDS[kind], "client_lr": 1e200, "server_lr": 1.0}
    records, model = play(tiny(rounds=15, **options))
    assert torch.isfinite(model).all()
    refused = np.array([record.refused for record in records])
    assert refused.any()
    for record in records:
        assert not (record.refused & record.delivered).any()
        assert np.isfinite(record.weights).all()
        if tiny(**options).contribution_rule is not None:
            assert np.isfinite(record.contributions).all()
    assert records[-1].round == 15


def test_an_update_may_carry_its_own_history() -> None:
    """What a user's function computes with gradients on is a tensor like any other."""

    def alter(t: int, client: int, update: torch.Tensor) -> torch.Tensor:
        return 1.0 * update.requires_grad_()

    settings = tiny(matching="priority", weights="contribution")
    (altered, model), (plain, other) = play(settings, alter_update=alter), play(settings)
    assert_identical(altered, plain)
    assert torch.equal(model, other)
    assert not model.requires_grad


def test_a_function_that_returns_nothing_changes_nothing() -> None:
    settings = tiny(matching="priority", weights="contribution")
    # what it sees is a copy: it may scribble on it
    seen = play(settings, alter_update=lambda t, client, update: [update.zero_(), None][1])
    plain = play(settings)
    assert_identical(seen[0], plain[0])
    assert torch.equal(seen[1], plain[1])


def test_what_the_function_returns_is_what_the_server_gets() -> None:
    seen: list[tuple[int, int]] = []

    def alter(t: int, client: int, update: torch.Tensor) -> torch.Tensor:
        seen.append((t, client))
        return update / 2

    settings = tiny(algorithm="fedavg", **PERFECT)
    records, model = play(settings, alter_update=alter)
    expected, other = play(tiny(algorithm="fedavg", server_lr=0.5, **PERFECT))
    assert seen == [(t, client) for t in range(1, 13) for client in range(4)]
    assert (model - other).abs().max() < 1e-12
    for record, same in zip(records, expected, strict=True):
        assert record.delivered.all()
        assert record.loss == pytest.approx(same.loss, abs=1e-12)


# ------------------------------------------------------------------------------ clipping


def test_clipping_limits_the_change_an_update_asks_for() -> None:
    settings = tiny(clip_norm=0.25, weights="contribution", rounds=20)
    shortened = 0
    with Federation(settings) as run, Federation(tiny(rounds=20)) as free:
        first, longer = run.step(), free.step()
        for client in np.flatnonzero(first.delivered):
            asked = settings.client_lr * free.pending.updates[client].norm()
            got = settings.client_lr * run.pending.updates[client].norm()
            assert float(got) == pytest.approx(min(float(asked), 0.25), rel=1e-12)
            along = run.pending.updates[client] / got - free.pending.updates[client] / asked
            assert along.abs().max() < 1e-12
        assert np.array_equal(first.delivered, longer.delivered)
        valued = run.server.valuation
        assert valued is not None
        for record in run:
            for client in np.flatnonzero(record.delivered):
                length = settings.client_lr * float(valued.gradients[client].norm())
                assert length <= 0.25 * (1 + 1e-12)
                shortened += length > 0.25 * (1 - 1e-12)
    assert shortened > 5


def test_a_clipped_update_and_its_model_belong_together() -> None:
    settings = tiny(clip_norm=0.1, algorithm="fedasync", contribution="paper", rounds=8)
    with Federation(settings) as run:
        valued, downloads = run.server.valuation, [run.state.model.clone()] * 4
        assert valued is not None
        for _ in range(settings.rounds):
            for client in np.flatnonzero(run.state.receivers):
                downloads[client] = run.state.model.clone()
            record = run.step()
            for client in range(4):
                expected = downloads[client] - settings.client_lr * run.pending.updates[client]
                assert (run.pending.trained[client] - expected).abs().max() < 1e-13
                if record.delivered[client]:
                    assert torch.equal(valued.models[client], run.pending.trained[client])
                    assert torch.equal(valued.gradients[client], run.pending.updates[client])


def test_a_wide_limit_clips_nothing() -> None:
    free, clipped = play(tiny()), play(tiny(clip_norm=1e6))
    assert_identical(free[0], clipped[0])
    assert torch.equal(free[1], clipped[1])
