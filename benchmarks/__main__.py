"""Run the benchmarks: ``python -m benchmarks [PART...] [--write]``.

``--peers`` names a Python with changepoint-online and focus-cpt, ``--smpybandits`` one with
SMPyBandits (0.9.7 wants ``numpy<2 'scipy<1.12'``); without them their rows are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import coordinator, detector, scaling, simulation
from benchmarks.measure import interleave
from benchmarks.page import write_page

PARTS = ("simulation", "smpybandits", "scaling", "coordinator", "detector")
RESULTS = Path(__file__).with_name("results.json")


def _smpybandits(python: Path | None, exact: bool, repeats: int) -> dict[str, Any] | None:
    """Time SMPyBandits' GLR-UCB beside ours, both with one client."""
    if python is None:
        return None
    script = Path(__file__).with_name("peer_smpybandits.py")
    rounds = simulation.ROUNDS

    def theirs(form: str) -> float:
        done = subprocess.run(
            [python, script, str(rounds), form], capture_output=True, text=True, check=True
        )
        return float(done.stdout.split()[-1])

    lazy = theirs("lazy")
    ours = interleave({"ours": simulation.single_run("glr-cucb", clients=1)}, repeats)["ours"]
    result = {"rounds": rounds, "ours_s": ours, "lazy_s": lazy, "times_lazy": lazy / ours}
    if exact:
        slow = theirs("exact")
        result |= {"exact_s": slow, "times_exact": slow / ours}
    return result


def main() -> None:
    """Measure, print, and with ``--write`` keep what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"parts to run (default all): {', '.join(PARTS)}")
    parser.add_argument("--repeats", type=int, default=40, help="turns of each timing")
    parser.add_argument("--peers", type=Path, help="Python with changepoint-online, focus-cpt")
    parser.add_argument("--smpybandits", type=Path, help="Python with SMPyBandits")
    parser.add_argument("--exact", action="store_true", help="also its exact test (15 minutes)")
    parser.add_argument("--write", action="store_true", help="update results.json and the docs")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}; known: {', '.join(PARTS)}")
    parts = args.parts or PARTS
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("freshband", "numpy", "numba")},
    }
    if "simulation" in parts:
        results["simulation"] = simulation.table(args.repeats)
    if "smpybandits" in parts and args.smpybandits is not None:
        before = results.get("smpybandits") or {}
        results["smpybandits"] = before | (
            _smpybandits(args.smpybandits, args.exact, args.repeats) or {}
        )
    if "scaling" in parts:
        results["scaling"] = scaling.table(args.repeats)
    if "coordinator" in parts:
        results["coordinator"] = coordinator.table(args.repeats)
    if "detector" in parts:
        results["detector"] = detector.table(args.repeats, args.peers)
    page = write_page(results, Path("docs/benchmarks.md") if args.write else None)
    if args.write:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(page)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")


if __name__ == "__main__":
    main()
