"""What a round costs over Flower: ``python -m benchmarks.flower [--deployment]``.

The same training on digits three ways: in one process (`Federation`), in Flower's simulation
engine, and as real processes over TLS on this machine. The first round, in which processes start,
is left out; so is looking at the test set. The last column is the scheduler's share of a round:
planning and learning from acknowledgements.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["deployment", "one_process", "simulation"]

Row = dict[str, float]


def _settings(clients: int, rounds: int) -> dict[str, Any]:
    return {"clients": clients, "rounds": rounds, "eval_every": rounds, "seed": 0}


def one_process(clients: int, rounds: int) -> Row:
    """Time rounds of `Federation`."""
    from freshband.federated import Federation, Training

    with Federation(Training(**_settings(clients, rounds))) as federation:
        seconds = [record.seconds for record in federation]
    return {"round_s": statistics.median(seconds[1:-1])}


def simulation(clients: int, rounds: int) -> Row:
    """Time rounds in Flower's simulation engine, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        command = [sys.executable, "-m", "benchmarks.flower", "--play", str(out)]
        command += ["--clients", str(clients), "--rounds", str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not out.exists():
            raise RuntimeError(done.stderr[-2000:])
        row: Row = json.loads(out.read_text())
        return row


def _play(out: Path, clients: int, rounds: int) -> None:
    from flwr.app import ArrayRecord, Context, Message
    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import ClientAppCallable
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    from freshband.federated import Training
    from freshband.flower import build_rounds, channel_mod
    from freshband.flower.template import client_app
    from freshband.flower.template.task import open_task

    config = _settings(clients, rounds)
    settings = Training(**config)

    def configured(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        state, node = context.state, context.node_config
        return call_next(message, Context(context.run_id, context.node_id, node, state, config))

    app = ClientApp(mods=[configured, channel_mod()])
    app.train()(client_app.train)
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        model = ArrayRecord(open_task(settings).model().state_dict())
        loop = build_rounds(settings, grid, model)
        loop.step()
        compiled = loop.scheduler_seconds
        records = [loop.step() for _ in range(rounds - 1)]
        spent = (loop.scheduler_seconds - compiled) / len(records)
        median = statistics.median(record.seconds for record in records)
        trained = statistics.mean(record.trained for record in records)
        row = {"round_s": median, "scheduler_s": spent, "trained": trained}
        out.write_text(json.dumps(row))

    cores = os.cpu_count() or 1
    run_simulation(server, app, clients, backend_config={"init_args": {"num_cpus": cores}})


def deployment(clients: int, rounds: int) -> Row:
    """Time rounds of real processes, over TLS and with keys."""
    from freshband.federated.result import load_training
    from freshband.flower.deployment import Deployment
    from freshband.flower.scaffold import write_app

    with tempfile.TemporaryDirectory() as folder:
        app, out = Path(folder) / "digits", Path(folder) / "out"
        write_app(app, clients=clients, rounds=rounds)
        with Deployment(app, clients) as federation:
            code = federation.run({"out": str(out)})
        if code:
            raise RuntimeError(f"the run ended with {code}")
        seconds = load_training(out / "result.nc").seconds.values
    return {"round_s": float(statistics.median(seconds[1:]))}


def _table(rows: dict[int, dict[str, Row]]) -> None:
    print("| clients | one process | simulation | deployment | scheduler | of a round |")
    print("|---|---|---|---|---|---|")
    for clients, found in rows.items():
        times = [
            f"{1e3 * found[name]['round_s']:,.1f} ms" if name in found else "–"
            for name in ("one process", "simulation", "deployment")
        ]
        spent = found["simulation"]["scheduler_s"]
        share = spent / found["simulation"]["round_s"]
        print(f"| {clients} | {' | '.join(times)} | {1e6 * spent:.0f} µs | {share:.3%} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[2, 8, 20])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--deployment", action="store_true", help="also real processes: minutes")
    parser.add_argument("--deployment-rounds", type=int, default=4)
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.play is not None:
        _play(chosen.play, chosen.clients[0], chosen.rounds)
        return
    rows: dict[int, dict[str, Row]] = {}
    for clients in chosen.clients:
        rows[clients] = {
            "one process": one_process(clients, chosen.rounds),
            "simulation": simulation(clients, chosen.rounds),
        }
        if chosen.deployment:
            rows[clients]["deployment"] = deployment(clients, chosen.deployment_rounds)
    _table(rows)


if __name__ == "__main__":
    main()
