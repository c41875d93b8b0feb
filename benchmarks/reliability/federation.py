"""A federation over real Flower processes in trouble: ``... federation [--rounds N]``.

Five clients learn the digits, twice. The first time nothing happens. The second time client 4 sends
10^4 everywhere in every round, another client's SuperNode is killed every ten rounds and started
again, one upload in twenty is lost, and so is one packet in twenty, below TCP and TLS, where the
system can make such a network; it says so where not. It prints the final accuracy of both. With
``--out DIR`` a program that was stopped goes on from the checkpoints in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from benchmarks.reliability._lossy import count_lost, find_way

CLIENTS, LIAR = 5, 4
SETTINGS = {"partition": "iid"}  # what the liar cannot teach, the others can
_MALICIOUS = f"""
def lie(message, context, call_next):
    reply = call_next(message, context)
    if context.node_config["partition-id"] == {LIAR} and not reply.has_error():
        for record in reply.content.array_records.values():
            for name in list(record):
                record[name] = Array(record[name].numpy() * 0 + 1e4)
    return reply


app = ClientApp(mods=[lie, channel_mod(on_channel, measure_error)])
"""


def make_app(folder: Path, rounds: int, troubled: bool) -> Path:
    """Write the app; with trouble its channels lose updates and a client lies."""
    from freshband.flower._scaffold import write_app

    app = folder / "digits"
    write_app(app, clients=CLIENTS, rounds=rounds)
    server, client = app / "digits" / "server_app.py", app / "digits" / "client_app.py"
    means = [0.95 if troubled else 1.0] * 8
    air = (
        f'model_copy(update={{"channels": "stationary", "channel_options": {{"means": {means}}}}})'
    )
    _change(server, "read_training(config)\n", f"read_training(config).{air}\n")
    if troubled:
        _change(client, "import ArrayRecord", "import Array, ArrayRecord")
        _change(
            client, "app = ClientApp(mods=[channel_mod(on_channel, measure_error)])\n", _MALICIOUS
        )
    return app


def _change(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    if before not in text:
        raise RuntimeError(f"{file} has no {before!r}")
    file.write_text(text.replace(before, after))


def _kill_and_restart(federation: object, client: int) -> None:
    """Kill a SuperNode and all it started; start it until the SuperLink takes it back."""
    from freshband.flower._deployment import Deployment
    from freshband.flower._keeper import marked

    assert isinstance(federation, Deployment)
    log = federation.folder / f"client-{client}.log"
    for _ in range(60):
        for pid in marked(f"{federation.name}/client-{client}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        federation.processes.pop(f"client-{client}").wait()
        already = log.read_bytes().count(b"SuperNode ID")
        node = federation.start_node(client)
        while node.poll() is None:
            if log.read_bytes().count(b"SuperNode ID") > already:
                return
            time.sleep(0.2)
        time.sleep(2.0)


def play(home: Path, rounds: int, troubled: bool) -> dict[str, Any]:
    """Run the federation, or go on from its checkpoints; return what became of it."""
    from freshband.federated.result import load_training
    from freshband.flower._deployment import Deployment

    lines: list[str] = []
    kills: list[threading.Thread] = []
    result, facts = home / "result.nc", home / "facts.json"
    told = {"kills": 0, "seconds": 0.0}
    told |= json.loads(facts.read_text()) if facts.exists() else {}
    app = make_app(Path(tempfile.mkdtemp()), rounds, troubled)
    began = time.monotonic()
    with nullcontext() if result.exists() else Deployment(app, CLIENTS) as federation:

        def tell(line: str) -> None:
            lines.append(line)
            match = re.search(r"round (\d+) of \d+: accuracy ([\d.]+)", line)
            if match is None or federation is None:
                return
            if int(match[1]) % 10 == 0:
                print(f"{home.name}: {match[0]}, {time.monotonic() - began:.0f} s", flush=True)
            if troubled and int(match[1]) % 10 == 0 and int(match[1]) < rounds:
                victim = (told["kills"] + len(kills)) % LIAR
                restart = threading.Thread(
                    target=_kill_and_restart, args=(federation, victim), daemon=True
                )
                kills.append(restart)
                restart.start()

        if federation is not None:
            config = {**SETTINGS, "clients": CLIENTS, "rounds": rounds, "out": str(home)}
            code = federation.run(config, tell)
            told["kills"] += len(kills)
            told["seconds"] += time.monotonic() - began
            facts.parent.mkdir(parents=True, exist_ok=True)
            facts.write_text(json.dumps(told))
            if code:
                raise RuntimeError("\n".join(["the run failed", *lines[-30:]]))
    found = load_training(result)
    refused = found.refused.sum("round").values.tolist()
    delivered = float(found.delivered.isel(client=slice(LIAR)).mean())
    accuracy = [float(each) for each in found.accuracy.values]
    return {**told, "accuracy": accuracy, "refused": refused, "delivered": delivered}


def _apart(home: Path, rounds: int, before: list[str], name: str) -> dict[str, Any]:
    """Play one of both in a process of its own, which ``before`` gives another network."""
    answer = home / f"{name}.json"
    here = [sys.executable, "-m", "benchmarks.reliability.federation", "--rounds", str(rounds)]
    subprocess.run([*before, *here, "--out", str(home), "--only", name], check=True)
    told: dict[str, Any] = json.loads(answer.read_text())
    return told


def main() -> int:
    """Play both; return 1 if trouble costs more than a point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, help="folder for checkpoints, results and numbers")
    parser.add_argument("--only", choices=("undisturbed", "troubled"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    home = (chosen.out or Path(tempfile.mkdtemp())).resolve()
    home.mkdir(parents=True, exist_ok=True)
    if chosen.only:
        lost = count_lost()
        told = play(home / chosen.only, chosen.rounds, troubled=chosen.only == "troubled")
        (home / f"{chosen.only}.json").write_text(json.dumps({**told, "lost": lost}))
        return 0
    lossy, way = find_way()
    print(f"packets are dropped by {way}" if lossy else f"NO packet is dropped: {way}", flush=True)
    calm = _apart(home, chosen.rounds, [], "undisturbed")
    rough = _apart(home, chosen.rounds, lossy, "troubled")
    for name, told in (("undisturbed", calm), ("troubled", rough)):
        print(
            f"{name}: accuracy {told['accuracy'][-1]:.3f}, {told['delivered']:.0%} of the honest "
            f"updates arrived, refused by client {told['refused']}, {told['kills']} kills, "
            f"{told['lost']} of 2000 datagrams lost, {told['seconds']:.0f} s"
        )
    return int(rough["accuracy"][-1] < calm["accuracy"][-1] - 0.01)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="freshband-federation-") as tempfile.tempdir:
        sys.exit(main())
