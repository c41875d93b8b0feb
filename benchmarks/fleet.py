"""Ages of any fleet over the oracle's: ``python -m benchmarks.fleet [--write]``.

All policies of a run meet the same channels, clients and acknowledgements. Ages are divided, run by
run, by those of an oracle that knows the success rates, and learns every outcome and who is there
at once. ``--write`` puts the tables into docs/fleet.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import freshband
from benchmarks.page import _renew, _table
from freshband.statistics import mean_and_error

__all__ = ["CASES", "tables"]

POLICIES = ("random", "glr-cucb", "bayes", "oracle")
PAGE = Path(__file__).parent.parent / "docs" / "fleet.md"
_THREE: dict[str, Any] = {"clients": 3, "rounds": 4000}
_EIGHT: dict[str, Any] = {"clients": 8, "rounds": 20_000, "channel_options": {"n_channels": 3}}
_OUTAGES: dict[str, Any] = {"clients": 3, "rounds": 4000, "channel_options": {"n_channels": 8}}
_TWO: dict[str, Any] = {"channels": "reactive", "clients": 2, "rounds": 4000}
_AIRS: dict[str, dict[str, Any]] = {
    "shared, and known to be": {},
    "all different": {"per_client": True},
    "a quarter different": {"per_client": True, "p_differ": 0.25},
    "channel plus client": {"per_client": True, "offset_sd": 2.0},
    "shared, but may differ": {"per_client": True, "p_differ": 0.0},
}


def _links(clients: int, n_channels: int, rounds: int) -> dict[str, dict[str, Any]]:
    sizes = {"clients": clients, "rounds": rounds}
    return {
        f"{clients} clients, {n_channels} channels: {name}": sizes
        | {"channel_options": {"n_channels": n_channels, **air}}
        for name, air in _AIRS.items()
    }


# heading of a table -> name of a row -> what it simulates; channels are piecewise by default
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "More clients than channels, weights, a limit": {
        "20 clients, 5 channels": {"clients": 20, "rounds": 4000},
        "20 clients, 5 channels, 2 send": {
            "clients": 20,
            "rounds": 4000,
            "fleet": {"max_transmissions": 2},
        },
        "6 clients, 5 channels, 2 send, half of the clients weigh 4": {
            "clients": 6,
            "rounds": 4000,
            "fleet": {"max_transmissions": 2, "weights": [1, 1, 1, 4, 4, 4]},
        },
    },
    "Late and lost acknowledgements: 3 clients, 5 channels": {
        "all in time": _THREE,
        "5 rounds late": _THREE | {"fleet": {"ack_delay": 5}},
        "20 rounds late": _THREE | {"fleet": {"ack_delay": 20}},
        "half of them lost": _THREE | {"fleet": {"ack_loss": 0.5}},
        "half lost, the others 5 rounds late": _THREE
        | {"fleet": {"ack_loss": 0.5, "ack_delay": 5}},
    },
    "One of three clients is dead: 5 channels": {
        "told": _THREE | {"fleet": {"dead": [2], "tells": True}},
        "not told, it is silent": _THREE | {"fleet": {"dead": [2]}},
        "not told, its silence is reported as loss": _THREE
        | {"fleet": {"dead": [2], "proof_of_life": "delivery"}},
        "not told, no rule (`none`)": _THREE | {"fleet": {"dead": [2], "proof_of_life": "none"}},
        "nobody is dead, silence would be reported as loss": _THREE
        | {"fleet": {"proof_of_life": "delivery"}},
    },
    "Clients that come and go: 8 clients, 3 channels": {
        "every 1,000 rounds, told": _EIGHT | {"fleet": {"churn": 1000, "tells": True}},
        "every 1,000 rounds, not told": _EIGHT | {"fleet": {"churn": 1000}},
        "every 1,000 rounds, no rule (`none`)": _EIGHT
        | {"fleet": {"churn": 1000, "proof_of_life": "none"}},
        "every 50 rounds, told": _EIGHT | {"fleet": {"churn": 50, "tells": True}},
        "every 50 rounds, not told": _EIGHT | {"fleet": {"churn": 50}},
    },
    "Channels that come and go every 200 rounds: 3 clients, 8 channels": {
        "told": _OUTAGES | {"fleet": {"outages": 200, "tells": True}},
        "not told": _OUTAGES | {"fleet": {"outages": 200}},
    },
    "Links that differ": _links(6, 10, 4000) | _links(20, 30, 2000),
    "A jammer that reacts: 2 clients, 5 channels": {
        "blocks the channel used last, half of the rounds": _TWO,
        "blocks both channels used last, every round": _TWO
        | {"channel_options": {"width": 2, "budget": 1.0}},
        "blocks the channel used most in 100 rounds, half of the rounds": _TWO
        | {"channel_options": {"window": 100}},
    },
}


def _ratios(case: dict[str, Any], runs: int, seed: int) -> tuple[float, dict[str, Any]]:
    """Return the informed oracle's mean age, and of each policy how many times that it has."""
    settings = {"channels": "piecewise", **case}
    found = freshband.simulate(
        policies=POLICIES, runs=runs, seed=seed, points=1, progress=False, **settings
    )
    total = found.age_curve.isel(round=-1)
    ratio = total / (total - found.regret)
    best = float((found.mean_age / ratio).sel(policy="oracle").mean())
    return best, {name: mean_and_error(ratio.sel(policy=name).values) for name in POLICIES}


def _cell(ratio: dict[str, float]) -> str:
    digits = 3 if ratio["mean"] < 3 else 1
    return f"{ratio['mean']:.{digits}f} ± {ratio['se']:.{digits}f}"


def tables(runs: int, seed: int) -> Iterator[str]:
    """Yield a table for each heading."""
    for heading, cases in CASES.items():
        rows = []
        for name, case in cases.items():
            best, ratios = _ratios(case, runs, seed)
            rows.append([name, f"{best:.2f}", *(_cell(ratio) for ratio in ratios.values())])
        head = [heading, "informed oracle", *(f"`{name}`" for name in POLICIES)]
        yield _table(head, rows)


def main() -> None:
    """Simulate, print, and with ``--write`` renew the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=16, help="runs of each case")
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--write", action="store_true", help="update the docs")
    args = parser.parse_args()
    found = []
    for table in tables(args.runs, args.seed):
        print(table, end="\n\n", flush=True)
        found.append(table)
    if args.write:
        _renew(PAGE, "\n\n".join(found))


if __name__ == "__main__":
    main()
