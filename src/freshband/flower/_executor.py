"""Runs the apps of a machine's Flower processes: ``python -m freshband.flower._executor``.

Flower's own ``flower-superexec`` starts a process for each message to a client and for each run,
which imports PyTorch, Flower and the app's libraries anew. This one has imported them and forks:
the child is a process of its own as before, and is ready at once. What the first message of an app
still had to import is imported here too before the next. Unlike ``flower-superexec`` in Flower's
default mode it proves that it may take messages, and no token is seen in a list of processes.

Its arguments are the authority's certificate, a file with the secret it shares with the processes
it serves, the seconds between two questions for work, and modules to import. Its standard input
names these processes, SuperNodes or a SuperLink, one JSON object per line with the fields of
`Host`; at its end this process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, Final, NamedTuple, NoReturn

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from freshband.flower._haste import hasten

# Where Flower's commands are, which run one message or one run; they are called like the task.
_COMMANDS: Final = {
    TaskType.CLIENT_APP: "flwr.supernode.cli",
    TaskType.SERVER_APP: "flwr.superlink.cli",
}
# What every app with PyTorch needs; the first optimiser of a process imports torch._dynamo.
_NEEDED: Final = ("flwr.supernode.cli", "torch", "torch._dynamo", "freshband.flower.mod",
                  "freshband.flower.building")  # fmt: skip
_ACQUIRE: Final = "/flwr.proto.Runtime/AcquireTask"


class Host(NamedTuple):
    """A SuperNode or SuperLink: where it answers, its process, and a file for its apps' output."""

    address: str
    pid: int
    log: str


class Job(NamedTuple):
    """What a forked process does: a task of a host; in the end it says what it imported."""

    host: Host
    task: TaskType
    token: str
    said: IO[str]


class Executor:
    """Asks its hosts for work and forks for each task."""

    def __init__(self, authority: Path, secret: Path, pause: float) -> None:
        self._authority = authority
        self._sign = SuperExecAuthHttpInterceptor(
            master_secret=secret.read_bytes(), protected_methods={_ACQUIRE}
        )
        self._pause = pause
        self._hosts: dict[Host, RuntimeHttpClient] = {}
        self._children: dict[int, IO[str]] = {}  # where each will say what it imported
        self._unread = b""

    def serve(self) -> Job | None:
        """Serve until the standard input ends; return None then, and in a child what it does."""
        while self._listen():
            for host, client in list(self._hosts.items()):
                if not Path(f"/proc/{host.pid}").exists():
                    del self._hosts[host]
                elif (found := _ask(client)) is not None:
                    said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the child is over
                    if not (child := os.fork()):
                        return Job(host, *found, said)
                    self._children[child] = said
            for child in self._ended():
                with self._children.pop(child) as told:
                    told.seek(0)
                    load(told.read().split())
        return None

    def run(self, job: Job) -> NoReturn:
        """Be the process of one task, as if Flower had started its command."""
        host, command = job.host, str(job.task)
        if host.log:
            with Path(host.log).open("ab") as log:
                for stream in (1, 2):
                    os.dup2(log.fileno(), stream)
        Path("/proc/self/comm").write_text(command)
        if "numpy" in sys.modules:  # its global generator would go on alike in every child
            sys.modules["numpy"].random.seed()
        known, code = set(sys.modules), 1
        sys.argv = [command, "--runtime-api-address", host.address, "--token", job.token,
                    "--root-certificates", str(self._authority),
                    "--parent-pid", str(host.pid)]  # fmt: skip
        try:
            program = getattr(
                importlib.import_module(_COMMANDS[job.task]), command.replace("-", "_")
            )
            hasten(self._pause)
            program()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            with contextlib.suppress(Exception):
                new = {name: part for name, part in sys.modules.items() if name not in known}
                job.said.write("\n".join(name for name, part in new.items() if _is_installed(part)))
                job.said.flush()
                atexit._run_exitfuncs()
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # to take everything apart that was imported takes longer than a fork

    def _listen(self) -> bool:
        """Wait, and learn of new hosts; return False at the end of the input."""
        if not select.select([0], [], [], self._pause)[0]:
            return True
        if not (read := os.read(0, 65536)):
            return False
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            host = Host(**json.loads(line))
            self._hosts[host] = RuntimeHttpClient.from_server_address(
                host.address, False, self._authority.read_bytes(),
                [RuntimeVersionHttpInterceptor(component_name="SuperExec"), self._sign],
            )  # fmt: skip
        return True

    def _ended(self) -> Iterator[int]:
        while self._children and (child := os.waitpid(-1, os.WNOHANG)[0]):
            yield child


def _ask(client: RuntimeHttpClient) -> tuple[TaskType, str] | None:
    """Return a task that waits at a host, and the token for it."""
    try:
        answer = client.AcquireTask(AcquireTaskRequest(supported_task_types=list(_COMMANDS)))
    except httpx.HTTPError:
        return None  # it is starting, or ending
    return (TaskType(answer.task.type), answer.token) if answer.HasField("task") else None


def _is_installed(module: ModuleType) -> bool:
    """Tell whether a module is no part of the app, which may be another one next time."""
    file = getattr(module, "__file__", None) or ""
    return bool(file) and not Path(file).is_relative_to(os.environ.get("FLWR_HOME", "/nowhere"))


def load(names: list[str]) -> None:
    """Import modules, as far as possible, for all children to come."""
    if missing := [name for name in names if name not in sys.modules]:
        for name in missing:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # so that children share this memory


def main(authority: str, secret: str, pause: str, *modules: str) -> None:
    """Serve; in a child run its task."""
    executor = Executor(Path(authority), Path(secret), float(pause))
    load([*_NEEDED, *modules])
    if (job := executor.serve()) is not None:
        executor.run(job)


if __name__ == "__main__":
    main(*sys.argv[1:])
