"""Coordinators as bytes, in the format of today and of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from freshband._packed import pack, unpack
from freshband.errors import FileError, FreshbandError, reason, shown
from freshband.fleet._names import Names
from freshband.fleet._planning import _SURE
from freshband.fleet._state import UNKNOWN
from freshband.fleet.options import FleetOptions
from freshband.parameters import whole_number
from freshband.states import Moment, _arrays, _rebuild, reserve

if TYPE_CHECKING:
    from freshband.coordinator import Coordinator

_FORMAT: Final = "freshband coordinator 2"
_FIRST: Final = "freshband coordinator 1"  # one slot per client, no outcome ever late
_PARTS: Final = ("fleet", "scheduler", "matching")
_ROOM: Final = 1024  # rounds reserved ahead at a time
_SPARE: Final = 10**6  # numbers that a state may hold more than its file,
_LESS: Final = 8  # and times that it may have more bytes: states of earlier versions held less


def write_coordinator(coordinator: Coordinator, key: bytes | None = None) -> bytes:
    """Return a file of a coordinator: a header and copies of all arrays, taken at one time."""
    with coordinator._lock:
        header = {
            "policy": coordinator.policy.text,
            "options": coordinator.policy.options,
            "n_clients": coordinator.n_clients,
            "n_channels": coordinator.n_channels,
            "seed": coordinator.seed,
            "run": coordinator.run,
            "horizon": coordinator.horizon,
            "fleet": coordinator.fleet_options.model_dump(exclude={"weights"}),
            "client_ids": coordinator._clients.to_list(),
            "channel_ids": coordinator._channels.to_list(),
            "round": coordinator._round,
            "observed": coordinator._observed,
            "reserved": coordinator._reserved,
            "planned": coordinator._planned,
            "rng": coordinator._rng.bit_generator.state,
        }
        held = {
            f"{part}.{name}": array.copy()
            for part in _PARTS
            for name, array in _arrays(getattr(coordinator, f"_{part}"))
        }
        held["members"], held["left"] = coordinator._members.copy(), coordinator._left.copy()
    return pack(_FORMAT, header, held, key)


def read_coordinator(
    kind: type[Coordinator], data: bytes, source: str, key: bytes | None = None
) -> Coordinator:
    """Return the coordinator in a file, or raise `FileError` about ``source``.

    What the file holds is checked before compiled code sees it: see `freshband.states.declare`.
    """
    header, held = unpack(_FORMAT, data, source, older=(_FIRST,), key=key)
    try:
        _check_sizes(kind, header, held)
        coordinator = _start(
            kind,
            header,
            header["n_clients"],
            header["n_channels"],
            seed=header["seed"],
            run=header.get("run", 0),
        )
        _name(coordinator, header)
        _restore(coordinator, header, held)
    except KeyError as error:
        raise FileError(f"cannot restore {source}: it lacks {error}") from None
    except (
        FreshbandError,
        ArithmeticError,
        AttributeError,
        IndexError,
        MemoryError,
        TypeError,
        ValueError,
    ) as error:
        raise FileError(f"cannot restore {source}: {reason(error)}") from None
    return coordinator


def _name(coordinator: Coordinator, header: Mapping[str, Any]) -> None:
    clients, channels = header.get("client_ids"), header.get("channel_ids")
    coordinator._clients = Names("client", coordinator.n_clients, clients, free=True)
    coordinator._channels = Names("channel", coordinator.n_channels, channels)


def _check_sizes(
    kind: type[Coordinator], header: Mapping[str, Any], held: Mapping[str, NDArray[Any]]
) -> None:
    """Refuse a problem far larger than the arrays of its file, before room for it is made."""
    numbers = sum(array.size for array in held.values())
    n_clients = whole_number("n_clients", header["n_clients"], at_least=1)
    n_channels = whole_number("n_channels", header["n_channels"], at_least=1)
    options = _fleet_of(header)
    for size in (*header["options"].values(), *options.values(), n_clients, n_channels):
        if isinstance(size, int | float) and not size <= numbers + _SPARE:
            raise FileError(f"it holds {numbers} numbers, too few for a problem of {size}")
    usual = _usual_bytes(kind, header, n_clients, n_channels)
    if usual > _LESS * sum(array.nbytes for array in held.values()) + 8 * _SPARE:
        problem = f"{n_clients} clients and {n_channels} channels"
        raise FileError(f"it holds {numbers} numbers, too few for {problem}")


def _usual_bytes(
    kind: type[Coordinator], header: Mapping[str, Any], n_clients: int, n_channels: int
) -> float:
    """Return about how much the arrays of a problem hold, from those of small problems."""

    def size(n_clients: int, n_channels: int) -> int:
        small = _start(kind, header, n_clients, n_channels)
        parts = (_arrays(getattr(small, f"_{part}")) for part in _PARTS)
        return sum(array.nbytes for arrays in parts for _, array in arrays)

    options = FleetOptions(**_fleet_of(header))
    try:
        one, wider, both = size(1, 4), size(1, 8), size(2, 8)
        if options.links == "differ":
            return (both - wider - size(2, 4) + one) / 4 * n_clients * n_channels
        client = (size(8, 1) - size(4, 1)) / 4
    except Exception:  # a scheduler of one's own need not know problems so small
        return 0.0
    slot = max(both - wider - client, 0.0)
    most = options.most(n_clients, n_channels)
    return client * n_clients + (wider - one) / 4 * n_channels + slot * most


def _start(
    kind: type[Coordinator], header: Mapping[str, Any], n_clients: int, n_channels: int, **more: Any
) -> Coordinator:
    """Return a new coordinator with the options of a file."""
    return kind(
        header["policy"],
        n_clients,
        n_channels,
        options=header["options"],
        horizon=header["horizon"],
        **more,
        **_fleet_of(header),
    )


def _fleet_of(header: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fleet's options; nothing else, such as a log, may be an argument of ours."""
    given: Mapping[str, Any] = header.get("fleet", {})
    unknown = set(given) - set(FleetOptions.model_fields)
    if unknown:
        raise FileError(f"a fleet has no option {shown(min(unknown))}")
    return given


def _restore(
    coordinator: Coordinator, header: Mapping[str, Any], held: Mapping[str, NDArray[Any]]
) -> None:
    t = whole_number("round", header["round"], at_least=0)
    reserved = whole_number("reserved", header["reserved"], at_least=t)
    at = Moment(t, bool(header["planned"]))
    if not at.planned <= reserved - t <= _ROOM:
        raise FileError(f"saved state is not possible: round {t} with room up to round {reserved}")
    if header["format"] == _FIRST:
        _restore_first(coordinator, at, held)
        held = {**held, **{f"fleet.{name}": array for name, array in _arrays(coordinator._fleet)}}
    else:
        for name in ("members", "left"):
            own, saved = getattr(coordinator, f"_{name}"), held[name]
            if saved.shape != own.shape or saved.dtype != own.dtype or (saved < 0).any():
                raise FileError(f"saved state does not fit this problem at {name!r}")
            setattr(coordinator, f"_{name}", saved)
        if (coordinator._members > 1).any() or (coordinator._left > t + 1).any():
            raise FileError("saved state is not possible at 'members'")
    for part in _PARTS:
        fresh = getattr(coordinator, f"_{part}")
        setattr(coordinator, f"_{part}", _rebuild(fresh, held, f"{part}.", at))
    coordinator._round, coordinator._planned, coordinator._reserved = t, at.planned, reserved
    coordinator._observed = whole_number("observed", header.get("observed", t), at_least=0)
    # Reserve the same room as the saved run: growing in other rounds could change rounding.
    coordinator._scheduler = reserve(coordinator._scheduler, reserved - t)
    coordinator._rng.bit_generator.state = header["rng"]


def _restore_first(coordinator: Coordinator, at: Moment, held: Mapping[str, NDArray[Any]]) -> None:
    """Take the desk of the first version; a plan that waits for its outcome goes on waiting."""
    fleet, t = coordinator._fleet, at.round
    for name in ("priorities", "chosen", "scores", "assignment", "overridden", "outcome"):
        old, new = held[f"desk.{name}"], getattr(fleet.desk, name)
        if old.shape != new.shape or old.dtype != new.dtype:
            raise FileError(f"saved state does not fit this problem at {'desk.' + name!r}")
        new[:] = old
    fleet.since[:] = t + 1 - held["desk.ages"]
    fleet.doubts.heard[:] = t
    if at.planned:
        senders = np.flatnonzero(fleet.desk.assignment >= 0)
        channels = fleet.desk.assignment[senders]
        if (channels >= coordinator.n_channels).any():
            raise FileError("saved state is not possible at 'desk.assignment'")
        fleet.sent.rounds[fleet.sent.row(t + 1)] = (t + 1, len(senders), len(senders))
        entries = fleet.sent.of(t + 1)
        entries["client"], entries["channel"], entries["outcome"] = senders, channels, UNKNOWN
        entries["chance"] = np.clip(coordinator.channel_means[channels], _SURE, 1.0 - _SURE)
