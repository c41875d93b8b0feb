"""A real client and a real server, for tests."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


class Client:
    """Calls a service over one connection; answers are (status, value)."""

    def __init__(
        self, port: int, token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection = (
            http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            if tls is None
            else http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=tls)
        )

    def __del__(self) -> None:
        self._connection.close()

    def send(
        self, method: str, path: str, data: bytes | None = None, **headers: str
    ) -> tuple[int, str, Any]:
        self._connection.request(method, path, data, {**self.headers, **headers})
        reply = self._connection.getresponse()
        text, kind = reply.read().decode(), reply.headers.get_content_type()
        return reply.status, kind, json.loads(text) if kind == "application/json" else text

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        status, _, value = self.send(method, path, data, **headers)
        return status, value

    def post(self, call: str, body: Any, name: str = "default") -> tuple[int, Any]:
        return self.call("POST", f"/v1/coordinators/{name}/{call}", body)


@contextmanager
def running(app: Any) -> Iterator[int]:
    """Serve an application from a thread of this process; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan="off", ws="none", log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
