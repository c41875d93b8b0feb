"""Families: every one opens, fits its clients, and is unlike the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from freshband._policy import parse_policy
from freshband.arena import FAMILIES, family, pick_families, trace_family
from freshband.arena.against import Against, is_deterministic
from freshband.channels import open_air
from freshband.errors import ParameterError, UnknownNameError
from freshband.simulation import simulate

LINKS = Path(__file__).parent.parent / "channels" / "data" / "links.csv"
STATES = LINKS.with_name("states.csv")


@pytest.mark.parametrize("name", FAMILIES)
def test_instances_of_a_family_differ_and_have_room_for_its_clients(name: str) -> None:
    one = family(name)
    model = one.model()
    assert one.clients <= model.n_channels
    assert one.about
    drawn = [open_air(model, one.rounds, seed=0, run=run).block(50).states for run in (0, 1)]
    assert not np.array_equal(*drawn)


def test_no_two_families_are_the_same() -> None:
    told = {(repr(each.model()), each.clients, each.rounds) for each in FAMILIES.values()}
    assert len(told) == len(FAMILIES)


def test_the_families_that_the_literature_asks_for_exist() -> None:
    sizes = {(each.model().n_channels, each.clients) for each in FAMILIES.values()}
    assert sizes >= {(5, 2), (6, 4), (30, 20), (100, 50), (1000, 300)}
    rounds = {each.rounds for each in FAMILIES.values()}
    assert {250, 1_000_000} <= rounds
    assert FAMILIES["stationary"].channels == "stationary"


def test_unknown_families_get_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown family 'jamer-sweep'; did you mean 'jam"):
        pick_families(["stationary", "jamer-sweep"])
    with pytest.raises(UnknownNameError, match=r"unknown family 'xyz-\*'"):
        pick_families(["xyz-*"])
    with pytest.raises(ParameterError, match="at least one family"):
        pick_families([])
    with pytest.raises(ParameterError, match="did you mean 'cucb'"):
        family("against-cucbb").model()


def test_a_table_against_a_policy_lets_nothing_of_it_through() -> None:
    result = simulate(family("against-cucb").model(), "cucb,random", rounds=150, runs=2)
    assert int(result.delivered.sel(policy="cucb").max()) == 0
    assert int(result.delivered.sel(policy="random").min()) > 50
    means = open_air(Against(policy="cucb"), rounds=150, seed=0).block(150).means
    assert ((means == 0).sum(axis=1) == 2).all()


def test_tables_are_against_policies_that_can_be_foreseen() -> None:
    assert is_deterministic("cucb")
    assert not is_deterministic("random")
    assert parse_policy("oracle").scheduler.sees_channels
    assert not is_deterministic("oracle")
    with pytest.raises(ParameterError, match="policy must make no random choices"):
        family("against-random").model()


def test_recordings_begin_anywhere_with_their_columns_in_any_order() -> None:
    shared, links = trace_family(STATES, clients=9, rounds=40), trace_family(LINKS, per_client=True)
    assert shared.name == "trace-states"
    assert shared.clients == shared.model().n_channels  # no more than it has
    assert links.clients == links.model().n_clients  # type: ignore[attr-defined]
    drawn = {
        open_air(shared.model(), 40, seed=0, run=run).block(40).states.tobytes() for run in range(8)
    }
    assert len(drawn) > 4
