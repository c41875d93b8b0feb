"""Rounds per second and latency of the service, over the loopback.

The server runs on one core and the client, which waits for every answer, on another. A round is one
request: it reports the outcomes of the round before and plans the next.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["table"]

_CLIENTS, _CHANNELS = 20, 30
_ROUNDS = 3000


class _Connection:
    """A connection to one coordinator, as cheap as Python allows."""

    def __init__(self, port: int, name: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            f"POST /v1/coordinators/{name}/plan HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    def send(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self._socket.sendall(self._head + b"%d\r\n\r\n" % len(data) + data)

    def receive(self) -> dict[str, Any]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, rest = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(rest) < length:
            rest += self._more()
        if b" 200 " not in head[:16]:
            raise RuntimeError(f"the service answered {rest.decode()}")
        reply: dict[str, Any] = json.loads(rest)
        return reply

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise RuntimeError("the service closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()


def _measure(coordinators: int, state: Path | None, rounds: int) -> dict[str, float]:
    """Start a service and play rounds with each of its coordinators, at the same time."""
    cores = sorted(os.sched_getaffinity(0))
    names = ["default", *(f"c{number}" for number in range(1, coordinators))]
    table = f"policy = 'bayes'\nn_clients = {_CLIENTS}\nn_channels = {_CHANNELS}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as more:
        more.write("".join(f"[{name}]\n{table}" for name in names[1:]))
        more.flush()
        command = [sys.executable, "-m", "freshband", "serve", "--policy", "bayes", "--port", "0"]
        command += ["--clients", str(_CLIENTS), "--channels", str(_CHANNELS)]
        command += ["--coordinators", more.name]
        command += [] if state is None else ["--state", str(state)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {cores[0]}),
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            os.sched_setaffinity(0, {cores[-1]})
            connections = [_Connection(port, name) for name in names]
            before = _cpu_seconds(process.pid)
            found = _play(connections, rounds)
            used = _cpu_seconds(process.pid) - before
            return {**found, "cpu_us": used / (rounds * coordinators) * 1e6}
        finally:
            os.sched_setaffinity(0, set(cores))
            process.terminate()
            process.wait()


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, which does not depend on what else runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _play(connections: list[_Connection], rounds: int) -> dict[str, float]:
    rng, seconds = random.Random(0), []
    for connection in connections:
        connection.send({"round": 1})
        connection.receive()
    began = time.perf_counter()
    for t in range(2, rounds + 2):
        outcomes = [rng.random() < 0.7 for _ in range(_CLIENTS)]
        sent = []
        for connection in connections:
            sent.append(time.perf_counter())
            connection.send({"round": t, "delivered": outcomes})
        for at, connection in zip(sent, connections, strict=True):
            connection.receive()
            seconds.append(time.perf_counter() - at)
    total = time.perf_counter() - began
    for connection in connections:
        connection.close()
    seconds.sort()
    return {
        "rounds_per_s": len(seconds) / total,
        "median_ms": statistics.median(seconds) * 1e3,
        "p99_ms": seconds[int(len(seconds) * 0.99)] * 1e3,
    }


def _sync_ms(folder: Path, count: int = 300) -> float:
    """Return the median milliseconds to make a line durable, with nothing else."""
    sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
    handle, took = os.open(folder / "line", os.O_WRONLY | os.O_CREAT | os.O_APPEND), []
    for _ in range(count):
        os.write(handle, b"x" * 300)
        began = time.perf_counter()
        sync(handle)
        took.append(time.perf_counter() - began)
    os.close(handle)
    return statistics.median(took) * 1e3


def table(repeats: int) -> dict[str, Any]:
    """Measure with and without durability; of several turns, each row's medians are kept."""
    rows = {
        "in memory": (1, False),
        "durable": (1, True),
        "durable, 8 coordinators": (8, True),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    with tempfile.TemporaryDirectory() as folder:
        sync = _sync_ms(Path(folder))
        for turn in range(max(1, min(5, repeats // 8))):
            for name, (coordinators, durable) in rows.items():
                state = Path(folder) / f"{turn}-{coordinators}.npz" if durable else None
                found[name].append(_measure(coordinators, state, _ROUNDS // coordinators))
    middle = {
        name: {key: statistics.median(each[key] for each in some) for key in some[0]}
        for name, some in found.items()
    }
    return {
        "setting": f"{_CLIENTS} clients, {_CHANNELS} channels, bayes",
        "sync_ms": sync,
        "rows": middle,
    }
