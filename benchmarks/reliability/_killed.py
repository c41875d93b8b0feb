"""What `kills` kills: commands with the result they must end with, and the service."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from freshband import Coordinator

TIMED = ("seconds", "rounds_per_second", "ns_per_round")  # how long it took differs
_PATIENCE = 600.0  # seconds after which a command that was told to end, or to begin, hangs
# Exit codes of a command that was killed. Where an interruption passed through code that was made
# from text, ``python -m`` turns 130 into a death by SIGINT, which a shell calls 130 as well.
_STOPPED = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130)
_TRAIN = [
    "--dataset", "synthetic", "--set", "dataset.shape=[1,4,4]", "--set", "dataset.n_classes=3",
    "--set", "dataset.n_train=90", "--set", "dataset.n_test=30", "--model", "mlp",
    "--clients", "3", "--device", "cpu", "--set", "workers=1",
]  # fmt: skip


class TrialError(Exception):
    """A command did what it must not do."""


@dataclass(frozen=True)
class Stop:
    """When a command is killed, and how: SIGKILL, SIGTERM, or SIGTERM and soon after SIGKILL."""

    after: float
    how: str
    gap: float = 0.0


class Process:
    """A command in a process group of its own, which is killed as a whole."""

    def __init__(self, arguments: list[str], folder: Path, stop: Stop | None) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self.killed = False
        self._stop = stop
        self._began = time.monotonic()
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "freshband", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        after = _PATIENCE if stop is None else stop.after
        self._timer = threading.Timer(after, self._kill)
        self._timer.start()

    def signal(self, number: int) -> bool:
        """Send a signal to all of the group; return whether there was one."""
        if self.popen.poll() is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)
            return True
        return False

    def _kill(self) -> None:
        how = "hangs" if self._stop is None else self._stop.how
        first = signal.SIGTERM if how.startswith("SIGTERM") else signal.SIGKILL
        self.killed = self.signal(first)
        if how == "SIGTERM, SIGKILL" and self._stop is not None:
            time.sleep(self._stop.gap)
            self.signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end; return the exit code, or raise `TrialError` if it must not have it."""
        try:
            _, said = self.popen.communicate(timeout=2 * _PATIENCE)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            raise TrialError(f"did not end\n{self.popen.communicate()[1][-2000:]}") from None
        self._timer.cancel()
        self._timer.join()
        code = self.popen.returncode
        if self.killed and self._stop is None:
            raise TrialError(f"took longer than {_PATIENCE:.0f} s\n{said[-2000:]}")
        if "Traceback" in said or (code and not (self.killed and code in _STOPPED)):
            raise TrialError(f"exit code {code}\n{said[-2000:]}")
        return code

    @property
    def lasted(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began


class Subject(Protocol):
    """Something that is killed and started again in a folder until it is finished."""

    kills: int

    def attempt(self, stop: Stop | None) -> bool:
        """Start it, or go on; return whether it finished."""
        ...

    def result(self) -> dict[str, str]:
        """Return digests of all that it computed, by name."""
        ...


# --------------------------------------------------------------------------------------- commands


@dataclass(frozen=True)
class Command:
    """A command line, and the files of its result."""

    first: list[str]
    results: tuple[str, ...]
    resumed: list[str] | None = None  # how it is called once ``begun`` exists
    begun: str = ""


COMMANDS = {
    "train": Command(
        ["train", *_TRAIN, "--rounds", "150", "--out", "run", "--checkpoint-every", "5", "--quiet"],
        ("run/result.nc", "run/model.safetensors"),
        ["train", "--resume", "run", "--quiet"],
        "run/run.json",
    ),
    "compare": Command(
        ["compare", *_TRAIN, "--rounds", "25", "--policies", "random,cucb", "--runs", "6",
         "--out", "it.nc", "--quiet"],
        ("it.nc",),
    ),
    "simulate": Command(
        ["simulate", "--policies", "random,cucb,glr-cucb", "--rounds", "50000", "--runs", "20",
         "--threads", "1", "--out", "air.nc", "--quiet"],
        ("air.nc",),
    ),
    "reproduce": Command(
        ["reproduce", "fig2c", "--scale", "quick", "--out", ".", "--quiet"],
        ("[!.]*.nc", "[!.]*.json"),
    ),
    "arena": Command(
        ["arena", "--family", "stationary", "--family", "fig2", "--family", "hard-piecewise",
         "--policies", "random,cucb,glr-cucb", "--threads", "1", "--limit", "1000",
         "--out", "arena", "--quiet"],
        ("arena/arena.nc",),
    ),
}  # fmt: skip


class Called:
    """A command that is called again until it ends by itself."""

    def __init__(self, command: Command, folder: Path) -> None:
        self._command, self._folder = command, folder
        self.kills = 0

    def attempt(self, stop: Stop | None) -> bool:
        """Call it, or resume it."""
        command = self._command
        begun = command.resumed is not None and (self._folder / command.begun).exists()
        arguments = command.resumed if begun and command.resumed is not None else command.first
        process = Process(arguments, self._folder, stop)
        finished = process.wait() == 0
        self.kills += not finished
        return finished

    def result(self) -> dict[str, str]:
        """Return the digests of all numbers in its files but times."""
        found: dict[str, str] = {}
        for pattern in self._command.results:
            for path in sorted(self._folder.glob(pattern)):
                found |= {f"{path.name}: {name}": text for name, text in _digests(path)}
        return found


def _digests(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the parts of a file and their digests, without the times it took."""
    if path.suffix == ".nc":
        import xarray as xr

        whole = xr.load_dataset(path, engine="h5netcdf")
        for name in map(str, whole.variables):
            if name not in TIMED:
                array = whole[name].values
                held = array.tobytes() if array.dtype.kind != "O" else repr(array.tolist()).encode()
                kind = f"{whole[name].dims} {array.dtype} {array.shape}"
                yield name, hashlib.sha256(kind.encode() + held).hexdigest()
        attributes = {name: str(text) for name, text in whole.attrs.items() if name not in TIMED}
        yield "attributes", _digest(attributes)
    elif path.suffix == ".json":
        told = json.loads(path.read_text())
        told["made"].pop("seconds")
        yield "contents", _digest(told)
    else:  # a model, in whose header the order of entries is open
        data = path.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        yield "header", _digest(json.loads(data[8:end]))
        yield "tensors", hashlib.sha256(data[end:]).hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------------------------- the service

SETUP: dict[str, Any] = {
    "policy": "glr-cucb",
    "n_clients": 4,
    "n_channels": 6,
    "seed": 5,
    "max_delay": 20,
}
_REQUESTS = 1500


class Twin:
    """A coordinator in memory, which executes a request once it was answered."""

    def __init__(self, name: str, file: str) -> None:
        self.path, self.file = f"/v1/coordinators/{name}", file
        # The same settings go to the service as JSON, so their types are not known here.
        self.coordinator = Coordinator(**SETUP)
        self._script = _requests(self.coordinator)
        self.call, self.body = next(self._script)

    def execute(self) -> dict[str, Any]:
        """Execute the request, go on to the next, and return the answer that is due."""
        due = self._answer(self.coordinator, self.call, self.body)
        self.call, self.body = next(self._script)
        return due

    @staticmethod
    def _answer(twin: Coordinator, call: str, body: dict[str, Any]) -> dict[str, Any]:
        t = body.get("round", 0)
        if call == "join":
            return {"client": body["client"], "number": twin.join(body["client"])}
        if call == "leave":
            twin.leave(body["client"])
            return {"client": body["client"]}
        if call == "observe":
            return {"round": t, "alarm": twin.observe(body["delivered"], round=t)}
        alarm = twin.observe(body["delivered"]) if "delivered" in body else None
        return {"round": t, "channels": twin.plan().tolist(), "alarm": alarm}


class Served:
    """The service with two coordinators, and a client that repeats what was not answered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._twins = (Twin("default", "state.npz"), Twin("field", "state.npz.d/field.npz"))
        self.kills = self.answered = 0

    def attempt(self, stop: Stop | None) -> bool:
        """Serve until the client has all its answers, which must be the twin's."""
        arguments = ["serve", "--port", "0", "--state", "state.npz", "--policy", SETUP["policy"]]
        for option, name in (("--clients", "n_clients"), ("--channels", "n_channels")):
            arguments += [option, SETUP[name]]
        arguments += ["--seed", SETUP["seed"], "--set", f"max_delay={SETUP['max_delay']}"]
        process = Process([str(each) for each in arguments], self._folder, stop)
        assert process.popen.stdout is not None
        line = process.popen.stdout.readline()
        finished = False
        try:
            if line:
                finished = self._talk(int(line.rsplit(":", 1)[1]))
        except TrialError:
            process.signal(signal.SIGKILL)
            process.popen.communicate()
            raise
        if finished and not process.killed:
            process.signal(signal.SIGTERM)
        code = process.wait()
        self.kills += process.killed
        if process.killed:
            return False  # told to end once more, it goes on
        if not finished or code:
            raise TrialError(f"the service ended by itself, exit code {code}")
        return True

    def _talk(self, port: int) -> bool:
        """Send requests until all are answered or the service is gone."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)

        def ask(method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
            kind = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body), kind)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        with contextlib.closing(connection):
            try:
                ask("PUT", self._twins[1].path, SETUP)  # changes nothing if it is there
                while self.answered < _REQUESTS:
                    twin = self._twins[self.answered % 2]
                    said = ask("POST", f"{twin.path}/{twin.call}", twin.body)
                    asked = f"request {self.answered}, {twin.call} {twin.body}"
                    due = (200, twin.execute())
                    if said != due:
                        raise TrialError(f"{asked}: {said}, not {due}")
                    self.answered += 1
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                return False
        return True

    def result(self) -> dict[str, str]:
        """Compare the states that the service left with the twins', byte by byte."""
        digests = {}
        for twin in self._twins:
            kept = Coordinator.load(self._folder / twin.file).to_bytes()
            if kept != twin.coordinator.to_bytes():
                raise TrialError(f"{twin.file} is not the state of the twin")
            digests[twin.file] = hashlib.sha256(kept).hexdigest()
        return digests


def _requests(twin: Coordinator) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests without end; some outcomes come late, and now and then a client is new."""
    rng, guest = np.random.default_rng(8), ""
    late: dict[str, Any] = {}
    yield "plan", {"round": 1}
    for t in itertools.count(1):
        known = [bool(draw < 0.6) for draw in rng.random(twin.n_clients)]
        silent = rng.random(twin.n_clients) < 0.1
        told = [None if hidden else one for one, hidden in zip(known, silent, strict=True)]
        if silent.any() and not late:
            late = {"round": t, "delivered": known}
        yield "plan", {"round": t + 1, "delivered": told}
        if late and t - late["round"] > 5:
            yield "observe", late
            late = {}
        if t % 10 == 0 and not late:  # lists of outcomes have an entry for every client
            call, guest = ("leave", guest) if guest else ("join", f"guest-{t}")
            yield call, {"client": guest}
            guest = guest if call == "join" else ""
