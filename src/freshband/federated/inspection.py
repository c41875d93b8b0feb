"""What the server takes of the updates that arrived: it refuses some and shortens others.

An update must be finite and have the shape of the model. It must also not be much longer than those
of the other clients: one finite update of great length ruins a model for good, whatever the rule
that applies it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.federated._state import Pending

LENGTH_LIMIT: Final = 5.0
_QUORUM: Final = 3  # clients of whom a median outvotes one that lies

AlterUpdate: TypeAlias = Callable[[int, int, torch.Tensor], Any]


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Looks at updates before a model takes them.

    Parameters
    ----------
    client_lr : float > 0
        `η`, the clients' step; the length of an update is the change it asks for, `η |G|`.
    length_limit : float >= 0, default 5
        An update longer than this many times the median length is refused; 0 takes any length. See
        `longest_allowed`.
    clip_norm : float > 0, optional
        Longest change of the model an update may ask for; longer ones are shortened.
    alter_update : callable, optional
        ``alter_update(round, client, update)`` sees every update that gets through and may return
        another in its place.
    """

    client_lr: float
    length_limit: float = LENGTH_LIMIT
    clip_norm: float | None = None
    alter_update: AlterUpdate | None = None

    def __call__(
        self,
        t: int,
        arrived: Mapping[int, Pending],
        lengths: NDArray[np.float64],
        model: torch.Tensor,
    ) -> tuple[dict[int, Pending], list[int]]:
        """Return what a model can take of what arrived, and the clients whose update is too long.

        ``lengths`` has the last few of every client, NaN for none, and is brought up to date.
        Updates longer than ``clip_norm`` are shortened in place.
        """
        taken = {
            client: sent
            for client, sent in arrived.items()
            if not sent.problem and self._alter(t, client, sent)
        }
        if not taken:
            return taken, []
        norms = torch.stack([torch.linalg.vector_norm(sent.update) for sent in taken.values()])
        asked = (norms.to(torch.float64).cpu().numpy() * self.client_lr).tolist()
        found = {c: length for c, length in zip(taken, asked, strict=True) if math.isfinite(length)}
        taken = {client: taken[client] for client in found}
        for client, length in found.items():
            lengths[client] = [*lengths[client, 1:], length]
        longest = longest_allowed(lengths, self.length_limit, model)
        too_long = [client for client, length in found.items() if length > longest]
        for client, length in found.items():
            if length > longest:
                del taken[client]
            elif self.clip_norm is not None and length > self.clip_norm:
                sent = taken[client]
                sent.replace(sent.update * (self.clip_norm / length), self.client_lr)
        return taken, too_long

    def _alter(self, t: int, client: int, sent: Pending) -> bool:
        """Let the user's function change an update; return whether a model could take it."""
        if self.alter_update is None:
            return True
        row = sent.update
        given = self.alter_update(t, client, row.clone())
        if given is None:
            return True
        if (
            not isinstance(given, torch.Tensor)
            or given.shape != row.shape
            or given.layout != row.layout
            or given.is_complex()
        ):
            return False
        sent.replace(given.detach().to(row), self.client_lr)
        return True


def longest_allowed(
    lengths: NDArray[np.float64], length_limit: float, model: torch.Tensor
) -> float:
    """Return the greatest length that an update may have.

    It is ``length_limit`` times the median over clients, each of which votes with the second
    longest of its last updates, or with the longest if that is the latest or the only one that is
    not zero. Those of this round and those that were refused count too. So a client that is heard
    more often than others has no more votes, one exceptional update is soon forgotten (a client's
    first one can be ten times as long as the next), and if the updates of all become longer, so
    does the limit. Fewer than three clients cannot outvote one that lies; until three were heard,
    the length of the model itself takes the place of the median, or the lesser of two where the
    model is zero.

    Examples
    --------
    >>> heard = np.array([[9.0, 1.0], [2.0, np.nan], [np.nan, np.nan], [800.0, 900.0]])
    >>> longest_allowed(heard, 5, torch.ones(4))
    10.0
    >>> longest_allowed(np.array([[900.0], [np.nan]]), 5, torch.ones(4))
    10.0
    """
    if length_limit == 0:
        return math.inf
    known = np.where(lengths > 0, lengths, 0.0)  # NaN is not
    ranked = np.sort(known, axis=1)
    votes = np.maximum(ranked[:, -2:][:, 0], known[:, -1])
    votes = np.where(votes > 0, votes, ranked[:, -1])
    votes = np.sort(votes[votes > 0])  # clients that learnt nothing do not vote
    if len(votes) < _QUORUM:
        typical = float(torch.linalg.vector_norm(model)) or float(votes[:1].sum())
    else:
        typical = float(votes[(len(votes) - 1) // 2])
    return length_limit * typical if typical > 0 else math.inf
