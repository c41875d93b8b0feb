"""By a column of the data set, such as the user that a sample comes from."""

from __future__ import annotations

from typing import final

import numpy as np

from freshband.errors import ParameterError
from freshband.federated.partition.base import _Indices, register
from freshband.parameters import Parameters


@final
@register("column")
class Column(Parameters):
    """Samples with the same entry in a column, such as those of one user, go to one client.

    Where there are more users than clients, users are dealt at random, the same number to every
    client, give or take one. A data set made with `Dataset.of_clients` has the column ``client``.

    Parameters
    ----------
    column : str, default "client"
        The name of the column.

    Examples
    --------
    >>> from freshband.federated.partition import split_samples
    >>> users = {"user": ["anna", "ben", "anna", "ben", "ben"]}
    >>> mine = split_samples(
    ...     [0] * 5, 2, scheme="column", columns=users, column="user", val_fraction=0
    ... )
    >>> [held.tolist() for held in mine.train]
    [[0, 2], [1, 3, 4]]
    """

    column: str = "client"

    def split(self, labels: _Indices, n_clients: int, rng: np.random.Generator) -> list[_Indices]:
        """Deal the samples; here ``labels`` are the numbers of the users."""
        users = int(labels.max()) + 1
        if users < n_clients:
            raise ParameterError(
                f"clients must be at most {users}, the number of different entries in the column "
                f"{self.column!r}, got {n_clients}"
            )
        order = np.arange(users) if users == n_clients else rng.permutation(users)
        return [np.flatnonzero(np.isin(labels, some)) for some in np.array_split(order, n_clients)]
