"""The cost of a round over Flower: ``python -m benchmarks.flower [--deployment]``.

The same training on digits four ways: in one process (`Federation`), in Flower's simulation
engine, and as real processes over TLS on this machine, started anew for each message, as Flower
does by itself ("cold"), or forked from one that has imported what they need. The first round, in
which processes start, and evaluations on the test set are left out. The scheduler's share of a
round is planning and learning from acknowledgements; it is measured in simulation and in
deployment. ``--message`` shows what a process spends on one message.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.page import flower_table, message_table

__all__ = ["deployment", "message", "one_process", "simulation", "table"]

CLIENTS = (2, 8, 20)

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
        seconds = [record.seconds for record in loop]
        out.write_text(json.dumps(_row(seconds, loop.scheduler_seconds)))

    cores = os.cpu_count() or 1
    run_simulation(server, app, clients, backend_config={"init_args": {"num_cpus": cores}})


def deployment(clients: int, rounds: int, *, warm: bool = True) -> Row:
    """Time rounds of real processes, over TLS and with keys."""
    from freshband.federated.result import load_training
    from freshband.flower._deployment import Deployment
    from freshband.flower._scaffold import write_app

    with tempfile.TemporaryDirectory() as folder:
        app, out = Path(folder) / "digits", Path(folder) / "out"
        write_app(app, clients=clients, rounds=rounds)
        with (app / "pyproject.toml").open("a") as project:
            project.write(f"eval-every = {rounds}\n")
        log: list[str] = []
        with Deployment(app, clients, warm=warm) as federation:
            # Twenty clients on two cores may need minutes to register.
            code = federation.run({"out": str(out), "wait-for-clients": 900.0}, tell=log.append)
        if code:
            raise RuntimeError("\n".join(["the run failed:", *log[-20:]]))
        result = load_training(out / "result.nc")
    if result.trained.values[0] < clients:
        raise RuntimeError("some client was absent in the first round")
    return _row(result.seconds.values.tolist(), result.scheduler_seconds.values.tolist())


# What a ClientApp process does for one message, apart from talking to its SuperNode.
_STAGES = {
    "import Flower": "from flwr.supernode.runtime import run_clientapp",
    "import the app, PyTorch and freshband": "from freshband.flower.template import client_app\n"
    "settings = client_app.read_training({'clients': 8})",
    "load the data": "task = client_app.open_task(settings)",
    "first training": "model = task.model(); task.train(model, 0, 1)",
    "every further training": "task.train(model, 0, 2)",
}


def message(repeats: int = 5) -> dict[str, float]:
    """Return the CPU seconds of each stage of one message in a process of its own, medians."""
    lines = ["import json, time", "stages = {}"]
    for name, code in _STAGES.items():
        lines += ["begin = time.process_time()", code]
        lines += [f"stages[{name!r}] = time.process_time() - begin"]
    program = "\n".join([*lines, "print(json.dumps(stages))"])
    found = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: statistics.median(row[name] for row in found) for name in _STAGES}


def _row(seconds: Sequence[float], scheduler: Sequence[float]) -> Row:
    """Return medians, without the first round and the last, which evaluates the test set."""
    return {
        "round_s": statistics.median(seconds[1:-1]),
        "scheduler_s": statistics.median(scheduler[1:-1]),
    }


def table(
    clients: Sequence[int] = CLIENTS, rounds: int = 30, deployment_rounds: int | None = 6
) -> dict[str, Any]:
    """Measure; without ``deployment_rounds`` no real processes are started.

    Returns
    -------
    dict
        By number of clients and mode: seconds per round, and of the scheduler in it.
    """
    rows: dict[str, dict[str, Row]] = {}
    for number in clients:
        row = {"one process": one_process(number, rounds), "simulation": simulation(number, rounds)}
        if deployment_rounds is not None:
            row["cold"] = deployment(number, deployment_rounds, warm=False)
            row["deployment"] = deployment(number, deployment_rounds)
        rows[str(number)] = row
        print(f"{number} clients: {row}", file=sys.stderr)
    return {"flwr": version("flwr"), "rounds": rounds, "rows": rows, "message": message()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--deployment", action="store_true", help="also real processes (minutes)")
    parser.add_argument("--deployment-rounds", type=int, default=6)
    parser.add_argument("--message", action="store_true", help="only the stages of one message")
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.play is not None:
        _play(chosen.play, chosen.clients[0], chosen.rounds)
        return
    if chosen.message:
        print(message_table(message()))
        return
    deployed = chosen.deployment_rounds if chosen.deployment else None
    print(flower_table(table(chosen.clients, chosen.rounds, deployed)))


if __name__ == "__main__":
    main()
