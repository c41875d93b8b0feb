"""FedBuff: updates gather in a buffer, and the model moves when it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.federated.algorithms._discounted import Discounted
from freshband.federated.algorithms.base import Arrivals, Moved, register

if TYPE_CHECKING:
    import torch


class _Memory(NamedTuple):
    """What gathered since the last step: the discounted sum, and the number of updates in it."""

    buffer: torch.Tensor
    buffered: NDArray[np.int64]  # shape (1,)


@final
@register("fedbuff")
class FedBuff(Discounted):
    """Updates gather in a buffer of K; a full one moves the model by `η_s η / K Σ d_i G_i`.

    A version of the model passes with each such step, and staleness counts those.

    Parameters
    ----------
    buffer_size : int >= 1, default 10
        The number of updates in a full buffer, K.
    staleness : {"constant", "polynomial", "hinge"}, default "polynomial"
        The form of the discount `d` of stale updates, as in `Discounted`.
    staleness_a : float > 0, default 0.5
        A parameter of ``polynomial`` and ``hinge``.
    staleness_b : float >= 0, default 4
        A parameter of ``hinge``.
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Notes
    -----
    **Deviations.** Updates that arrive in the same round fill the buffer in the order of clients.

    Examples
    --------
    >>> FedBuff(buffer_size=3, staleness="constant").buffer_size
    3

    References
    ----------
    Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022.
    """

    buffer_size: Annotated[int, Field(ge=1)] = 10
    server_lr: Annotated[float, Field(gt=0)] = 1.0

    def start(self, model: torch.Tensor) -> _Memory:
        """Return an empty buffer."""
        return _Memory(model.new_zeros(model.shape), np.zeros(1, np.int64))

    def apply(self, model: torch.Tensor, memory: _Memory, arrivals: Arrivals) -> Moved:
        """Gather, and step whenever the buffer is full."""
        shares, passed = self.discount(arrivals.staleness), 0
        step = self.server_lr * arrivals.client_lr / self.buffer_size
        buffer, buffered = memory
        for client in arrivals.clients:
            buffer.add_(arrivals.updates[client], alpha=float(shares[client]))
            buffered += 1
            if buffered[0] == self.buffer_size:
                model.sub_(buffer, alpha=step)
                buffer.zero_()
                buffered[0], passed = 0, passed + 1
        return np.where(arrivals.delivered, step * shares, 0.0), passed
