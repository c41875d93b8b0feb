"""A federation over real Flower processes in trouble: ``... federation [--rounds N]``.

Five clients learn the digits, twice. The first time nothing happens. The second time client 4 sends
10^4 everywhere in every round, another client's SuperNode is killed every ten rounds and started
again, and one upload in twenty is lost. It prints the final accuracy of both.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

CLIENTS, LIAR = 5, 4
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


def play(rounds: int, troubled: bool) -> tuple[float, int]:
    """Run the federation; return the final accuracy and the number of kills."""
    from freshband.flower._deployment import Deployment

    folder = Path(tempfile.mkdtemp(prefix="freshband-federation-"))
    seen: list[float] = []
    lines: list[str] = []
    kills: list[threading.Thread] = []
    with Deployment(make_app(folder, rounds, troubled), CLIENTS) as federation:

        def tell(line: str) -> None:
            lines.append(line)
            match = re.search(r"round (\d+) of \d+: accuracy ([\d.]+)", line)
            if match is None:
                return
            seen.append(float(match[2]))
            if troubled and int(match[1]) % 10 == 0:
                victim = len(kills) % LIAR
                kills.append(
                    threading.Thread(
                        target=_kill_and_restart, args=(federation, victim), daemon=True
                    )
                )
                kills[-1].start()

        code = federation.run({"clients": CLIENTS, "rounds": rounds}, tell)
        if code:
            raise RuntimeError("\n".join(["the run failed", *lines[-30:]]))
    return seen[-1], len(kills)


def main() -> int:
    """Play both; return 1 if trouble costs more than a point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    chosen = parser.parse_args()
    calm, _ = play(chosen.rounds, troubled=False)
    print(f"undisturbed: {calm:.3f}", flush=True)
    rough, kills = play(chosen.rounds, troubled=True)
    print(f"one of five malicious, {kills} kills, 5 % of uploads lost: {rough:.3f}")
    return int(rough < calm - 0.01)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="freshband-federation-") as tempfile.tempdir:
        sys.exit(main())
