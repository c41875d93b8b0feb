"""The arena: schedulers side by side on families of instances.

Examples
--------
>>> from freshband.arena import compete, summarise_arena
>>> result = compete("random,cucb", ["stationary"], runs=2, rounds=300, progress=False)
>>> summarise_arena(result)["ranking"]
['cucb', 'random']
"""

from freshband.arena.contest import compete, every_policy
from freshband.arena.families import FAMILIES, Family, family, pick_families, trace_family
from freshband.arena.result import (
    count_wins,
    load_arena,
    rank_policies,
    read_request,
    save_arena,
    summarise_arena,
)

__all__ = [
    "FAMILIES",
    "Family",
    "compete",
    "count_wins",
    "every_policy",
    "family",
    "load_arena",
    "pick_families",
    "rank_policies",
    "read_request",
    "save_arena",
    "summarise_arena",
    "trace_family",
]
