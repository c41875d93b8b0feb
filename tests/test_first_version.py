"""What the first version wrote is still read, and goes on as it did there.

The files in `tests/data/first-version` were written by that version (commit 29b7981).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freshband import Coordinator

FILES = Path(__file__).parent / "data" / "first-version"
COORDINATORS: dict[str, Any] = json.loads((FILES / "coordinators.json").read_text())


def step(coordinator: Coordinator, t: int) -> tuple[list[int], int | None]:
    """Play round t over fixed channels; every eleventh acknowledgement of client 0 is lost."""
    worth = [0.1 * ((t + i) % 5) for i in range(coordinator.n_clients)]
    plan = coordinator.plan(worth if coordinator.policy.needs_contributions else None).tolist()
    delivered: list[bool | None] = [bool((k * 7 + t * 3 + t // 60) % 5) for k in plan]
    if t % 11 == 0:
        delivered[0] = None
    return plan, coordinator.observe(delivered)


@pytest.mark.parametrize("policy", COORDINATORS)
def test_a_saved_coordinator_goes_on(policy: str) -> None:
    before = COORDINATORS[policy]
    coordinator = Coordinator.load(FILES / before["file"])
    assert coordinator.round == 200
    assert [step(coordinator, t)[0] for t in range(201, 241)] == before["plans"]
    assert [step(coordinator, t)[1] for t in range(241, 301)] == before["alarms"]
