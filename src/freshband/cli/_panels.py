"""Headings under which the help of training commands lists its options."""

from __future__ import annotations

from typing import Final

LEARNED: Final = "What is learned"
AIR: Final = "How updates travel"
RUN: Final = "The run"
KEPT: Final = "What is kept"
