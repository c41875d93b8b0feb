"""A whole federation as processes on this machine: one SuperLink, SuperNodes, TLS and keys."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from freshband.errors import accessing
from freshband.flower._keeper import marked
from freshband.flower._processes import CONFIG, HOST, DeploymentError, Processes, free_port
from freshband.flower._scaffold import read_app
from freshband.flower.certificates import make_node_key

_GONE: Final = 5  # seconds without a ServerApp after which the run is asked about


class Deployment(Processes):
    """One SuperLink and its SuperNodes, as processes that end with this object.

    Everything is on the loopback interface, encrypted, and the SuperLink admits only SuperNodes
    whose public key was registered. The SuperNodes have ``partition-id`` 0, 1, … Keys,
    certificates, logs and Flower's own files are in ``folder``: a new or empty one, one of an
    earlier deployment, or by default a temporary one. Raises `FileError` if there is no app, or
    something else in the folder.

    Flower starts a process for each message, and its nodes ask for messages every three seconds.
    Here one process for all nodes has imported what a ClientApp needs and forks, and nodes ask more
    often; ``warm=False`` leaves both to Flower, as does a system other than Linux or a
    version of Flower other than 1.41.

    Examples
    --------
    >>> with Deployment(Path("app"), clients=4) as federation:  # doctest: +SKIP
    ...     federation.run({"clients": 4})
    0
    """

    _imported = ("flwr.superlink.cli",)

    def __init__(
        self, app: Path, clients: int, folder: Path | None = None, *, warm: bool = True
    ) -> None:
        # Flower writes both into files of its own, and refuses paths that are not absolute.
        self.app = app.expanduser().resolve()
        read_app(self.app)
        super().__init__(clients, folder, warm=warm)
        self.port = free_port()
        self._died = ""

    # ------------------------------------------------------------------------------ starting

    def start(self) -> None:
        """Start the SuperLink, register all keys, start the SuperNodes."""
        super().start()
        self._configure()
        superlink = self._start_host(
            "superlink",
            ["flower-superlink", "--enable-supernode-auth",
             "--disable-runtime-dependency-installation"],
            self.port,
            apps="serverapp",
        )  # fmt: skip
        self._wait_for_port(superlink)
        keys = self.folder / "keys"
        self.register([make_node_key(keys, f"client-{i}")[1] for i in range(self.clients)])
        for client in range(self.clients):
            self.start_node(client)

    def _configure(self) -> None:
        """Write what Flower's command line reads."""
        with accessing("write", self.folder):
            (self.folder / CONFIG).write_text(
                f'[superlink]\ndefault = "freshband"\n\n[superlink.freshband]\n'
                f'address = "{HOST}:{self.port}"\n'
                f"root-certificates = {_toml(str(self.certificates.authority))}\n",
                encoding="utf-8",
            )

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
        who = f"client-{client}"
        private = self.folder / "keys" / who if key is None else key
        superlink, authority = f"{HOST}:{self.port}", self.certificates.authority
        return self.start_supernode(who, superlink, authority, private, client)

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
            tell(f"error: {self._died} before the run was over")
            return 1
        return process.returncode or (0 if self.status() == "finished:completed" else 1)

    def _watch_app(self, stream: subprocess.Popen[bytes]) -> None:
        """End the stream of the log once the ServerApp is gone: Flower would wait for minutes."""
        seen, missing = False, 0
        while stream.poll() is None:
            here = bool(marked(self.name, "flwr-serverapp"))
            seen, missing = seen or here, 0 if here or not seen else missing + 1
            if missing >= _GONE and not self._is_over():
                self._died = "the ServerApp died"
            executor = self.processes.get("executor")
            if executor is not None and executor.poll() is not None:
                self._died = f"the process that runs apps died: {self._last_words('executor')}"
            if self._died:
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

    def _wait_for_port(self, process: subprocess.Popen[bytes], seconds: float = 180.0) -> None:
        context = ssl.create_default_context(cafile=str(self.certificates.authority))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if process.poll() is not None:
                break
            with (
                suppress(OSError),
                socket.create_connection((HOST, self.port), timeout=2.0) as plain,
                context.wrap_socket(plain, server_hostname=HOST),
            ):
                return
            time.sleep(0.2)
        raise DeploymentError(f"the SuperLink did not start: {self._last_words('superlink')}")


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # for text and numbers this is TOML too
