"""Families of instances: named problems on which schedulers are compared.

A family is a channel model with its parameters, a number of clients and a number of rounds. Its
instances differ by their run: every policy meets the same ones, so differences are paired.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from freshband.channels.base import ChannelModel, build
from freshband.channels.trace import Trace
from freshband.errors import ParameterError, UnknownNameError, nearest, shown

_PREFIX: Final = "against-"


@dataclass(frozen=True)
class Family:
    """A named problem; ``runs`` and ``full_runs`` are its instances by default and in full."""

    name: str
    about: str
    channels: str
    options: Mapping[str, Any] = field(default_factory=dict)
    clients: int = 2
    rounds: int = 20_000
    runs: int = 10
    full_runs: int = 100

    def model(self) -> ChannelModel:
        """Return the channel model, whose runs are the instances.

        Examples
        --------
        >>> family("near-ties").model().mean_low
        0.45
        """
        return build(self.channels, self.options)


_SWEEP: Final = {"pattern": "sweep", "dwell": 100, "width": 2, "budget": 1.0}
_RANDOM: Final = {"pattern": "random", "dwell": 20, "width": 2, "budget": 1.0}


def _broken(breakpoints: int, about: str, share: float = 1.0) -> Family:
    """Return breakpoints at random rounds, with rates from all of [0, 1]."""
    options = {"n_breakpoints": breakpoints, "p_change": share, "spacing": "random"}
    return Family(
        f"breakpoints-{breakpoints}{'' if share == 1 else '-some'}",
        about,
        "piecewise",
        {**options, "mean_low": 0.0, "mean_high": 1.0},
    )


def _sized(channels: int, clients: int, **more: Any) -> Family:
    return Family(
        f"size-{channels}-{clients}",
        f"{clients} clients on {channels:,} channels, all rates change every 1,000 rounds or so",
        "switching",
        {"n_channels": channels, "hazard": 0.001},
        clients,
        **more,
    )


_LISTED: Final = (
    Family("fig2", "the paper's Fig. 2: five breakpoints, all means drawn again", "fig2"),
    Family(
        "fig3-piecewise",
        "the paper's Figs. 3 and 4: 20 clients on 30 channels, two breakpoints",
        "fig3-piecewise",
        clients=20,
        rounds=250,
        runs=50,
        full_runs=500,
    ),
    Family(
        "fig3-extreme",
        "the paper's extremely non-stationary channels: a mean lasts 25 rounds",
        "fig3-extreme",
        clients=4,
        rounds=250,
        runs=50,
        full_runs=500,
    ),
    Family("hard-stationary", "the instance behind the paper's Theorem 2", "hard-stationary"),
    Family("hard-piecewise", "the instance behind the paper's Theorem 4", "hard-piecewise"),
    Family("stationary", "rates never change", "stationary"),
    Family(
        "stationary-short", "rates never change, 1,000 rounds", "stationary", rounds=1000, runs=50,
        full_runs=500,
    ),
    Family(
        "stationary-long",
        "rates never change, a million rounds",
        "stationary",
        rounds=1_000_000,
        runs=4,
        full_runs=20,
    ),
    Family(
        "near-ties",
        "rates never change and are all between 0.45 and 0.55",
        "stationary",
        {"mean_low": 0.45, "mean_high": 0.55},
    ),
    _broken(0, "no breakpoint"),
    _broken(5, "five breakpoints, all channels change"),
    _broken(12, "twelve breakpoints, all channels change"),
    _broken(5, "five breakpoints, 30 % of the channels change", 0.3),
    _broken(12, "twelve breakpoints, 30 % of the channels change", 0.3),
    Family(
        "hazard-low", "all rates change with probability 0.0005 per round", "switching",
        {"hazard": 0.0005},
    ),
    Family(
        "hazard-middle", "all rates change with probability 0.005 per round", "switching",
        {"hazard": 0.005},
    ),
    Family(
        "hazard-high", "all rates change with probability 0.05 per round", "switching",
        {"hazard": 0.05},
    ),
    Family(
        "hazard-own", "each rate changes by itself, with probability 0.002 per round", "switching",
        {"hazard": 0.002, "per_channel": True},
    ),
    Family("drift-smooth", "rates rise and fall over about 2,000 rounds", "drifting"),
    Family("drift-walk", "rates walk at random, 0.01 per round", "drifting", {"pattern": "walk"}),
    Family(
        "low-means", "rates between 0.02 and 0.2, five breakpoints", "piecewise",
        {"mean_low": 0.02, "mean_high": 0.2},
    ),
    Family(
        "high-means", "rates between 0.8 and 0.98, five breakpoints", "piecewise",
        {"mean_low": 0.8, "mean_high": 0.98},
    ),
    Family("mixed-means", "rates near 0 or near 1, five breakpoints", "mixed"),
    Family(
        "bursts", "channels that are wholly good or bad for some 50 rounds", "gilbert-elliott",
        {"dwell": 50},
    ),
    Family(
        "bursts-short", "channels that are wholly good or bad for some 5 rounds",
        "gilbert-elliott", {"dwell": 5},
    ),
    Family(
        "alternation", "channels that mostly alternate between good and bad", "gilbert-elliott",
        {"p_bad": 0.8, "p_good": [0.9, 0.8, 0.7, 0.6, 0.5]},
    ),
    Family("periodic", "two of five channels blocked for 100 of every 200 rounds", "periodic"),
    Family("jammer-sweep", "a jammer blocks two channels for 100 rounds, then the next two",
           "jammer", _SWEEP),
    Family("jammer-random", "a jammer blocks two random channels for 20 rounds", "jammer", _RANDOM),
    Family(
        "jammer-reacting", "a jammer blocks the two channels used most in the last 20 rounds",
        "reactive", {"window": 20, "width": 2},
    ),
    Family("correlated", "channels that fade together in half of the rounds", "correlated"),
    _sized(5, 2),
    _sized(6, 4),
    _sized(30, 20, rounds=10_000),
    _sized(100, 50, rounds=5000, runs=5, full_runs=50),
    _sized(1000, 300, rounds=2000, runs=4, full_runs=40),
    Family(
        "short", "250 rounds, two breakpoints", "piecewise", {"n_breakpoints": 2}, rounds=250,
        runs=50, full_runs=500,
    ),
)  # fmt: skip

FAMILIES: Final = {each.name: each for each in _LISTED}
"""All families but the tables against a policy, ``against-POLICY``, and users' own recordings."""


def family(name: str) -> Family:
    """Return a family by its name; ``against-POLICY`` is a table made against that policy.

    Examples
    --------
    >>> family("size-30-20").clients, family("against-cucb").rounds
    (20, 2000)
    >>> family("stationry")
    Traceback (most recent call last):
    freshband.errors.UnknownNameError: unknown family 'stationry'; did you mean 'stationary'?
    """
    if isinstance(name, str) and name.startswith(_PREFIX):
        victim = name.removeprefix(_PREFIX)
        return Family(
            name,
            f"the channels that {victim} would use next are bad",
            "against",
            {"policy": victim},
            rounds=2000,
        )
    if name not in FAMILIES:
        raise UnknownNameError(f"unknown family {shown(name)}; {nearest(str(name), FAMILIES)}")
    return FAMILIES[name]


def pick_families(names: Iterable[str]) -> list[Family]:
    """Return families by name or by pattern, such as ``"jammer-*"``, each once.

    Examples
    --------
    >>> [each.name for each in pick_families(["stationary", "jammer-*"])]
    ['stationary', 'jammer-sweep', 'jammer-random', 'jammer-reacting']
    """
    found: dict[str, Family] = {}
    for name in names:
        matching = fnmatch.filter(FAMILIES, name) if isinstance(name, str) and "*" in name else []
        found |= {each: family(each) for each in matching or [name]}
    if not found:
        raise ParameterError("families must name at least one family, got none")
    return list(found.values())


def trace_family(path: str | Path, clients: int = 2, rounds: int = 2000, **options: Any) -> Family:
    """Return the family of a recording: each instance begins at a random row of it.

    Clients and channels are numbered anew in each instance. A recording of links has its own number
    of clients; ``options`` are those of `freshband.channels.Trace`.
    """
    given = {"wrap": True, **options}
    trace = Trace(path=path, **given)
    given |= {"offset": "random", "shuffle": True, "path": str(trace.path)}
    return Family(
        f"trace-{Path(path).name.partition('.')[0]}",
        f"the recording {Path(path).name}, from random rows on",
        "trace",
        given,
        clients=trace.n_clients or min(clients, trace.n_channels),
        rounds=rounds,
    )
