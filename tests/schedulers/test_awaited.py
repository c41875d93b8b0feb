"""Outcomes under way count towards what will be known, by the share of late ones that ever come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband.schedulers._awaited import arrive, fade, narrowed, start_awaited, wait

NOISE, SPREAD = 0.25, 0.3


def test_nothing_under_way_changes_nothing() -> None:
    assert narrowed(start_awaited(2), 0, SPREAD, NOISE) == SPREAD


def test_each_try_narrows_only_its_channel() -> None:
    awaited = start_awaited(2)
    widths = [SPREAD]
    for _ in range(5):
        wait(awaited, 0)
        widths.append(narrowed(awaited, 0, SPREAD, NOISE))
    assert (np.diff(widths) < 0).all()
    assert narrowed(awaited, 1, SPREAD, NOISE) == SPREAD


def test_if_all_come_a_try_is_worth_an_outcome() -> None:
    """The variance after n outcomes is 1 / (1 / s^2 + n / noise)."""
    awaited = start_awaited(1)
    for _ in range(1000):
        wait(awaited, 0)
        arrive(awaited, 0, 0)
    assert awaited.tries[0] == pytest.approx(0)
    wait(awaited, 0)
    wait(awaited, 0)
    expected = (1 / SPREAD**2 + 2 / NOISE) ** -0.5
    assert narrowed(awaited, 0, SPREAD, NOISE) == pytest.approx(expected, rel=1e-3)


def test_tries_that_nobody_answers_are_given_up() -> None:
    awaited = start_awaited(1)
    wait(awaited, 0)
    for _ in range(200):
        fade(awaited)
    assert narrowed(awaited, 0, SPREAD, NOISE) == pytest.approx(SPREAD, rel=1e-3)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=60))
def test_it_only_ever_narrows(steps: list[tuple[int, int]]) -> None:
    awaited = start_awaited(1)
    for what, delay in steps:
        if what == 0:
            wait(awaited, 0)
        elif what == 1:
            arrive(awaited, 0, delay)
        else:
            fade(awaited)
        assert awaited.tries[0] >= 0
        assert 0 < narrowed(awaited, 0, SPREAD, NOISE) <= SPREAD
