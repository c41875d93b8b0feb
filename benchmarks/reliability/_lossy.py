"""A network that loses one packet in twenty, below TCP and TLS, where the system can make one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

__all__ = ["WAYS", "count_lost", "find_way", "lossy_network"]

WAYS = {
    "netem": ["tc qdisc add dev lo root netem loss 5% delay 20ms 10ms"],
    # For kernels without netem: a classic BPF program drops one packet in twenty at random, and a
    # token bucket with a short queue delays the rest, and drops what does not fit.
    "bpf": [
        "ip link set lo mtu 1500",
        "tc qdisc add dev lo root tbf rate 20mbit burst 16kb latency 50ms",
        "tc qdisc add dev lo clsact",
        "tc filter add dev lo egress bpf direct-action bytecode "
        f"'4,32 0 0 {2**32 - 0x1000 + 56},53 0 1 {2**32 * 19 // 20},6 0 0 2,6 0 0 {2**32 - 1}'",
    ],
}


def lossy_network(way: str) -> list[str]:
    """Return a command that runs another one on a lossy, slow loopback of its own.

    Raises `OSError` with the reason where the system cannot make one in this way.
    """
    if not all(shutil.which(name) for name in ("unshare", "ip", "tc")):
        raise OSError("needs unshare, ip and tc")
    shape = " && ".join(["ip link set lo up", *WAYS[way]])
    apart = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    tried = subprocess.run([*apart, shape], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise OSError(f"this machine makes no lossy network by {way}: {tried.stderr.strip()}")
    return [*apart, shape + ' && exec "$@"', "sh"]


def find_way() -> tuple[list[str], str]:
    """Return the command of the first way that works, and its name; or nothing, and why."""
    reasons = []
    for way in WAYS:
        try:
            return lossy_network(way), way
        except OSError as error:
            reasons.append(str(error))
    return [], "; ".join(reasons)


def count_lost(sent: int = 2000) -> int:
    """Return how many of this many datagrams to itself the network of this process loses."""
    lost = 0
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
    ):
        here.bind(("127.0.0.1", 0))
        here.settimeout(0.2)
        for _ in range(sent):
            there.sendto(b"?", here.getsockname())
            try:
                here.recv(1)
            except TimeoutError:
                lost += 1
    return lost
