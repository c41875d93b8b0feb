"""A headless browser that is on this machine, driven by its own debugging protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_SECONDS = 60.0  # a loaded machine is slow; a browser that hangs must not hang the suite


def find_browser() -> str | None:
    """Return a browser of Chromium's family, the one named by BROWSER_PATH first."""
    named = os.environ.get("BROWSER_PATH")
    return next(
        (path for name in (named, *BROWSERS) if name and (path := shutil.which(name))), None
    )


class Page:
    """A tab: what it asked for, what it complained about, and ways to look and to act."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket = socket
        self._session = session
        self._count = 100
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events on the way are noted."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        self._socket.send(json.dumps({**message, "sessionId": self._session}))
        while True:
            answer = json.loads(self._socket.recv(timeout=_SECONDS))
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details)))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file on a screen of this size and wait for it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=width < 600)
        self.prefer("dark" if dark else "light")
        self._loaded = False
        self.requests.clear()
        self.complaints.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.until(lambda: self._loaded)

    def prefer(self, scheme: str) -> None:
        """Have the reader prefer light or dark, and no motion."""
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def read(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, condition: str | Callable[[], bool]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + _SECONDS
        while not (self.read(condition) if isinstance(condition, str) else condition()):
            if time.monotonic() > end:
                raise TimeoutError(str(condition))
            time.sleep(0.02)
            self.read("0")  # events come along with answers

    def press(self, key: str, text: str = "") -> None:
        """Press a key as a reader would."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        common = {"key": key, "windowsVirtualKeyCode": codes[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Save what the screen shows, or the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browsing(program: str) -> Iterator[Page]:
    """Run a browser without a window and lend a page of it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={home}"]
        options += [
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]
        options += ["--disable-background-networking", "--disable-component-update"]
        options += ["--disable-quic", "--disable-sync"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--no-sandbox")  # which root cannot have
        process = subprocess.Popen(
            [program, *options, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_address(Path(home), process), max_size=None) as socket:
                yield Page(socket, _attach(socket))
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(home: Path, process: subprocess.Popen[bytes]) -> str:
    told = home / "DevToolsActivePort"
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the browser ended with code {process.returncode}")
        if told.exists() and len(lines := told.read_text().split()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise TimeoutError("the browser did not start")


def _attach(socket: ClientConnection) -> str:
    def ask(number: int, method: str, **params: Any) -> dict[str, Any]:
        socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(socket.recv(timeout=_SECONDS))
            if answer.get("id") == number:
                return dict(answer["result"])

    target = ask(1, "Target.createTarget", url="about:blank")["targetId"]
    return str(ask(2, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
