"""One torch thread: two on a busy machine wait for each other longer than they compute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

collect_ignore = ["warmed.py"]  # it works when it is imported


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
