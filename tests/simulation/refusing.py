"""Expect errors the way freshband promises them: of one class, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from freshband.errors import FreshbandError


@contextmanager
def refused(kind: type[FreshbandError], message: str) -> Iterator[None]:
    """Expect exactly this class of error, with one line that matches ``message``."""
    with pytest.raises(kind, match=message) as caught:
        yield
    assert type(caught.value) is kind
    assert len(str(caught.value).splitlines()) == 1
