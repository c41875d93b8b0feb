"""How much each constant of `bayes` matters: regret with another value, over that with its own.

``python -m benchmarks.sensitivity [--write]`` plays every variant on the same air as the default,
and writes the table into docs/theory/bayes.md (ten minutes on one core, mostly compiling).
Nothing was chosen on these seeds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.page import _renew, _table
from freshband.statistics import standard_error

SEED: Final = 27_182
PAGE: Final = Path(__file__).parent.parent / "docs" / "theory" / "bayes.md"
_EXTREME: Final = {"clients": 4, "rounds": 250, "runs": 200}
AIRS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Fig. 2(a)": {"channels": "fig2", "clients": 2, "rounds": 20_000, "runs": 48},
    "fig3-extreme": {"channels": "fig3-extreme", **_EXTREME},
    "means U[.6, .95]": {
        "channels": "fig3-extreme", "channel_options": {"mean_low": 0.6, "mean_high": 0.95},
        **_EXTREME,
    },
    "stationary": {"channels": "stationary", "clients": 2, "rounds": 20_000, "runs": 48},
    "jammer, half of the rounds": {  # blocks one of the channels used last
        "channels": "reactive", "channel_options": {"mean_low": 0.5, "mean_high": 0.95},
        "clients": 2, "rounds": 4_000, "runs": 32,
    },
}  # fmt: skip
# Parameters have no dot; others are constants of modules.
VARIANTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "optimism": (0.5, 2.0),
    "unrest": (0.0, 0.2),
    "slots": (16, 64),
    "_segments.HAZARDS": (
        (0.5, 0.5, 0.06, 0.06, 5e-3, 5e-3, 1e-4, 1e-4),
        (0.2, 0.1, 0.05, 0.02, 0.01, 5e-3, 2e-3, 1e-3),
    ),
    "_segments._IDLE": (0.0, 1.0),
    "_priors._SURPRISE": (0.0, 0.1),
    "_bayes_state._IN_CONTEXTS": (0.05, 0.5),
    "_bayes_state._IN_PERIODS": (0.002, 0.2),
    "_bayes_channels.FORGET": (0.03, 1.0),
    "_bayes_channels._FORGET_PRIORS": (3e-5, 0.3),
    "_drought._DOUBT": ((1e2, 1.0), (1e4, 0.0), (1e8, 1e6)),
    "_drought._LEAST": (0.01, 0.2),
    "_drought._PATIENCE": (20, 2000),
    "_drought._SELDOM": (0.01, 1.0),
    "_contexts._ENOUGH": (2, 32),
    "_contexts._MOST": (128.0, 1e9),
    "_contexts._CLOSENESS": (0.5, 8.0),
    "_contexts._LIKENESS": (2.0, 32.0),
    "_periods._MOST": (16.0, 1e9),
    "_periods._CLOSENESS": (0.5, 8.0),
    "_bayes_channels._ASKED": (0.0, 0.05),
    "_priors._BETAS": (((1.0, 1.0),), ((1.0, 1.0), (0.3, 0.3), (8.0, 2.0), (2.0, 8.0))),
}


def _play(name: str, value: Any) -> dict[str, list[float]]:
    """Return the measures of all runs on every air, in a process of its own."""
    from freshband import simulate

    options = {}
    module, _, constant = name.rpartition(".")
    if module:
        _replace(f"freshband.schedulers.{module}", constant, value)
    elif name:
        options = {"bayes": {name: value}}
    found = {}
    for title, air in AIRS.items():
        result = simulate(
            air["channels"], "bayes", channel_options=air.get("channel_options"),
            clients=air["clients"], rounds=air["rounds"], runs=air["runs"], seed=SEED, points=1,
            policy_options=options, progress=False,
        )  # fmt: skip
        measure = "mean_age" if air["channels"] == "reactive" else "regret"
        found[title] = result[measure].values[0].tolist()
    return found


def _replace(module: str, name: str, value: Any) -> None:
    """Replace a constant wherever it was imported; nothing is compiled yet."""
    importlib.import_module("freshband.schedulers.bayes")  # and all that it is made of
    held = getattr(sys.modules[module], name)
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith("freshband.") and (
            vars(other).get(name) is held
        ):
            setattr(other, name, value)


def _in_process(name: str, value: Any) -> dict[str, NDArray[np.float64]]:
    with tempfile.TemporaryDirectory() as cache:  # code is stored by source, not by constants
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.sensitivity", "--one", json.dumps([name, value])],
            env={**os.environ, "NUMBA_CACHE_DIR": cache},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return {air: np.array(values) for air, values in json.loads(done.stdout).items()}


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_shown, value)) + ("," if len(value) == 1 else "") + ")"
    return f"{value:g}"


def main() -> None:
    """Play all variants, print, and with ``--write`` renew the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="update the docs")
    parser.add_argument("--jobs", type=int, default=1, help="variants played at a time")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, value = json.loads(args.one)
        print(json.dumps(_play(name, _frozen(value))))
        return
    variants = [(name, value) for name, values in VARIANTS.items() for value in values]
    rows: list[list[str]] = []
    with ThreadPoolExecutor(args.jobs) as pool:  # of processes that wait
        own, *others = pool.map(_in_process, *zip(("", None), *variants, strict=True))
    for (name, value), found in zip(variants, others, strict=True):
        cells = []
        for air in AIRS:
            ratio = found[air].mean() / own[air].mean()
            error = standard_error(found[air] - ratio * own[air]) / own[air].mean()
            cells.append(f"{ratio:.2f} ± {error:.2f}")
        rows.append([f"`{name}` = {_shown(value)}", *cells])
        print(" | ".join(rows[-1]), flush=True)
    if args.write:
        _renew(PAGE, _table(("constant", *AIRS), rows), "constants")


if __name__ == "__main__":
    main()
