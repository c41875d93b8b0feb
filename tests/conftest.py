"""Settings of the whole suite: property-based tests draw the same examples every time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from freshband import _plugins

settings.register_profile("freshband", derandomize=True, deadline=None)
settings.load_profile("freshband")


def pytest_collection_finish() -> None:
    """Spare Python's collector from searching all that was imported, again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _imports_of_its_own() -> Iterator[None]:
    """Files that a test imports are not noted in the results of the tests after it."""
    before = list(_plugins._imported)
    yield
    _plugins._imported[:] = before
