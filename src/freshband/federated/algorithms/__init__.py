"""What the server does with the updates that arrived: the paper's rule and other known ones.

All of them work over the same channels. They differ in who trains, what is kept and how it is
applied:

| rule | who trains in a round | what becomes of a lost update | how an arrived one is applied |
| --- | --- | --- | --- |
| `renorm`, `fixed`, `mean_one`, `uniform`, `literal` | whose update got through | is sent again | a mean of all that arrived |
| `median`, `trimmed`, `bounded` | the same | is sent again | a middle of all that arrived, which a few cannot move far |
| `fedasync` | the same | is sent again | one by one, mixed into the model |
| `fedbuff` | the same | is sent again | mean of a full buffer |
| `fedavg` | everybody | is thrown away | a mean of all that arrived |

The wrappers `eager` and `average` change any of these: ``"fedbuff+eager+average"``.
"""  # noqa: E501 - rows of a table cannot be broken

from freshband.federated.algorithms.base import (
    Algorithm,
    Arrivals,
    Moved,
    Rule,
    Wrapper,
    build_algorithm,
    register,
    registry,
)

__all__ = [
    "Algorithm",
    "Arrivals",
    "Moved",
    "Rule",
    "Wrapper",
    "build_algorithm",
    "register",
    "registry",
]
