"""Compiling ahead: it changes nothing, and covers what a coordinator calls later."""

from __future__ import annotations

import numpy as np
import pytest

import freshband
from freshband import Coordinator
from freshband.errors import UnknownNameError
from freshband.fleet._learning import observe, observe_late
from freshband.fleet._planning import plan
from tests.theory.margins import needs_compiler


@pytest.mark.parametrize("policy", ["cucb", "cucb+priority"])
def test_a_warm_coordinator_is_like_a_cold_one(policy: str) -> None:
    assert (
        Coordinator(policy, 3, 4, warm_up=True).to_bytes() == Coordinator(policy, 3, 4).to_bytes()
    )


@needs_compiler
def test_nothing_is_left_to_compile() -> None:
    freshband.warm_up("cucb", silence="loss", max_delay=1)
    kernels = (plan, observe, observe_late)
    before = [len(kernel.signatures) for kernel in kernels]
    coordinator = Coordinator("cucb", 3, 4, silence="loss", max_delay=1)
    for _ in range(4):
        coordinator.plan(present=[True, False, True], available=np.ones(4, bool))
        coordinator.observe([True, None, None])
        coordinator.observe([None, None, False], round=coordinator.round)
    coordinator.join("Eve")
    coordinator.leave(0)
    coordinator.plan()
    coordinator.observe([True, False], clients=[1, 3])
    restored = Coordinator.from_bytes(coordinator.to_bytes())
    restored.plan()
    restored.observe([True, None], clients=[1, 3])
    assert [len(kernel.signatures) for kernel in kernels] == before


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cucb'"):
        freshband.warm_up("cucbb")
