"""The federation without one client, for all clients at once, on the device that trains.

`freshband.federated.contribution` has the formulas; here they are a few products of the matrix of
updates, so that no second matrix is needed.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.federated.contribution import _ALONE, _LeaveOneOut


def distances_to_rest(
    gradients: torch.Tensor, weights: NDArray[np.float64], form: _LeaveOneOut
) -> NDArray[np.float64]:
    """Return `Γcos` (34): one minus the cosine of each gradient (M, P) and that of the rest.

    ``global_minus`` and ``buffer`` are the same here: the global gradient is the buffer's weighted
    sum.
    """
    zeta = torch.as_tensor(weights, dtype=gradients.dtype, device=gradients.device)
    squares = torch.linalg.vector_norm(gradients, dim=1) ** 2
    if form == "literal":
        sums = gradients.sum(dim=1)
        products = sums - zeta * squares
        rests = gradients.shape[1] - 2 * zeta * sums + zeta**2 * squares
    else:
        whole = zeta @ gradients
        dots, total = gradients @ whole, whole @ whole
        alone = zeta >= _ALONE
        products = torch.where(alone, dots, dots - zeta * squares)
        rests = torch.where(alone, total, total - 2 * zeta * dots + zeta**2 * squares)
        # Where hardly anything is left the difference would be rounding alone: add the others up.
        for one in torch.nonzero(~alone & (rests < 0.01 * zeta**2 * squares)).flatten().tolist():
            others = zeta.clone()
            others[one] = 0.0
            rest = others @ gradients
            products[one], rests[one] = gradients[one] @ rest, rest @ rest
    found = torch.stack([products, squares, rests]).to(torch.float64).cpu().numpy()
    lengths = np.sqrt(np.maximum(found[1] * found[2], 0.0))
    cosine = np.where(lengths > 0, found[0] / np.where(lengths > 0, lengths, 1.0), 0.0)
    if form != "literal":
        cosine[weights >= _ALONE] = 1.0  # the rest is the whole; rounding must not make it a share
    return np.asarray(1.0 - np.clip(cosine, -1.0, 1.0))


def _models_without(
    model: torch.Tensor,
    models: torch.Tensor,
    weights: NDArray[np.float64],
    heard: NDArray[np.bool_],
    who: NDArray[np.int64],
    form: _LeaveOneOut,
) -> torch.Tensor:
    """Return `w^{-m}` (42) for the clients ``who``, shape (len(who), P).

    Client m builds it from the model it receives, its own last delivered model and the weight it
    was sent; ``buffer`` is the server's to compute, from the models of all others. A client never
    heard has no part in the model: it is the model itself.
    """
    taken = (heard & (weights < _ALONE))[who]
    part = np.where(taken, weights[who], 0.0)
    zeta = torch.as_tensor(part, dtype=model.dtype, device=model.device)[:, None]
    own = models[torch.as_tensor(who, device=models.device)]
    if form == "global_minus":
        whole = model.expand_as(own)
    elif form == "buffer":
        held = np.where(heard, weights, 0.0)
        shares = torch.as_tensor(held, dtype=model.dtype, device=model.device)
        missing = 1.0 - float(held.sum())  # those never heard still hold the model
        whole = (shares @ models + missing * model).expand_as(own)
    else:
        whole = torch.ones_like(own)
    # `_without_one`, with product and difference in one step
    rest = torch.addcmul(whole, zeta, own, value=-1.0).div_(1.0 - zeta)
    untouched = torch.as_tensor(~taken, device=model.device)[:, None]
    return torch.where(untouched, model, rest)
