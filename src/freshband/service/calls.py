"""The requests that change a coordinator: what they hold, and what they do.

The tables here are the one description: bodies are checked against them, and the OpenAPI
description is made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from freshband._default import DEFAULT_POLICY
from freshband._rounds import read_contributions
from freshband.coordinator import Coordinator
from freshband.errors import ParameterError, SequenceError, UnknownNameError, nearest, shown
from freshband.fleet._acknowledgements import read_mask
from freshband.parameters import whole_number

__all__ = ["CALLS", "SETTINGS", "Call", "Field", "check_body", "view"]

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """A field of a request's body: its JSON schema and what it means."""

    schema: Mapping[str, Any]
    text: str
    required: bool = False


@dataclass(frozen=True)
class Call:
    """A request that changes a coordinator."""

    summary: str
    fields: Mapping[str, Field]
    reply: Mapping[str, Field]
    run: Callable[[Coordinator, Body], dict[str, Any]]
    subject: Callable[[Body, str], str]  # at most one answer about a subject is remembered


def _list(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": kind, **more}}


_NAME: Final = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
_OUTCOMES: Final = {"type": "array", "items": {"type": ["boolean", "null"]}}
_CHANNEL: Final = {"type": ["integer", "null"]}

_NEWS: Final = {
    "clients": Field(
        _list("integer", minimum=0), "the clients that `delivered` is about; by default all"
    ),
    "teaches": Field(
        _list("boolean"), "false where a loss says nothing about its channel; by default all true"
    ),
}
_ALARM: Final = Field(_CHANNEL, "the channel on which a change was detected, or null")


# ------------------------------------------------------------------------------------- the calls


def _plan(coordinator: Coordinator, body: Body) -> dict[str, Any]:
    latest = _latest(coordinator)
    asked = whole_number("round", body["round"], at_least=1)
    if asked != latest + 1:
        said = "is planned already" if asked <= latest else "cannot be planned yet"
        raise SequenceError(f"round {asked} {said}; the next is {latest + 1}")
    masks = {name: body.get(name) for name in ("contributions", "present", "available")}
    alarm = None
    if body.get("delivered") is not None:
        _check_plan(coordinator, **masks)  # before anything is learnt
        alarm = _learn(coordinator, latest, body)
    elif any(body.get(name) is not None for name in _NEWS):
        raise ParameterError("clients and teaches describe delivered, which is missing")
    channels = coordinator.plan(**masks)
    return {"round": asked, "channels": channels.tolist(), "alarm": alarm}


def _check_plan(coordinator: Coordinator, contributions: Any, present: Any, available: Any) -> None:
    """Raise what `Coordinator.plan` would raise."""
    read_contributions(contributions, coordinator.n_clients, coordinator.policy)
    read_mask("present", present, coordinator.n_clients, "client")
    read_mask("available", available, coordinator.n_channels, "channel")


def _observe(coordinator: Coordinator, body: Body) -> dict[str, Any]:
    when = whole_number("round", body["round"], at_least=1)
    return {"round": when, "alarm": _learn(coordinator, when, body)}


def _learn(coordinator: Coordinator, when: int, body: Body) -> int | None:
    news = {name: body.get(name) for name in _NEWS}
    return coordinator.observe(body["delivered"], round=when, **news)


def _join(coordinator: Coordinator, body: Body) -> dict[str, Any]:
    client, weight = body["client"], body.get("weight")
    number = coordinator.join(client, weight=1.0 if weight is None else weight)
    return {"client": client, "number": number}


def _leave(coordinator: Coordinator, body: Body) -> dict[str, Any]:
    coordinator.leave(body["client"])
    return {"client": body["client"]}


def _latest(coordinator: Coordinator) -> int:
    """Return the latest round that is planned."""
    with coordinator._lock:
        return coordinator._round + coordinator._planned


def _of_client(body: Body, text: str) -> str:
    return f"client {body['client']!r}"


CALLS: Final = {
    "plan": Call(
        "Plan a round, after observing the one before it if its outcomes are given",
        {
            "round": Field({"type": "integer", "minimum": 1}, "the round to plan", required=True),
            "delivered": Field(
                _OUTCOMES,
                "outcomes of the round before, learnt first: true, false or null (not known yet)",
            ),
            **_NEWS,
            "contributions": Field(
                _list("number", minimum=0), "values of the clients' updates, with +priority"
            ),
            "present": Field(_list("boolean"), "which clients can send; by default all"),
            "available": Field(_list("boolean"), "which channels can be used; by default all"),
        },
        {
            "round": Field({"type": "integer"}, "the round planned"),
            "channels": Field(_list("integer"), "the channel of each client; -1 waits"),
            "alarm": _ALARM,
        },
        _plan,
        lambda body, text: f"plan {body['round']}",
    ),
    "observe": Call(
        "Learn which updates of a round got through, in the round or later",
        {
            "round": Field(
                {"type": "integer", "minimum": 1}, "the round they were sent in", required=True
            ),
            "delivered": Field(
                _OUTCOMES, "per client true, false or null (not known yet)", required=True
            ),
            **_NEWS,
        },
        {"round": Field({"type": "integer"}, "the round observed"), "alarm": _ALARM},
        _observe,
        lambda body, text: f"observe {text}",
    ),
    "join": Call(
        "Add a client",
        {
            "client": Field(_NAME, "its id", required=True),
            "weight": Field(
                {"type": "number", "exclusiveMinimum": 0}, "how much its age matters; 1"
            ),
        },
        {
            "client": Field(_NAME, "its id"),
            "number": Field({"type": "integer"}, "its index into plans from now on"),
        },
        _join,
        _of_client,
    ),
    "leave": Call(
        "Remove a client",
        {"client": Field(_NAME, "its id", required=True)},
        {"client": Field(_NAME, "its id")},
        _leave,
        _of_client,
    ),
}

SETTINGS: Final = {
    "policy": Field({"type": "string", "default": DEFAULT_POLICY}, "the policy"),
    "n_clients": Field({"type": "integer", "minimum": 1}, "number of clients", required=True),
    "n_channels": Field({"type": "integer", "minimum": 1}, "number of channels", required=True),
    "seed": Field({"type": "integer", "minimum": 0, "default": 0}, "the seed of all choices"),
    "run": Field({"type": "integer", "minimum": 0, "default": 0}, "which run with this seed"),
    "options": Field({"type": "object"}, "hyper-parameters of the policy"),
    "horizon": Field({"type": "integer", "minimum": 1}, "rounds in all, for literal presets"),
    "weights": Field(_list("number", exclusiveMinimum=0), "how much each client's age matters"),
    "max_transmissions": Field({"type": "integer", "minimum": 1}, "most senders per round"),
    "links": Field({"enum": ["shared", "differ"], "default": "shared"}, "whether links differ"),
    "max_delay": Field(
        {"type": "integer", "minimum": 0, "default": 100}, "rounds an outcome may be late"
    ),
    "silence": Field({"enum": ["random", "loss"], "default": "random"}, "what silence means"),
    "proof_of_life": Field(
        {"enum": ["outcome", "delivery", "none"], "default": "outcome"},
        "what shows that a client is there",
    ),
    "client_ids": Field({"type": "array", "items": _NAME}, "names of the clients"),
    "channel_ids": Field({"type": "array", "items": _NAME}, "names of the channels"),
}


def check_body(what: str, body: Any, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return a body whose fields all exist, without those that are null, or raise an error."""
    if not isinstance(body, dict):
        raise ParameterError(f"{what} takes a JSON object, got {shown(body)}")
    for name in body:
        if name not in fields:
            raise UnknownNameError(f"{what} has no field {name!r}; {nearest(name, fields)}")
    given = {name: value for name, value in body.items() if value is not None}
    for name, field in fields.items():
        if field.required and name not in given:
            raise ParameterError(f"{what} needs a value for {name!r}")
    return given


# ---------------------------------------------------------------------------------------- a look


def view(coordinator: Coordinator) -> dict[str, Any]:
    """Return what a coordinator shows; numbers that do not exist are null."""
    with coordinator._lock:
        return {
            "policy": coordinator.policy.name,
            "n_clients": coordinator.n_clients,
            "n_channels": coordinator.n_channels,
            "round": coordinator.round,
            "planned": _latest(coordinator),
            "pending": _plain(coordinator.pending),
            "open_rounds": coordinator.open_rounds,
            "clients": coordinator.client_ids,
            "ages": _plain(coordinator.ages),
            "alive": _plain(coordinator.alive),
            "channel_means": _plain(coordinator.channel_means),
            "priorities": _plain(coordinator.priorities),
            "beliefs": _plain(coordinator.beliefs),
        }


def _plain(value: Any) -> Any:
    """Return arrays and tuples of them as JSON values."""
    if isinstance(value, np.ndarray | np.generic):
        return _numbers(np.asarray(value))
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return value


def _numbers(array: NDArray[Any]) -> Any:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        plain = array.astype(object)
        plain[~np.isfinite(array)] = None
        return plain.tolist()
    return array.tolist()
