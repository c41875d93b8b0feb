"""Flower's programs as processes on this machine, which end with the object that started them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, ClassVar, Final, Self, cast

from freshband.errors import FileError, FreshbandError, accessing
from freshband.flower import _keeper
from freshband.flower._keeper import end_marked
from freshband.flower.certificates import make_certificates, make_secret
from freshband.parameters import whole_number

HOST: Final = "127.0.0.1"
_KNOWN: Final = "1.41."  # warm processes use the inside of this version of Flower
CONFIG: Final = "flwr/config.toml"  # Flower's home is the folder it is in
_FRAMES: Final = dict.fromkeys(map(ord, "╭╮╰╯─│"), " ")


class DeploymentError(FreshbandError, RuntimeError):
    """A Flower process failed."""


class Processes:
    """SuperNodes and what belongs to them; keys, certificates and logs are in ``folder``.

    Where they are ``warm``, one process forks the apps of all Flower processes here, and the
    SuperNodes of all ``clients``, wherever they are, together ask for messages 20 times a second.
    ``logs=False`` shows their output instead of writing it to files.
    """

    _imported: ClassVar[tuple[str, ...]] = ()  # what apps need besides what all need

    def __init__(
        self, clients: int, folder: Path | None = None, *, warm: bool = True, logs: bool = True
    ) -> None:
        self.clients: Final = whole_number("clients", clients, at_least=1)
        self._own_folder = folder is None
        made = tempfile.mkdtemp(prefix="freshband-") if folder is None else _claimed(folder)
        self.folder = Path(made).resolve()
        self.name: Final = uuid.uuid4().hex
        self.processes: dict[str, subprocess.Popen[bytes]] = {}  # by the name of their log
        self.warm: Final = warm and sys.platform == "linux" and version("flwr").startswith(_KNOWN)
        self._pause, self._logs = min(max(0.05 * self.clients, 0.1), 1.0), logs
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------ starting

    def start(self) -> None:
        """Make certificates, and start the process that runs apps."""
        # Should this process be killed, another one ends those it started and removes their keys.
        own = str(self.folder) if self._own_folder else ""
        self._keeper = subprocess.Popen(
            [sys.executable, str(Path(_keeper.__file__)), self.name, own],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        with accessing("write", self.folder):
            (self.folder / CONFIG).parent.mkdir(parents=True, exist_ok=True)
            made = make_certificates(self.folder / "certificates", (HOST, "localhost"))
            self._secret = make_secret(self.folder / "keys" / "executor")
        self.certificates = made
        if self.warm:
            command = [sys.executable, "-m", "freshband.flower._executor"]
            told = [str(made.authority), str(self._secret), str(self._pause)]
            self._spawn("executor", [*command, *told, *self._imported], stdin=subprocess.PIPE)

    def start_supernode(
        self, who: str, superlink: str, authority: Path, key: Path, client: int
    ) -> subprocess.Popen[bytes]:
        """Start a SuperNode."""
        program = ["flower-supernode"]
        if self.warm:
            program = [sys.executable, "-m", "freshband.flower._supernode", str(self._pause)]
        told = ["--superlink", superlink, "--root-certificates", str(authority),
                "--auth-supernode-private-key", str(key), "--node-config",
                f"partition-id={client} num-partitions={self.clients}"]  # fmt: skip
        return self._start_host(who, [*program, *told], free_port())

    def _start_host(
        self, who: str, command: Sequence[str], port: int, apps: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start a program that has apps run, and tell the process that runs them about it.

        Their output goes to the log ``apps``, or to that of the program.
        """
        files = self.certificates
        told = ["--host", HOST, "--port", str(port), "--ssl-ca-certfile", str(files.authority),
                "--ssl-certfile", str(files.server), "--ssl-keyfile", str(files.key)]  # fmt: skip
        if not self.warm:
            return self._spawn(who, [*command, *told])
        told += ["--isolation", "process", "--superexec-auth-secret-file", str(self._secret)]
        process = self._spawn(who, [*command, *told])
        log = str(self._log(apps or who)) if self._logs else ""
        about = {"address": f"{HOST}:{port}", "pid": process.pid, "log": log}
        pipe = cast(IO[bytes], self.processes["executor"].stdin)
        with suppress(BrokenPipeError):  # it has died, which `run` tells
            pipe.write(json.dumps(about).encode() + b"\n")
            pipe.flush()
        return process

    # ------------------------------------------------------------------------------ ending

    def close(self) -> None:
        """End every process started here; may be called again."""
        processes = list(self.processes.values())
        for process in processes:
            process.terminate()
            if process.stdin is not None:
                process.stdin.close()
        end = time.monotonic() + 5.0
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, end - time.monotonic()))
        end_marked(self.name)
        for process in processes:
            process.kill()  # on systems without /proc
            process.wait()
        self.processes = {}
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._keeper is not None:
            self._keeper.communicate()  # nothing is left for it to do

    # ------------------------------------------------------------------------------ processes

    def _spawn(
        self,
        who: str,
        command: Sequence[str],
        *,
        piped: bool = False,
        stdin: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start one of Flower's commands; its output goes to a log, or to a pipe."""
        programs = Path(sys.executable).parent
        with ExitStack() as stack:
            output = None
            if piped:
                output = subprocess.PIPE
            elif self._logs:
                output = stack.enter_context(self._log(who).open("ab")).fileno()
            process = subprocess.Popen(
                [str(programs / command[0]), *command[1:]],
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", "")]),
                    "FLWR_HOME": str((self.folder / CONFIG).parent),
                    _keeper.MARK: f"{self.name}/{who}",
                },
                start_new_session=True,  # this process handles Ctrl-C
            )
        if not piped:
            self.processes[who] = process
        return process

    def _log(self, who: str) -> Path:
        return self.folder / f"{who}.log"

    def _last_words(self, who: str) -> str:
        """Return the end of a process's log in one line, without the frames Flower draws."""
        log = self._log(who)
        words = log.read_text(errors="replace").translate(_FRAMES).split()
        where = "--keep DIR keeps its log" if self._own_folder else f"see {log}"
        return f"{' '.join(words)[-300:]} ({where})"


class LoneNode(Processes):
    """The SuperNode of one client, for a SuperLink on another machine."""

    def __init__(
        self, superlink: str, authority: Path, key: Path, client: int, clients: int,
        *, warm: bool = True,
    ) -> None:  # fmt: skip
        for file in (authority, key):
            if not file.is_file():
                raise FileError(f"cannot read {file}: there is no such file")
        super().__init__(clients, warm=warm, logs=False)
        self._told = (superlink, authority.resolve(), key.resolve(), client)

    def start(self) -> None:
        """Start the SuperNode."""
        super().start()
        self.start_supernode("node", *self._told)

    def wait(self) -> int:
        """Wait until the SuperNode or what runs its ClientApps ends; return a status, never 0."""
        while True:
            for process in self.processes.values():
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=0.5) or 1


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _claimed(folder: Path) -> Path:
    """Return a folder for the files; it is empty, or of an earlier deployment."""
    found = folder.expanduser()
    if found.is_dir() and any(found.iterdir()) and not (found / CONFIG).exists():
        raise FileError(
            f"cannot write {folder}: there is something else in it; give an empty folder, or one "
            "that freshband flower up wrote"
        )
    return found
