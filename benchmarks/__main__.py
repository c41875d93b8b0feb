"""Run the benchmarks: ``python -m benchmarks [PART...] [--write]``.

``--peers`` names a Python with changepoint-online and focus-cpt, ``--smpybandits`` one with
SMPyBandits (0.9.7 wants ``numpy<2 'scipy<1.12'``), ``--flower`` one with ``flwr[simulation]`` and
``--pfl`` one with ``pfl[pytorch]``, both with our torch; without them their rows are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import (
    assignment,
    coordinator,
    detector,
    large_fleets,
    links,
    scaling,
    service,
    simulation,
)
from benchmarks.measure import interleave
from benchmarks.page import write_page

PARTS = (
    "simulation",
    "smpybandits",
    "scaling",
    "coordinator",
    "service",
    "large_fleets",
    "assignment",
    "links",
    "detector",
    "training",
    "flower",
)
RESULTS = Path(__file__).with_name("results.json")
GPU_RESULTS = Path(__file__).with_name("gpu_results.json")


def _smpybandits(python: Path, exact: bool, repeats: int) -> dict[str, Any]:
    """Time SMPyBandits' GLR-UCB beside ours, both with one client."""
    script = Path(__file__).with_name("peer_smpybandits.py")
    rounds = simulation.ROUNDS

    def theirs(form: str, seed: int, segments: int) -> float:
        command = [str(python), str(script), str(rounds), form, str(seed), str(segments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout.split()[-1])

    ours = interleave(
        {
            "6": simulation.single_run("glr-cucb", clients=1),
            "1": simulation.single_run("glr-cucb", clients=1, breakpoints=0),
        },
        repeats,
    )
    # the cost depends on the length of histories, so the mean over some instances is compared
    moving = statistics.mean(theirs("lazy", seed, 6) for seed in range(5))
    plain = statistics.mean(theirs("plain", seed, 6) for seed in range(5))
    still = statistics.mean(theirs("lazy", seed, 1) for seed in range(2))
    rows = {
        "GLR-UCB, 5 breakpoints": {"theirs_s": plain, "ours_s": ours["6"]},
        "Bernoulli GLR-UCB, 5 breakpoints": {"theirs_s": moving, "ours_s": ours["6"]},
        "Bernoulli GLR-UCB, no breakpoint": {"theirs_s": still, "ours_s": ours["1"]},
    }
    if exact:
        slow = theirs("exact", 0, 6)
        rows["Bernoulli GLR-UCB, exact test, 5 breakpoints"] = {
            "theirs_s": slow,
            "ours_s": ours["6"],
        }
    return {"rounds": rounds, "rows": rows}


def main() -> None:
    """Measure, print, and with ``--write`` save the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        help=f"parts to run: {', '.join(PARTS)} (default all but flower, which needs "
        "an otherwise idle machine for a quarter of an hour)",
    )
    parser.add_argument("--repeats", type=int, default=40, help="repetitions of each timing")
    parser.add_argument("--peers", type=Path, help="Python with changepoint-online, focus-cpt")
    parser.add_argument("--smpybandits", type=Path, help="Python with SMPyBandits")
    parser.add_argument("--flower", type=Path, help="Python with flwr[simulation] and torch")
    parser.add_argument("--pfl", type=Path, help="Python with pfl[pytorch]")
    parser.add_argument("--exact", action="store_true", help="also the exact test (15 minutes)")
    parser.add_argument("--write", action="store_true", help="update results.json and the docs")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}; known: {', '.join(PARTS)}")
    parts = args.parts or PARTS[:-1]
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
        before = (results.get("smpybandits") or {}).get("rows", {})
        results["smpybandits"] = _smpybandits(args.smpybandits, args.exact, args.repeats)
        results["smpybandits"]["rows"] = before | results["smpybandits"]["rows"]
    if "scaling" in parts:
        results["scaling"] = scaling.table(args.repeats)
    if "coordinator" in parts:
        results["coordinator"] = coordinator.table(args.repeats)
    if "service" in parts:
        results["service"] = service.table(args.repeats)
    if "large_fleets" in parts:
        results["large_fleets"] = large_fleets.table(args.repeats)
    if "assignment" in parts:
        results["assignment"] = assignment.table(args.repeats)
    if "links" in parts:
        results["links"] = links.table(args.repeats)
    if "detector" in parts:
        results["detector"] = detector.table(args.repeats, args.peers)
    if "training" in parts:
        from benchmarks import training  # it needs torch, the others do not

        results["training"] = training.table(args.repeats, args.flower, args.pfl)
    if "flower" in parts:
        from benchmarks import flower  # it needs flwr

        results["flower"] = flower.table()
    if GPU_RESULTS.exists():  # measured separately, by benchmarks.gpu
        results["gpu"] = json.loads(GPU_RESULTS.read_text())
    page = write_page(results, Path("docs/benchmarks.md") if args.write else None)
    results.pop("gpu", None)
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
