"""Several federations in step: the clients of all of them are trained in one go."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from freshband.errors import ParameterError
from freshband.federated.clients._base import one_thread
from freshband.federated.engine import Federation
from freshband.federated.records import RoundRecord


def train_together(federations: Sequence[Federation]) -> Iterator[tuple[RoundRecord, ...]]:
    """Play several federations in step, the clients of all of them trained in one go.

    They must have been given the same ``clients``, so share model and data set; their policies,
    seeds and algorithms may differ. Each computes what it would alone: to the bit on the path
    ``threads``, up to rounding where clients are stacked. Yields a record of each federation, round
    by round, until the first has played all its rounds.

    Examples
    --------
    >>> from freshband.federated import Training
    >>> first = Federation(Training(model="mlp", clients=4, rounds=3, policy="random"))
    >>> other = Federation(
    ...     Training(model="mlp", clients=4, rounds=3, policy="cucb"), clients=first.clients
    ... )
    >>> [[record.round for record in records] for records in train_together([first, other])]
    [[1, 1], [2, 2], [3, 3]]
    """
    if not federations:
        return
    if any(each.clients is not federations[0].clients for each in federations):
        raise ParameterError("federations must be given the same clients to train together")
    shapes = {
        (each.settings.client_lr, each.settings.local_steps, each.settings.batch_size)
        for each in federations
    }
    if len(shapes) > 1:
        raise ParameterError(
            "client_lr, local_steps and batch_size must be the same to train together, got "
            f"{sorted(shapes)}"
        )
    while all(each.round < each.settings.rounds for each in federations):
        began = time.perf_counter()
        with one_thread():
            jobs = [job for each in federations for job in each.begin()]
            federations[0].clients.train(jobs, federations[0].settings.client_lr)
            records = tuple(each.finish(began) for each in federations)
        yield records
