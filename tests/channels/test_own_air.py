"""Channel models of the user's own that break the rules."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import freshband
from freshband.channels.base import Block, open_air
from freshband.channels.base import registry as channels
from freshband.errors import ParameterError, RuleError
from freshband.parameters import Parameters


class OwnAir(Parameters):
    """Channels of the user's own; ``fault`` names what is wrong with their blocks."""

    fault: str = ""
    n_channels: int = 3
    has_means: ClassVar[bool] = True
    breakpoints: ClassVar[NDArray[np.int64]] = np.zeros(0, np.int64)
    changed: ClassVar[NDArray[np.bool_]] = np.zeros((0, 3), np.bool_)

    def start(self, rounds: int, structure: Any, states: Any) -> Any:
        return self

    def block(self, n: int) -> Any:
        states, means = np.ones((n, 3), np.uint8), np.full((n, 3), 0.5)
        blocks: dict[str, Any] = {
            "": Block(states, means),
            "narrow": Block(states[:, :1].copy(), means),
            "order": Block(np.asfortranarray(states), means),
            # Wrong types are what is tested.
            "kind": Block(states.astype(np.int64), means),  # type: ignore[arg-type]  # on purpose
            "values": Block(2 * states, means),
            "none": None,
        }
        return blocks[self.fault]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("narrow", r"states must be a C-contiguous array of uint8 of shape \(20, 3\)"),
        ("order", "states must be a C-contiguous array of uint8"),
        ("kind", "got int64 of shape"),
        ("values", "states must be 0 or 1, got 2"),
        ("none", "block must return a Block"),
    ],
)
def test_blocks_that_are_none_are_refused(fault: str, message: str) -> None:
    simulated = freshband.simulate(OwnAir(), ["random"], rounds=20, runs=1)
    assert float(simulated.mean_age.squeeze()) == 1.0
    with pytest.raises(RuleError, match=message):
        freshband.simulate(OwnAir(fault=fault), ["random"], rounds=20, runs=1)
    with pytest.raises(RuleError, match=message):
        open_air(OwnAir(fault=fault), rounds=20, seed=0).block(20)


def test_a_channel_model_that_lacks_something_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    channels.names()
    monkeypatch.setattr(channels, "_things", dict(channels._things))
    channels.register("still")(type("Still", (Parameters,), {"__module__": __name__}))
    with pytest.raises(ParameterError, match="'still' lacks n_channels, has_means, start"):
        freshband.simulate("still", ["random"])
