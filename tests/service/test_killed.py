"""Killed at any moment, the service goes on after the last round it answered."""

from __future__ import annotations

import contextlib
import http.client
import multiprocessing
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband import Coordinator
from freshband.service.catalogue import Catalogue
from freshband.service.server import serve
from tests.service.calling import Client

SETUP = {"policy": "cucb", "n_clients": 3, "n_channels": 4, "seed": 5}
CLIENTS = 3


def outcome(t: int) -> list[bool]:
    return [bool(draw < 0.6) for draw in np.random.default_rng(t).random(CLIENTS)]


def _serve(state: Path, port: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with Catalogue(state) as catalogue:
        catalogue.open("default", SETUP)
        serve(catalogue, port=port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_for(port: int) -> Client:
    for _ in range(10_000):
        client = Client(port)
        with contextlib.suppress(OSError):
            client.call("GET", "/health")
            return client
        time.sleep(0.005)
    raise AssertionError("the service does not answer")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked with compiled code")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_no_round_is_lost_or_applied_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client repeats what was not answered, and the rounds are those of one coordinator."""
    monkeypatch.setattr("freshband.service.hosted._LINES", 20)  # so that snapshots are hit too
    reference = Coordinator(**SETUP, warm_up=True)  # type: ignore[arg-type]
    context = multiprocessing.get_context("fork")
    state, port, t, kills = tmp_path / "state.npz", free_port(), 1, 0
    answers: dict[int, Any] = {}
    when = np.random.default_rng(0)
    while kills < 12:
        child = context.Process(target=_serve, args=(state, port))
        child.start()
        client = wait_for(port)
        last = t + int(when.integers(1, 30))  # then it is killed, at some moment of a request
        killer = threading.Timer(when.uniform(0, 0.003), os.kill, (child.pid, signal.SIGKILL))
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                if t == last:
                    killer.start()
                body = {"round": t} if t == 1 else {"round": t, "delivered": outcome(t - 1)}
                status, reply = client.post("plan", body)
                assert status == 200, reply
                answers[t] = reply["channels"]
                t += 1
        killer.join()
        child.join()
        kills += 1
    assert t > 100
    for planned in range(1, t):
        if planned > 1:
            reference.observe(outcome(planned - 1))
        assert answers[planned] == reference.plan().tolist(), planned
