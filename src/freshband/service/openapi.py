"""The OpenAPI description, made from the tables of `freshband.service.calls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from freshband import __version__
from freshband.service.calls import CALLS, SETTINGS, Field

ERRORS: Final = {
    400: "the body is not JSON",
    401: "the token is missing or wrong",
    403: "the request was made for another host",
    404: "there is no such coordinator or path",
    405: "the path has no such method",
    408: "the body did not arrive in time",
    409: "out of order: a round that is over, not planned yet or planned otherwise",
    413: "the body is too large",
    415: "the body is not application/json",
    422: "a parameter is wrong; nothing was changed",
    500: "an error of the service, or of a user's own scheduler",
    503: "the request could not be kept on the disk; repeat it",
}
_BASE: Final = "/v1/coordinators"


def describe() -> dict[str, Any]:
    """Return the description of the service, OpenAPI 3.1."""
    named = f"{_BASE}/{{name}}"
    paths: dict[str, Any] = {
        "/health": {"get": _operation("Whether the service is up", {"status": _text()}, open=True)},
        "/metrics": {"get": _operation("Numbers for Prometheus, as text", None)},
        "/openapi.json": {"get": _operation("This description", {}, open=True)},
        _BASE: {
            "get": _operation(
                "The names of all coordinators",
                {"coordinators": {"type": "array", "items": {"type": "string"}}},
            )
        },
        named: {
            "get": _operation("What a coordinator shows: rounds, ages, estimates", {}),
            "put": _operation(
                "Start a coordinator; repeated with the same settings, it changes nothing",
                {"created": {"type": "boolean"}},
                SETTINGS,
            ),
            "delete": _operation("End a coordinator and delete its files", {"removed": _text()}),
        },
    }
    for name, call in CALLS.items():
        reply = {key: dict(field.schema) for key, field in call.reply.items()}
        paths[f"{named}/{name}"] = {"post": _operation(call.summary, reply, call.fields)}
    for path, item in paths.items():
        if "{name}" in path:
            item["parameters"] = [
                {"name": "name", "in": "path", "required": True, "schema": _text()}
            ]
    return {
        "openapi": "3.1.0",
        "info": {"title": "freshband", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _text() -> dict[str, str]:
    return {"type": "string"}


def _operation(
    summary: str,
    reply: Mapping[str, Any] | None,
    fields: Mapping[str, Field] | None = None,
    *,
    open: bool = False,
) -> dict[str, Any]:
    schema = {"type": "object", "properties": dict(reply)} if reply is not None else _text()
    kind = "text/plain" if reply is None else "application/json"
    error = {"type": "object", "properties": {"error": _text()}, "required": ["error"]}
    described: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": "done", "content": {kind: {"schema": schema}}},
            "default": {
                "description": "; ".join(f"{code}: {text}" for code, text in ERRORS.items()),
                "content": {"application/json": {"schema": error}},
            },
        },
    }
    if open:
        described["security"] = []
    if fields is not None:
        body = {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {**field.schema, "description": field.text} for name, field in fields.items()
            },
            "required": [name for name, field in fields.items() if field.required],
        }
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    return described
