"""FedAvg: everybody trains in every round, and what is lost is thrown away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, final, get_args

from pydantic import Field

from freshband.federated.algorithms._weighted import WeightedMean
from freshband.federated.algorithms.base import Arrivals, Moved, Rule, register, registry

if TYPE_CHECKING:
    import torch

_Weighting = Literal["renorm", "fixed", "mean_one", "uniform", "literal"]
_WEIGHTINGS: tuple[str, ...] = get_args(_Weighting)


@final
@register("fedavg")
class FedAvg(Rule):
    """Everybody gets the model and trains in every round; what is lost is thrown away.

    No update is stale, and nobody sends one again.

    Parameters
    ----------
    weighting : {"renorm", "fixed", "mean_one", "uniform", "literal"}, default "renorm"
        The rule by which the updates that arrived become steps.
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Notes
    -----
    **Deviations.** Clients send over the channels of this package, and lost updates are left out.

    Examples
    --------
    >>> FedAvg(weighting="fixed").everybody_trains
    True

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    AISTATS 2017.
    """

    weighting: _Weighting = "renorm"
    server_lr: Annotated[float, Field(gt=0)] = 1.0

    @property
    def everybody_trains(self) -> bool:
        """Everybody does."""
        return True

    @property
    def weighs_updates(self) -> bool:
        """As the weighting has it."""
        return self._mean().weighs_updates

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Moved:
        """Take the mean of what arrived."""
        return self._mean().apply(model, memory, arrivals)

    def _mean(self) -> WeightedMean:
        kind = cast(type[WeightedMean], registry[self.weighting])
        return kind(server_lr=self.server_lr)
