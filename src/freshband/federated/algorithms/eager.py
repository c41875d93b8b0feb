"""A wrapper: clients whose update was lost go on training until they are heard."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field

from freshband.federated.algorithms.base import Wrapper, register


@final
@register("eager")
class Eager(Wrapper):
    """A client whose update was lost goes on training meanwhile, and sends all it has come to.

    Without it such a client only sends its update again, as in the paper. It makes the local steps
    of a round again in every further round, until it has worked for ``local_rounds`` of them.

    Parameters
    ----------
    rule : Rule
        The rule that moves the model.
    local_rounds : int >= 2, default 4
        The number of rounds a client works on a model it was given. A client that is seldom heard
        must not walk too far away from the others.

    Notes
    -----
    **Deviations.** The paper does not have it: its clients wait.

    Examples
    --------
    >>> from freshband.federated.algorithms import build_algorithm
    >>> build_algorithm("fixed+eager").training_rounds
    4
    """

    local_rounds: Annotated[int, Field(ge=2)] = 4

    @property
    def training_rounds(self) -> int:
        """As many as the option says."""
        return self.local_rounds

    def unused(self) -> dict[str, str]:
        """Nobody waits where everybody gets a new model in every round."""
        idle = self.rule.unused()
        if self.rule.everybody_trains:
            idle["eager"] = (
                "eager belongs to a rule whose clients send again what was lost, not to one under "
                f"which everybody trains in every round, got local_rounds {self.local_rounds}"
            )
        return idle
