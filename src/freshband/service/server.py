"""Listening: addresses, tokens, TLS, and the end."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn

from freshband.errors import FileError, ParameterError, accessing, reason, shown
from freshband.parameters import whole_number
from freshband.service.app import create_app, is_loopback
from freshband.service.catalogue import Catalogue

_LOG = logging.getLogger("freshband.service")
_SHORTEST: Final = 16  # characters of a token
_PORTS: Final = 65535
_GRACE: Final = 5  # seconds for requests that are being answered when the service ends


def read_secret(path: str | os.PathLike[str], what: str) -> bytes:
    """Return what a file holds without white space around it, at least 16 bytes."""
    with accessing("read", path):
        secret = Path(path).read_bytes().strip()
    if len(secret) < _SHORTEST:
        raise ParameterError(f"{what} must have at least {_SHORTEST} bytes, got {len(secret)}")
    return secret


def serve(
    catalogue: Catalogue,
    host: str = "127.0.0.1",
    port: int = 8371,
    *,
    token: str | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
    max_body: int = 1 << 23,
    tell: Callable[[str], object] = _LOG.info,
) -> None:
    """Answer requests until SIGTERM or Ctrl-C; those under way are answered first.

    Parameters
    ----------
    catalogue : Catalogue
        The coordinators; close it afterwards.
    host : str, default "127.0.0.1"
        The address to listen on; one that others can reach needs a ``token``.
    port : int, default 8371
        The port; 0 lets the system choose one.
    token : str, optional
        See `freshband.service.app.create_app`.
    certificate, private_key : Path, optional
        Files in PEM form, for TLS.
    max_body : int, default 8 MiB
        The largest body of a request, in bytes.
    tell : callable, optional
        What to do with the line that says where it listens; by default it is logged.
    """
    check_listening(host, port, token, certificate, private_key)
    app = create_app(catalogue, token=token, max_body=max_body)
    try:
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            access_log=False,
            log_level=logging.WARNING,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_GRACE,
            ssl_certfile=certificate,
            ssl_keyfile=private_key,
        )
        config.load()
    except OSError as error:
        raise FileError(f"cannot use the certificate {certificate}: {reason(error)}") from None
    listener = _listen(host, port)
    scheme = "http" if certificate is None else "https"
    shown_host = f"[{host}]" if ":" in host else host
    tell(
        f"freshband serves {', '.join(catalogue)} on "
        f"{scheme}://{shown_host}:{listener.getsockname()[1]}"
    )
    if scheme == "http" and not _only_loopback(host):
        _LOG.warning("without TLS the token can be read on the way: give a certificate")
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


def check_listening(
    host: str, port: int, token: str | None, certificate: Path | None, private_key: Path | None
) -> None:
    """Raise `ParameterError` where `serve` would refuse to listen, before anything is started."""
    if token is None and not _only_loopback(host):
        raise ParameterError(
            f"host {shown(host)} can be reached by others: give a token, or listen on 127.0.0.1"
        )
    if (certificate is None) != (private_key is None):
        raise ParameterError("TLS needs a certificate and its private key")
    if whole_number("port", port, at_least=0) > _PORTS:
        raise ParameterError(f"port must be at most {_PORTS}, got {port}")


def _listen(host: str, port: int) -> socket.socket:
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.socket(family, kind, protocol)
        if os.name != "nt":  # there it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)  # before the address is told
    except (OSError, OverflowError) as error:
        raise FileError(f"cannot listen on {host}:{port}: {reason(error)}") from None
    return listener


def _only_loopback(host: str) -> bool:
    """Whether all addresses of a host are this machine's own."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ParameterError(f"host {shown(host)} is not known: {reason(error)}") from None
    return all(is_loopback(str(address[0])) for *_, address in found)
