"""Labels split unevenly over the clients, by Dirichlet proportions: the paper's partition."""

from __future__ import annotations

from typing import Annotated, final

import numpy as np
from pydantic import Field

from freshband.errors import ParameterError
from freshband.federated.partition.base import _Indices, register
from freshband.parameters import Parameters

_DRAWS = 100


@final
@register("dirichlet")
class Dirichlet(Parameters):
    """Deal every class by its own proportions `p_c ~ Dir_M(α)` over the M clients.

    Client m gets the share `p_{c,m}` of class c, exact to one sample. A small α gives each class
    to few clients, whose sizes then differ as well; a large one approaches equal shares.

    At least ``min_samples`` per client are guaranteed. All proportions are drawn again, up to 100
    times, until every client has enough: the Dirichlet law given that they do. If no draw does, the
    one with the fewest missing samples is taken, and samples move one at a time from the largest
    client's most frequent class to the smallest client.

    Parameters
    ----------
    alpha : float in [1e-6, 1e6], default 0.5
        Concentration α.
    min_samples : int >= 1, default 10
        Least number of samples of a client, validation included.

    Notes
    -----
    **Deviations.** The paper writes "Dir_N(α)", N being its number of channels; it must be the
    M clients (E20). It says nothing of clients left empty.

    Examples
    --------
    >>> import numpy as np
    >>> from freshband.federated.partition import split_samples
    >>> labels = np.arange(300) % 3
    >>> for alpha in (0.1, 1e4):
    ...     print(split_samples(labels, n_clients=3, alpha=alpha).counts(labels).tolist())
    [[0, 21, 92], [100, 68, 8], [0, 11, 0]]
    [[33, 33, 33], [34, 34, 33], [33, 33, 34]]

    References
    ----------
    T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the effects of non-identical data distribution for
    federated visual classification", 2019; M. Yurochkin et al., "Bayesian nonparametric federated
    learning of neural networks", ICML 2019, which draws class by class as here.
    """

    alpha: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.5
    min_samples: Annotated[int, Field(ge=1)] = 10

    def split(self, labels: _Indices, n_clients: int, rng: np.random.Generator) -> list[_Indices]:
        """Deal the samples; see `Scheme.split`."""
        if n_clients * self.min_samples > len(labels):
            raise ParameterError(
                f"min_samples must be at most {len(labels) // n_clients} for {n_clients} clients "
                f"and {len(labels)} samples, got {self.min_samples}"
            )
        classes, sizes = np.unique(labels, return_counts=True)
        counts = self._counts(sizes, n_clients, rng)
        dealt: list[list[_Indices]] = [[] for _ in range(n_clients)]
        for column, label in enumerate(classes):
            samples = rng.permutation(np.flatnonzero(labels == label))
            pieces = np.split(samples, np.cumsum(counts[:-1, column]))
            for client, piece in enumerate(pieces):
                dealt[client].append(piece)
        return [np.concatenate(pieces) for pieces in dealt]

    def _counts(self, sizes: _Indices, n_clients: int, rng: np.random.Generator) -> _Indices:
        """Draw how many samples of each class a client gets, shape (n_clients, classes)."""
        best, fewest_missing = np.empty(0, np.int64), np.inf
        for _ in range(_DRAWS):
            shares = rng.dirichlet(np.full(n_clients, self.alpha), len(sizes))
            ends = np.rint(np.cumsum(shares, axis=1) * sizes[:, None]).astype(np.int64)
            ends[:, -1] = sizes  # the shares' sum may miss 1 in the last bit
            counts = np.diff(ends, axis=1, prepend=0).T
            missing = np.maximum(self.min_samples - counts.sum(axis=1), 0).sum()
            if missing == 0:
                return counts
            if missing < fewest_missing:
                best, fewest_missing = counts, missing
        _repair(best, self.min_samples)
        return best


def _repair(counts: _Indices, min_samples: int) -> None:
    """Move samples, in place, from the largest clients to those with too few."""
    sizes = counts.sum(axis=1)
    while sizes.min() < min_samples:
        poor, rich = np.argmin(sizes), np.argmax(sizes)
        label = np.argmax(counts[rich])
        counts[rich, label] -= 1
        counts[poor, label] += 1
        sizes[rich] -= 1
        sizes[poor] += 1
