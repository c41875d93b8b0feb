"""A whole federation as processes on this machine: one SuperLink, SuperNodes, TLS and keys."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from freshband.errors import FileError, FreshbandError, reason
from freshband.flower import _keeper
from freshband.flower._keeper import end_marked, marked
from freshband.flower._scaffold import read_app
from freshband.flower.certificates import make_certificates, make_node_key
from freshband.parameters import whole_number

_HOST: Final = "127.0.0.1"
_CONFIG: Final = "flwr/config.toml"  # Flower's home is the folder it is in
_FRAMES: Final = dict.fromkeys(map(ord, "╭╮╰╯─│"), " ")
_GONE: Final = 5  # seconds without a ServerApp after which the run is asked about


class DeploymentError(FreshbandError, RuntimeError):
    """A Flower process failed."""


class Deployment:
    """One SuperLink and its SuperNodes, as processes that end with this object.

    Everything is on the loopback interface, encrypted, and the SuperLink admits only SuperNodes
    whose public key was registered. The SuperNodes have ``partition-id`` 0, 1, … Keys,
    certificates, logs and Flower's own files are in ``folder``: a new or empty one, one of an
    earlier deployment, or by default a temporary one. Raises `FileError` if there is no app, or
    something else in the folder.

    Examples
    --------
    >>> with Deployment(Path("app"), clients=4) as federation:  # doctest: +SKIP
    ...     federation.run({"clients": 4})
    0
    """

    def __init__(self, app: Path, clients: int, folder: Path | None = None) -> None:
        # Flower writes both into files of its own, and refuses paths that are not absolute.
        self.app = app.expanduser().resolve()
        self.clients: Final = whole_number("clients", clients, at_least=1)
        read_app(self.app)
        self._own_folder = folder is None
        made = tempfile.mkdtemp(prefix="freshband-") if folder is None else _claimed(folder)
        self.folder = Path(made).resolve()
        self.name: Final = uuid.uuid4().hex
        self.processes: dict[str, subprocess.Popen[bytes]] = {}  # by the name of their log
        self.port = _free_port()
        self._died = False
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Deployment:
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
        """Start the SuperLink, register all keys, start the SuperNodes."""
        # Should this process be killed, another one ends those it started and removes their keys.
        own = str(self.folder) if self._own_folder else ""
        self._keeper = subprocess.Popen(
            [sys.executable, str(Path(_keeper.__file__)), self.name, own],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._write_files()
        superlink = self._spawn(
            "superlink",
            ["flower-superlink", "--host", _HOST, "--port", str(self.port),
             *self._server_files(), "--enable-supernode-auth",
             "--disable-runtime-dependency-installation"],
        )  # fmt: skip
        self._wait_for_port(superlink)
        keys = self.folder / "keys"
        self.register([make_node_key(keys, f"client-{i}")[1] for i in range(self.clients)])
        for client in range(self.clients):
            self.start_node(client)

    def _write_files(self) -> None:
        """Write what the SuperLink and Flower's command line read."""
        config = self.folder / _CONFIG
        try:
            config.parent.mkdir(parents=True, exist_ok=True)
            made = make_certificates(self.folder / "certificates", (_HOST, "localhost"))
            config.write_text(
                f'[superlink]\ndefault = "freshband"\n\n[superlink.freshband]\n'
                f'address = "{_HOST}:{self.port}"\n'
                f"root-certificates = {_toml(str(made.authority))}\n",
                encoding="utf-8",
            )
        except OSError as error:
            raise FileError(f"cannot write {self.folder}: {reason(error)}") from None
        self.certificates = made

    def register(self, keys: Sequence[Path]) -> None:
        """Register public keys with the SuperLink."""
        asked = {
            key.stem: self._spawn(
                f"register-{key.stem}", ["flwr", "supernode", "register", str(key), "freshband"]
            )
            for key in keys
        }
        for name, process in asked.items():
            if process.wait(timeout=120) != 0:
                why = self._last_words(f"register-{name}")
                raise DeploymentError(f"the key of {name} was not registered: {why}")

    def start_node(self, client: int, key: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a client's SuperNode, with its own key or another one."""
        private = self.folder / "keys" / f"client-{client}" if key is None else key
        return self._spawn(
            f"client-{client}",
            ["flower-supernode", "--superlink", f"{_HOST}:{self.port}",
             "--root-certificates", str(self.certificates.authority),
             "--auth-supernode-private-key", str(private),
             "--host", _HOST, "--port", str(_free_port()), *self._server_files(),
             "--node-config", f"partition-id={client} num-partitions={self.clients}"],
        )  # fmt: skip

    # ------------------------------------------------------------------------------ a run

    def run(
        self,
        config: Mapping[str, Any] | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> int:
        """Run the app and wait for its end; return 0 on success.

        ``config`` changes the app's configuration; ``tell`` is called with each line of the log.
        """
        with self.begin_run(config) as process:
            watch = threading.Thread(target=self._watch_app, args=(process,), daemon=True)
            try:
                watch.start()
                for line in process.stdout or ():
                    tell(line.decode(errors="replace").rstrip("\n"))
            except BaseException:
                process.kill()
                raise
        if self._died:
            tell("error: the ServerApp died before the run was over")
            return 1
        return process.returncode or (0 if self.status() == "finished:completed" else 1)

    def _watch_app(self, stream: subprocess.Popen[bytes]) -> None:
        """End the stream of the log once the ServerApp is gone: Flower would wait for minutes."""
        seen, missing = False, 0
        while stream.poll() is None:
            here = bool(marked(self.name, "flwr-serverapp"))
            seen, missing = seen or here, 0 if here or not seen else missing + 1
            if missing >= _GONE and not self._is_over():
                self._died = True
                stream.kill()
                return
            time.sleep(1.0)

    def _is_over(self) -> bool:
        with suppress(DeploymentError, subprocess.TimeoutExpired):
            return self.status().startswith("finished")
        return True  # nobody knows: the stream ends by itself

    def begin_run(self, config: Mapping[str, Any] | None = None) -> subprocess.Popen[bytes]:
        """Start the app; return the process that prints its log."""
        command = ["flwr", "run", str(self.app), "freshband", "--stream"]
        if config:  # in a file: Flower does not understand every text on its command line
            file = self.folder / "run.toml"
            lines = [f"{_toml(key)} = {_toml(value)}\n" for key, value in config.items()]
            file.write_text("".join(lines), encoding="utf-8")
            command += ["--run-config", str(file)]
        return self._spawn("flwr", command, piped=True)

    def status(self) -> str:
        """Return the status of the newest run, such as ``"finished:completed"``."""
        command = ["flwr", "list", "freshband", "--format", "json"]
        process = self._spawn("flwr", command, piped=True)
        answer = process.communicate(timeout=120)[0].decode()
        try:
            runs = json.loads(answer[answer.index("{") :])["runs"]
            return str(max(runs, key=lambda run: str(run["pending-at"]))["status"])
        except (ValueError, KeyError):
            raise DeploymentError(f"Flower does not say how the run went: {answer}") from None

    # ------------------------------------------------------------------------------ ending

    def close(self) -> None:
        """End every process started here; may be called again."""
        processes = list(self.processes.values())
        for process in processes:
            process.terminate()
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

    def _server_files(self) -> list[str]:
        files = self.certificates
        return ["--ssl-ca-certfile", str(files.authority), "--ssl-certfile", str(files.server),
                "--ssl-keyfile", str(files.key)]  # fmt: skip

    def _spawn(
        self, who: str, command: list[str], *, piped: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start one of Flower's commands; its output goes to a log, or to a pipe."""
        programs = Path(sys.executable).parent
        pipe = nullcontext(subprocess.PIPE)
        with pipe if piped else (self.folder / f"{who}.log").open("ab") as output:
            process = subprocess.Popen(
                [str(programs / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", "")]),
                    "FLWR_HOME": str((self.folder / _CONFIG).parent),
                    _keeper.MARK: f"{self.name}/{who}",
                },
                start_new_session=True,  # this process handles Ctrl-C
            )
        if not piped:
            self.processes[who] = process
        return process

    def _wait_for_port(self, process: subprocess.Popen[bytes], seconds: float = 180.0) -> None:
        context = ssl.create_default_context(cafile=str(self.certificates.authority))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if process.poll() is not None:
                break
            with (
                suppress(OSError),
                socket.create_connection((_HOST, self.port), timeout=2.0) as plain,
                context.wrap_socket(plain, server_hostname=_HOST),
            ):
                return
            time.sleep(0.2)
        raise DeploymentError(f"the SuperLink did not start: {self._last_words('superlink')}")

    def _last_words(self, who: str) -> str:
        """Return the end of a process's log in one line, without the frames Flower draws."""
        log = self.folder / f"{who}.log"
        words = log.read_text(errors="replace").translate(_FRAMES).split()
        return f"{' '.join(words)[-300:]} (see {log})"


def _claimed(folder: Path) -> Path:
    """Return a folder for the files; it is empty, or of an earlier deployment."""
    found = folder.expanduser()
    if found.is_dir() and any(found.iterdir()) and not (found / _CONFIG).exists():
        raise FileError(
            f"cannot write {folder}: there is something else in it; give an empty folder, or one "
            "that freshband flower up wrote"
        )
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # for text and numbers this is TOML too
