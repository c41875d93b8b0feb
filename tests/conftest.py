"""Settings of the whole suite: property-based tests draw the same examples every time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from freshband import _plugins

settings.register_profile("freshband", derandomize=True, deadline=None)
settings.load_profile("freshband")


def pytest_collection_finish() -> None:
    """Spare Python's collector from searching all that was imported, again and again.

    And leave torch one thread: two on a busy machine wait for each other longer than they compute.
    """
    gc.collect()
    gc.freeze()
    if "torch" in sys.modules:  # tests imported it
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def _imports_of_its_own() -> Iterator[None]:
    """Files that a test imports are not noted in the results of the tests after it."""
    before = list(_plugins._imported)
    yield
    _plugins._imported[:] = before
