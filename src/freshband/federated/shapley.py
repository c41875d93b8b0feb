"""What each client is really worth: exact Shapley values of a federation, for small M."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.federated.clients._base import Trial
from freshband.federated.contribution import _shapley_values
from freshband.federated.engine import Federation


def shapley_contributions(federation: Federation) -> NDArray[np.float64]:
    """Return each client's Shapley value in the server's next step, equation (32), shape (M,).

    The players are the clients, with the gradients the server last received of them. A coalition
    moves the present model by the weighted mean of its members' gradients, `w - η Σ_{i in S} ζ_i
    G_i / Σ_{i in S} ζ_i`, and is worth the accuracy of the result on the validation samples of all
    clients together; the empty one does not move. Values add up to what everybody gains together,
    and may be negative. The cheap contributions (33) can be compared with these. The federation
    must compute contributions and have at most 16 clients, because all `2^M` coalitions are tried.

    Examples
    --------
    >>> from freshband.federated import Training
    >>> settings = Training(model="mlp", clients=3, rounds=4, contribution="paper")
    >>> with Federation(settings) as run:
    ...     records = list(run)
    ...     values = shapley_contributions(run)
    >>> values.shape
    (3,)
    """
    model, clients = federation.state.model, federation.settings.clients
    valuation = federation.server.valuation
    if valuation is None:
        raise ParameterError("the federation must compute contributions: set contribution='paper'")
    if clients > 16:
        raise ParameterError(f"Shapley values are for at most 16 clients, got {clients}")
    samples = np.concatenate(federation.partition.val)
    members = (np.arange(2**clients)[:, None] >> np.arange(clients)) & 1  # (coalitions, M)
    shares = members * federation.state.weights
    totals = shares.sum(axis=1, keepdims=True)
    shares = shares / np.where(totals > 0, totals, 1.0) * federation.settings.client_lr
    worth = np.concatenate(
        [
            federation.clients.count_correct(
                [Trial(model - row @ valuation.gradients, samples) for row in rows]
            )
            for rows in torch.split(model.new_tensor(shares), 256)
        ]
    )
    codes = 1 << np.arange(clients)
    return _shapley_values(
        lambda coalition: float(worth[codes[list(coalition)].sum()]) / len(samples), clients
    )
