"""The policy that is used where none is specified."""

from typing import Final

DEFAULT_POLICY: Final = "bayes"
