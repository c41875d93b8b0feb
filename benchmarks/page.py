"""The documentation's page of benchmarks, written from measured results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["flower_table", "message_table", "write_page"]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _simulation(part: dict[str, Any]) -> str:
    rows = sorted(part["rows"].items(), key=lambda item: item[1]["times_air"])
    air = part["air_ns_per_round"]
    return (
        "## Simulation\n\n"
        "The air is the channel environment. The lower limit is the time it takes to draw the air, "
        "`rng.random((T, N)) < means`: no simulation can be faster. "
        f"{part['setting']}; a run opens the air, draws it, runs the policy, updates "
        f"the ages and measures. Drawing the air alone takes {air:.1f} ns per round. With "
        f"{part['large']} a round of `bayes` takes {part['large_us_per_round']:.1f} µs.\n\n"
        + _table(
            ["policy", "ns per round", "times the air"],
            [
                [f"`{name}`", f"{row['ns_per_round']:.0f}", f"{row['times_air']:.1f}"]
                for name, row in rows
            ],
        )
    )


def _smpybandits(part: dict[str, Any]) -> str:
    return (
        "## Against SMPyBandits\n\n"
        f"One run of GLR-UCB with one client, five channels and {part['rounds']:,} rounds; "
        "freshband always uses the exact test. SMPyBandits 0.9.7 plays one arm per round, so "
        "freshband does too. By default SMPyBandits tests only every 10th observation and every "
        "10th split; its plain GLR-UCB uses the Gaussian divergence. Its cost grows with the "
        "square of the time between changes, so its rows are means over five (or two) instances; "
        "the row with the exact test is a single run, timed separately.\n\n"
        + _table(
            ["setting of SMPyBandits", "SMPyBandits", "freshband", "ratio"],
            [
                [
                    name,
                    f"{row['theirs_s']:.1f} s",
                    f"{row['ours_s'] * 1e3:.2f} ms",
                    f"{row['theirs_s'] / row['ours_s']:,.0f}",
                ]
                for name, row in part["rows"].items()
            ],
        )
    )


def _scaling(part: dict[str, Any]) -> str:
    horizon = _table(
        ["rounds", "ns per round", "times the shortest", "peak memory", "state"],
        [
            [
                f"{int(rounds):,}",
                f"{row['ns_per_round']:.0f}",
                f"{row['times_shortest']:.2f}",
                f"{row['peak_bytes'] / 1e6:.1f} MB",
                f"{row['state_bytes'] / 1e3:.0f} kB",
            ]
            for rounds, row in part["horizon"].items()
        ],
    )
    channels = _table(
        ["channels", "clients", "µs per round", "ns per round and channel"],
        [
            [
                n,
                str(row["clients"]),
                f"{row['us_per_round']:.2f}",
                f"{row['ns_per_round_and_channel']:.0f}",
            ]
            for n, row in part["channels"].items()
        ],
    )
    return (
        f"## Growth\n\n`{part['policy']}` with N=5, M=2 over longer horizons. The air is drawn in "
        "blocks, so memory is that of one block and of the convex hulls of the detector.\n\n"
        f"{horizon}\n\nMore channels, half as many clients, 2,000 rounds:\n\n{channels}"
    )


def _coordinator(part: dict[str, Any]) -> str:
    return (
        "## Coordinator\n\n`plan()` and `observe()` called from Python, once per round; nearly all "
        "of the time is spent on handing arrays to compiled code.\n\n"
        + _table(
            ["policy and size", "µs per round"],
            [[name, f"{row['us_per_round']:.0f}"] for name, row in part.items()],
        )
    )


def _service(part: dict[str, Any]) -> str:
    return (
        "## Service\n\n`freshband serve` over the loopback, on one core, with a client on another "
        f"that waits for every answer ({part['setting']}). A round is one request, which reports "
        "the outcomes of the round before and plans the next. Durable rounds are on the disk "
        f"before their answer leaves; a sync alone takes {part['sync_ms']:.2f} ms here.\n\n"
        + _table(
            ["coordinators", "rounds per second", "median", "99th percentile", "CPU per round"],
            [
                [
                    name,
                    f"{row['rounds_per_s']:,.0f}",
                    f"{row['median_ms']:.2f} ms",
                    f"{row['p99_ms']:.2f} ms",
                    f"{row['cpu_us']:.0f} µs",
                ]
                for name, row in part["rows"].items()
            ],
        )
    )


def _large_fleets(part: dict[str, Any]) -> str:
    return (
        f"## Large fleets\n\n`plan()` and `observe(outcomes, clients=...)` for "
        f"{part['channels']:,} channels. All clients have the same age at first, so that many ties "
        "have to be broken. The lower limit reads the ages once and writes a plan, as numpy does "
        "it. What a policy learns from a thousand outcomes costs the same for any number of "
        "clients, and is most of the cost for the smallest. Memory is the peak, less that of "
        "2,000 clients.\n\n"
        + _table(
            ["policy", "µs per round", "ns per client", "times the limit", "bytes per client"],
            [
                [
                    name,
                    f"{row['us_per_round']:,.0f}",
                    f"{row['ns_per_client']:.1f}",
                    f"{row['times_limit']:.1f}",
                    f"{row['bytes_per_client']:.0f}",
                ]
                for name, row in part["rows"].items()
            ],
        )
    )


def _assignment(part: dict[str, Any]) -> str:
    return (
        "## Assignment\n\nMicroseconds to decide who sends where if links differ: the assignment "
        "that maximises the sum of urgency times success rate, for random rates and ages. Ours "
        "runs inside the compiled round; SciPy's `linear_sum_assignment` is called from Python.\n\n"
        + _table(
            ["size", "freshband", "SciPy", "ratio"],
            [
                [
                    size,
                    f"{row['freshband']:.2f}",
                    f"{row['SciPy']:.2f}",
                    f"{row['SciPy'] / row['freshband']:.1f}",
                ]
                for size, row in part.items()
            ],
        )
    )


def _links(part: dict[str, Any]) -> str:
    rows = []
    for size, row in part["rows"].items():
        for kind, each in row["kinds"].items():
            rows.append(
                [
                    f"{size}, {kind}",
                    f"{each['ratio']:.3f} ± {each['error']:.3f}",
                    f"{each['shared_ratio']:.3f} ± {each['shared_error']:.3f}",
                ]
            )
    costs = ", ".join(f"{row['us_per_round']:.0f} µs at {at}" for at, row in part["rows"].items())
    return (
        "## Links that differ\n\nMean age over the oracle's where links may differ per client "
        f"([what the rows mean](choosing.md#links-that-differ)), over {part['instances']} airs. "
        f"A round costs at most {costs}.\n\n"
        + _table(["air", "`bayes` on links", "`bayes`, all links taken as shared"], rows)
    )


def _detector(part: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for row in part["rows"].values() for name in row))
    return (
        "## Detector\n\nNanoseconds per observation against the length of the stream "
        f"({part['setting']}). freshband and the scans make the same decision at every "
        "observation. changepoint-online (Python) and focus-cpt (C++, called from Python) compute "
        "the statistic of FOCuS at every observation, over the same splits.\n\n"
        + _table(
            ["observations", *names],
            [
                [f"{int(n):,}", *(f"{row[name]:,.0f}" if name in row else "–" for name in names)]
                for n, row in part["rows"].items()
            ],
        )
    )


def _training(part: dict[str, Any]) -> str:
    race = _table(
        ["contestant", "seconds per round", "times the plain loop"],
        [
            [name, f"{row['seconds']:.2f}", f"{row['times_plain']:.2f}"]
            for name, row in part["rows"].items()
        ],
    )
    small, crowd = part["small"], part["crowd"]
    return (
        "## Training on a CPU\n\n"
        f"{part['setting']}. The plain loop is the simplest program: one client after another, a "
        "deep copy of the model for each, `torch.optim.SGD`, one thread. All begin with the same "
        "weights and batches, and after the first round the models differ by at most a thousandth "
        "of the distance that the round moved them. Flower trains two clients at a time with Ray, "
        "pfl one; rounds of freshband are complete, with scheduling, checks and aggregation.\n\n"
        f"{race}\n\n"
        "A round's multiplications alone, on two threads, take "
        f"{part['limit_s']:.2f} s as products of 1024×1024 matrices, the best this machine can do, "
        f"and {part['im2col_s']:.2f} s in the matrix sizes of im2col: freshband "
        f"with two workers runs at {part['share_of_limit']:.0%} of the former. Valuing "
        "every client's contribution, including leave-one-out errors, adds "
        f"{part['contribution_share']:.0%} to a round.\n\n"
        'Smaller runs; rows without "with" are training alone:\n\n'
        + _table(
            ["run", "per round"],
            [
                ["digits, 10 clients, small CNN", f"{small['training']:.1f} ms"],
                ["… with contributions", f"{small['with contributions']:.1f} ms"],
                ["… with test accuracy", f"{small['with test accuracy']:.1f} ms"],
                [
                    f"{crowd['clients']:,} clients, small CNN, with contributions",
                    f"{crowd['seconds']:.2f} s",
                ],
            ],
        )
        + f"\n\nThe run with {crowd['clients']:,} clients takes at most "
        f"{crowd['peak_bytes'] / 1e6:.0f} MB, of which {crowd['empty_bytes'] / 1e6:.0f} MB are "
        "Python and torch before anything is loaded."
    )


def _gpu(part: dict[str, Any]) -> str:
    rows, batches = [], []
    for model, found in part["models"].items():
        loop = found["round_ms"]["sequential, tf32"]
        for way, took in found["round_ms"].items():
            bound = found["roofline_ms"]["bf16" if way.endswith("bf16") else "tf32"]
            rows.append(
                [f"{model}, {way}", f"{took:.1f}", f"{loop / took:.1f}", f"{took / bound:.1f}"]
            )
        for precision, bound in found["roofline_ms"].items():
            rows.append([f"{model}, roofline, {precision}", f"{bound:.1f}", "", "1"])
        speeds = found["runs_per_batch"]["160"]
        batches.append([model, *(f"{speeds[runs]:.0f}" for runs in ("1", "4", "8"))])
    small = part["models"]["cnn8"]["kernels_bf16_ms"]
    large = part["models"]["resnet18"]["kernels_bf16_ms"]
    return (
        "## Training on a GPU\n\n"
        f"{part['device']}, torch {part['torch']}; 20 clients, five steps of 64 images of 3×32×32. "
        "The sequential loop trains one client after another with torch's own kernels, "
        "channels-last. The roofline sums over layers the larger of two times: products at "
        f"the measured rate ({part['ceilings']['bf16'] / 1e12:.0f} TFLOP/s in bf16, "
        f"{part['ceilings']['tf32'] / 1e12:.0f} in tf32), and bytes at the measured bandwidth "
        f"({part['ceilings']['copy'] / 1e12:.1f} TB/s). `auto` chooses `kernels` for these "
        "models and `mapped` for your own modules. Measured with `python -m benchmarks.gpu`.\n\n"
        + _table(
            ["model and path", "ms per round", "times faster than the loop", "× roofline"], rows
        )
        + "\n\nFewer clients cost less: with 1, 5, 10 and 20, a round of cnn8 takes "
        + ", ".join(f"{small[f'{n} clients']:.1f}" for n in (1, 5, 10, 20))
        + " ms, of ResNet-18 "
        + ", ".join(f"{large[f'{n} clients']:.0f}" for n in (1, 5, 10, 20))
        + f" ms. Leave-one-out errors of 20 clients on 160 samples each take {small['trials']:.1f} "
        f"and {large['trials']:.1f} ms, a test set of 10,000 {small['exam']:.1f} and "
        f"{large['exam']:.0f} ms. Several whole runs in one batch, in rounds per second "
        "summed over the runs:\n\n"
        + _table(["model", "1 run", "4 runs", "8 runs"], batches)
        + "\n\nOne run of ResNet-18 fills the GPU; batching runs of cnn8 gains a fifth."
    )


def flower_table(part: dict[str, Any]) -> str:
    """Return seconds per round over Flower, and the scheduler's part of them, as a table."""
    ways = ("one process", "simulation", "cold", "deployment")

    def seconds(found: dict[str, Any], way: str) -> str:
        return f"{found[way]['round_s']:.3g}" if way in found else "–"

    def spent(found: dict[str, Any], way: str) -> str:
        if way not in found:
            return "–"
        row = found[way]
        return (
            f"{1e6 * row['scheduler_s']:.0f} µs, {100 * row['scheduler_s'] / row['round_s']:.2g} %"
        )

    return _table(
        [
            "clients",
            "one process (`freshband train`)",
            "Flower's simulation",
            "deployment, TLS, as Flower does it",
            "deployment, TLS, warm",
            "scheduler, of a simulated round",
            "of a deployed, warm round",
        ],
        [
            [
                clients,
                *(seconds(found, way) for way in ways),
                *(spent(found, way) for way in ("simulation", "deployment")),
            ]
            for clients, found in part["rows"].items()
        ],
    )


def message_table(stages: dict[str, float]) -> str:
    """Return the CPU seconds of one message as a table."""
    return _table(
        ["a process for one message", "CPU seconds"],
        [[name, f"{seconds:.2g}"] for name, seconds in stages.items()],
    )


def _flower(part: dict[str, Any]) -> str:
    return (
        "## Over Flower\n\n"
        f"Seconds per round of digits with flwr {part['flwr']}, all on this machine: in one "
        "process, in Flower's simulation engine, and as one SuperLink and a SuperNode for each "
        "client, with TLS and keys. Medians over rounds, without the first one, in which "
        "processes start, and the last, which evaluates the test set. The scheduler's part is "
        "planning and learning from acknowledgements. Measured with `python -m benchmarks "
        f"flower`.{part.get('note', '')}\n\n"
        + flower_table(part)
        + "\n\nWhat Flower's way costs: a process for each "
        "message, and pauses of up to three seconds in which a node does not ask for work. The "
        "training itself is the last line:\n\n" + message_table(part["message"])
    )


_SECTIONS = {
    "simulation": _simulation,
    "smpybandits": _smpybandits,
    "scaling": _scaling,
    "coordinator": _coordinator,
    "service": _service,
    "large_fleets": _large_fleets,
    "assignment": _assignment,
    "links": _links,
    "detector": _detector,
    "training": _training,
    "flower": _flower,
    "gpu": _gpu,
}


def write_page(results: dict[str, Any], path: Path | None) -> str:
    """Return the page, and write it to ``path`` if one is given."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("python", "numpy", "numba"))
    head = (
        "# Benchmarks\n\nEvery table is one run on one machine; its rows were timed in turn and "
        "are medians, so compare rows within a table. Measured with `make bench`; this page is "
        "written by `python -m benchmarks --write` from `benchmarks/results.json`.\n\n"
        f"Machine: {machine['cpu']}, {machine['cores']} cores; {versions}."
    )
    parts = [_SECTIONS[name](results[name]) for name in _SECTIONS if results.get(name)]
    page = "\n\n".join([head, *parts]) + "\n"
    if path is not None:
        path.write_text(page, encoding="utf-8")
        if results.get("flower"):
            other = path.with_name("flower.md")
            _renew(other, flower_table(results["flower"]))
            _renew(other, message_table(results["flower"]["message"]), "message")
    return page


def _renew(path: Path, table: str, mark: str = "measured") -> None:
    """Write a table between the marks of another page."""
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition("\n<!-- until here -->")
    if not begin or not end:
        raise ValueError(f"{path} has no place for the table")
    path.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")
