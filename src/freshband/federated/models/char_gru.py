"""A character model: it says which token comes next."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, final

import torch
from pydantic import Field
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.models.base import _AnyShape, register
from freshband.parameters import Parameters


@final
@register("char-gru")
class CharGru(Parameters):
    """Tokens embedded, one gated recurrent unit, and scores of the next token.

    The scores are the products of the output with the embeddings, the same weights once more
    (Press and Wolf, 2017), so there is one table of tokens.

    Parameters
    ----------
    width : int >= 1, default 48
        The size of embeddings and of the recurrent state.
    dropout : float in [0, 1), default 0
        The share of the embeddings' entries that are set to 0 in training.

    Examples
    --------
    >>> from freshband.federated.models import build_model
    >>> model = build_model("char-gru", (24,), 30, scores=False)
    >>> model(torch.zeros(2, 24, dtype=torch.int64)).shape
    torch.Size([2, 24, 30])
    """

    any_shape: ClassVar[bool] = True

    width: Annotated[int, Field(ge=1)] = 48
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def build(self, shape: _AnyShape, n_classes: int) -> nn.Module:
        """Build the module; see `ModelSpec.build`."""
        if len(shape) != 1 or n_classes < 2:
            raise ParameterError(
                f"char-gru is for rows of tokens, (n, length), with tokens as targets, got samples "
                f"of shape {tuple(shape)} and {n_classes} classes"
            )
        return _CharGru(n_classes, self.width, self.dropout)


class _CharGru(nn.Module):
    def __init__(self, tokens: int, width: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.drop = nn.Dropout(dropout)
        self.recur = nn.GRU(width, width, batch_first=True)
        self.score = nn.Linear(width, tokens)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.score.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> Any:
        states, _ = self.recur(self.drop(self.embed(tokens)))
        return self.score(states)
