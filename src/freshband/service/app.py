"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import functools
import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from freshband.errors import (
    FileError,
    FreshbandError,
    ParameterError,
    RuleError,
    SequenceError,
    UnknownNameError,
    reason,
    shown,
)
from freshband.service.calls import CALLS, view
from freshband.service.catalogue import Catalogue
from freshband.service.hosted import Hosted
from freshband.service.metrics import Metrics
from freshband.service.openapi import ERRORS, describe

__all__ = ["create_app"]

_LOG = logging.getLogger("freshband.service")
_OPEN: Final = frozenset({"/health", "/openapi.json"})  # without a token
_SECONDS: Final = 30.0  # within which a body must have arrived
_STATUS: Final = (  # of errors, the first that fits
    (SequenceError, 409),
    (ParameterError, 422),
    (FileError, 503),
    (RuleError, 500),
)


class _Service:
    """The routes, and the coordinators they lead to."""

    def __init__(self, catalogue: Catalogue, max_body: int) -> None:
        self.catalogue, self.max_body = catalogue, max_body
        self.metrics = Metrics()
        self._turns: dict[Hosted, asyncio.Lock] = {}

    def routes(self) -> list[Route]:
        named = "/v1/coordinators/{name}"
        return [
            *(Route(f"{named}/{call}", _Call(self, call), methods=["POST"]) for call in CALLS),
            Route(named, self.show, methods=["GET"]),
            Route(named, self.create, methods=["PUT"]),
            Route(named, self.remove, methods=["DELETE"]),
            Route("/v1/coordinators", self.list, methods=["GET"]),
            Route("/metrics", self.count, methods=["GET"]),
            Route("/openapi.json", self.describe, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
        ]

    def find(self, scope: Scope) -> Hosted:
        """Return the coordinator that a path names."""
        try:
            return self.catalogue[scope["path_params"]["name"]]
        except UnknownNameError as error:
            raise HTTPException(404, str(error)) from None

    def turn(self, hosted: Hosted) -> asyncio.Lock:
        """Return the lock for requests to one coordinator; those to others go on."""
        return self._turns.setdefault(hosted, asyncio.Lock())

    async def show(self, request: Request) -> Response:
        hosted = self.find(request.scope)
        async with self.turn(hosted):
            return JSONResponse({"name": request.path_params["name"], **view(hosted.coordinator)})

    async def create(self, request: Request) -> Response:
        body = await _read_body(request.scope, request.receive, self.max_body)
        name = request.path_params["name"]
        created = await asyncio.to_thread(self.catalogue.add, name, body)  # it compiles
        return JSONResponse({"created": created}, 201 if created else 200)

    async def remove(self, request: Request) -> Response:
        hosted, name = self.find(request.scope), request.path_params["name"]
        async with self.turn(hosted):
            await asyncio.to_thread(self.catalogue.remove, name)  # it waits for one that is added
        self._turns.pop(hosted, None)
        return JSONResponse({"removed": name})

    async def list(self, request: Request) -> Response:
        return JSONResponse({"coordinators": list(self.catalogue)})

    async def count(self, request: Request) -> Response:
        return Response(
            self.metrics.text(self.catalogue), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    async def describe(self, request: Request) -> Response:
        return JSONResponse(describe())

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})


class _Call:
    """A route that changes a coordinator, in plain ASGI: it is what has to be fast."""

    def __init__(self, service: _Service, call: str) -> None:
        self._service, self._call = service, call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_body(scope, receive, self._service.max_body)
        hosted = self._service.find(scope)
        async with self._service.turn(hosted):
            if self._service.find(scope) is not hosted:
                raise HTTPException(404, "the coordinator was removed meanwhile")
            reply = hosted.answer(self._call, body)
            if hosted.unsettled and len(self._service.catalogue) == 1:
                hosted.settle()  # nobody else can go on meanwhile, and a thread costs time
            elif hosted.unsettled:
                await asyncio.to_thread(hosted.settle)
        length = (b"content-length", b"%d" % len(reply))
        headers = [(b"content-type", b"application/json"), length]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})


async def _read_body(scope: Scope, receive: Receive, most: int) -> Any:
    """Return a request's JSON, of a bounded size and within a bounded time."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise HTTPException(415, "send the body as application/json")
    data, more = b"", True
    try:
        async with asyncio.timeout(_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                data += message.get("body", b"")
                more = message.get("more_body", False)
                if len(data) > most:
                    raise HTTPException(413, f"a body may have {most} bytes at most")
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {_SECONDS:g} s") from None
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {reason(error)}") from None


def create_app(
    catalogue: Catalogue, *, token: str | None = None, max_body: int = 1 << 23
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Return the service as an ASGI application.

    Parameters
    ----------
    catalogue : Catalogue
        The coordinators.
    token : str, optional
        What clients must send as ``Authorization: Bearer TOKEN``. Without one, only requests for a
        loopback address or localhost are answered, so that no web page can reach the service
        through a browser.
    max_body : int, default 8 MiB
        The largest body of a request, in bytes.
    """
    service = _Service(catalogue, max_body)
    router = Router(routes=service.routes(), redirect_slashes=False)
    expected = None if token is None else f"Bearer {token}".encode()

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await router(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            _check_caller(scope, expected)
            scope["app"] = router  # with it, the router raises what it cannot find
            await router(scope, receive, tell)
        except ClientDisconnect:
            status = 499
        except Exception as error:
            await _explain(error)(scope, receive, tell)
        service.metrics.count(_route(scope, status), status, time.perf_counter() - begin)

    return run


def _check_caller(scope: Scope, expected: bytes | None) -> None:
    """Raise an error if a caller may not call."""
    headers = dict(scope["headers"])
    if expected is None:
        if not is_loopback(headers.get(b"host", b"").decode("latin-1")):
            raise HTTPException(403, "without a token only requests for localhost are answered")
    elif scope["path"] not in _OPEN:
        given = headers.get(b"authorization", b"")
        if not hmac.compare_digest(given, expected):
            raise HTTPException(401, "the token is missing or wrong")


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is this machine by its very name.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost:80", "127.0.0.2", "[::1]:80", "example.org")]
    [True, True, True, False]
    """
    bare = host[1:].partition("]")[0] if host.startswith("[") else host
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return bare == "localhost" or ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def _explain(error: Exception) -> Response:
    """Return the answer to a request that failed: one line, as in Python."""
    if isinstance(error, HTTPException):
        said = error.detail if error.detail != _PHRASES.get(error.status_code) else ""
        headers = dict(error.headers or {})
        if error.status_code == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(
            {"error": said or ERRORS[error.status_code]}, error.status_code, headers=headers
        )
    if isinstance(error, FreshbandError):
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        return JSONResponse({"error": str(error)}, status)
    _LOG.error("an error of the service", exc_info=error)
    return JSONResponse({"error": f"an error of the service: {type(error).__name__}"}, 500)


_PHRASES: Final = {404: "Not Found", 405: "Method Not Allowed"}


def _route(scope: Scope, status: int) -> str:
    """Return the last word of a path that exists, so that metrics have a bounded size."""
    if status in (401, 403, 404):
        return "refused"
    parts = scope["path"].split("/")
    return "coordinator" if len(parts) == 4 and parts[1] == "v1" else str(parts[-1])


def _refuse(constant: str) -> None:
    raise ValueError(f"{shown(constant)} is not a number")
