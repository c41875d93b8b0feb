"""``freshband serve``: the coordinator as a service, for programs in any language."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from freshband._default import DEFAULT_POLICY
from freshband.cli._options import count, option
from freshband.cli._settings import read_setting, read_toml
from freshband.errors import FreshbandError, ParameterError

_WHAT: Final = "The coordinator"
_WHERE: Final = "Where it listens"
_TOKEN: Final = "FRESHBAND_TOKEN"


def serve(
    policy: Annotated[str, option(_WHAT, "Its policy.")] = DEFAULT_POLICY,
    clients: Annotated[int, count("Number of clients M.", _WHAT)] = 2,
    channels: Annotated[int, count("Number of channels N.", _WHAT)] = 5,
    seed: Annotated[int, count("The seed of all choices.", _WHAT)] = 0,
    name: Annotated[str, option(_WHAT, "Its name in requests.")] = "default",
    state: Annotated[
        Path | None,
        option(
            _WHAT,
            "Keep it in this file and its journal, durable before every answer; an existing one "
            "goes on. Without it, everything is in memory only.",
            metavar="FILE.npz",
        ),
    ] = None,
    key_file: Annotated[
        Path | None, option(_WHAT, "A secret that seals the state and journal.", metavar="FILE")
    ] = None,
    settings: Annotated[
        list[str] | None,
        option(
            _WHAT,
            "A setting of the coordinator, such as links=differ, max_transmissions=4 or "
            "weights=[1,5], or of its policy; repeatable.",
            "--set",
            metavar="KEY=VALUE",
        ),
    ] = None,
    more: Annotated[
        Path | None,
        option(
            _WHAT,
            "Further coordinators: a table [NAME] each, with policy, n_clients, n_channels...",
            "--coordinators",
            metavar="FILE.toml",
        ),
    ] = None,
    host: Annotated[
        str, option(_WHERE, "Address; other than the loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, count("Port; 0 lets the system choose.", _WHERE)] = 8371,
    token_file: Annotated[
        Path | None,
        option(
            _WHERE,
            f"A file with the token that clients must send; else ${_TOKEN}, if it is set.",
            metavar="FILE",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, option(_WHERE, "Certificate chain for TLS.", metavar="FILE.pem")
    ] = None,
    tls_key: Annotated[
        Path | None, option(_WHERE, "Private key of the certificate.", metavar="FILE.pem")
    ] = None,
    max_body: Annotated[int, count("Largest body of a request, in bytes.", _WHERE)] = 1 << 23,
) -> None:
    """Serve coordinators over HTTP with JSON, to programs in any language.

    A request plans a round, reports outcomes, lets a client join or leave. It carries its round, so
    that a repeated one is answered and not executed again. With --state an answer leaves once it is
    durable: killed at any time, the service goes on after the last round it answered. SIGTERM ends
    it after the requests under way.

    /openapi.json describes all requests, /health and /metrics are for monitoring.

    [bold]Examples[/bold]

      freshband serve --policy bayes --clients 20 --channels 30 --state state.npz

      freshband serve --clients 200 --channels 8 --set max_transmissions=4 --port 9000
    """
    if not all(map(importlib.util.find_spec, ("starlette", "uvicorn"))):
        raise FreshbandError(
            "serving needs a web server; install it with: pip install 'freshband[serve]'"
        )
    from freshband._files import check_writable
    from freshband.parameters import whole_number
    from freshband.service.catalogue import Catalogue
    from freshband.service.server import check_listening, read_secret
    from freshband.service.server import serve as listen

    given: dict[str, Any] = {
        "policy": policy,
        "n_clients": clients,
        "n_channels": channels,
        "seed": seed,
        **_read_settings(settings or []),
    }
    key = None if key_file is None else read_secret(key_file, "the key")
    token = None if token_file is None else read_secret(token_file, "the token").decode("latin-1")
    token = token or os.environ.get(_TOKEN) or None
    check_listening(host, port, token, tls_certificate, tls_key)
    if sys.stderr.isatty():
        typer.echo("starting; what is not compiled yet is compiled first", err=True)
    with (
        suppress(KeyboardInterrupt),  # uvicorn passes on the signal that ended it
        Catalogue(None if state is None else check_writable(state), key) as catalogue,
    ):
        catalogue.open(name, given)
        for other, table in (read_toml(more) if more else {}).items():
            catalogue.add(other, table, trusted=True)
        listen(
            catalogue,
            host,
            port,
            token=token,
            certificate=tls_certificate,
            private_key=tls_key,
            max_body=whole_number("max_body", max_body, at_least=1),
            tell=typer.echo,
        )


def _read_settings(settings: list[str]) -> dict[str, Any]:
    """Return settings of the coordinator; those it does not have are its policy's."""
    from freshband.service.calls import SETTINGS

    found: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for setting in settings:
        before, key, value = read_setting(setting, "KEY=VALUE")
        target = found if key in SETTINGS else options
        if before or key in target:
            raise ParameterError(f"--set must be KEY=VALUE, each key once, got {setting!r}")
        target[key] = value
    return {**found, "options": options} if options else found
