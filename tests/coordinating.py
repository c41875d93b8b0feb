"""Coordinators in the middle of a run, and all that one knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from freshband import Coordinator


def started(policy: str = "cucb", rounds: int = 20, **options: Any) -> Coordinator:
    coordinator = Coordinator(policy, n_clients=2, n_channels=4, seed=1, **options)
    for _ in range(rounds):
        coordinator.observe(coordinator.plan() < 2)  # channels 0 and 1 deliver
    return coordinator


def content(coordinator: Coordinator, folder: Path) -> dict[str, Any]:
    """Everything a coordinator knows, by way of its file."""
    path = folder / "content.npz"
    coordinator.save(path)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name].tolist() for name in archive.files}


def watch_changes(tmp_path: Path) -> Iterator[Callable[[Coordinator], None]]:
    """Watch coordinators: nothing about them may have changed by the end of the test."""
    watched: list[tuple[Coordinator, dict[str, Any], Any]] = []

    def watch(coordinator: Coordinator) -> None:
        before = content(coordinator, tmp_path)
        watched.append((coordinator, before, Coordinator.load(tmp_path / "content.npz")))

    yield watch
    for coordinator, before, twin in watched:
        assert content(coordinator, tmp_path) == before
        for _ in range(5):  # nor does anything behave differently
            plans = [c.plan() if c.pending is None else c.pending for c in (coordinator, twin)]
            np.testing.assert_array_equal(*plans)
            assert coordinator.observe([True, False]) == twin.observe([True, False])
