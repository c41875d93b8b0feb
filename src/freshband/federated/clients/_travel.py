"""What travels with an update, what stays with its client, and what never changes.

Trainable parameters travel. Frozen ones and constant buffers, such as position tables, never
change. A buffer that training changes is a statistic, such as BatchNorm's running mean: it travels
and is averaged, stays with its client, or is frozen, as the settings say.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import torch
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.clients._base import ParameterLayout

_VARIANCE: Final = "running_var"


class Travel:
    """How a module is divided: rows that travel, rows that stay, and the rest.

    Parameters
    ----------
    module : nn.Module
    statistics : sequence of str
        Names of the buffers that training changes.
    mode : {"averaged", "local", "frozen"}
        What becomes of them; with ``"local"`` the layers' parameters stay too, as in FedBN.
    stays : sequence of str
        Patterns of further parameters that stay with their client.
    """

    def __init__(
        self,
        module: nn.Module,
        statistics: Sequence[str] = (),
        mode: str = "averaged",
        stays: Sequence[str] = (),
    ) -> None:
        trained = [name for name, each in module.named_parameters() if each.requires_grad]
        for pattern in stays:
            if not any(fnmatchcase(name, pattern) for name in trained):
                raise ParameterError(
                    f"stays_local must match trainable parameters, {pattern!r} matches none of "
                    f"{', '.join(trained[:8])}{' ...' * (len(trained) > 8)}"
                )
        owners = {name.rpartition(".")[0] for name in statistics}
        kept = {name for name in trained if any(fnmatchcase(name, each) for each in stays)}
        if mode == "local":
            kept |= {name for name in trained if name.rpartition(".")[0] in owners} | {*statistics}
        held = dict(module.named_buffers())
        moving = [name for name in statistics if held[name].is_floating_point()]
        going = [name for name in trained if name not in kept]
        if not going:
            raise ParameterError(
                f"model must have parameters that travel, all of {type(module).__name__}'s are "
                "frozen or stay local"
            )
        self.travels = ParameterLayout(module, going + moving * (mode == "averaged"))
        self.stays = ParameterLayout(module, [n for n in (*trained, *statistics) if n in kept])
        self.still = sorted(owners) if mode == "frozen" else []
        known = {*self.travels.shapes, *self.stays.shapes}
        self.resets = [name for name in statistics if name not in known]

    @property
    def plain(self) -> bool:
        """Whether nothing but trainable parameters changes, and all of them travel."""
        return not (self.stays.shapes or self.travels.buffers or self.resets)

    def settle(self, row: torch.Tensor) -> torch.Tensor:
        """Make variances >= 0: the change of a stale update may go below."""
        for name in self.travels.buffers:
            if name.endswith(_VARIANCE):
                self.travels.views(row)[name].clamp_(min=0)
        return row
