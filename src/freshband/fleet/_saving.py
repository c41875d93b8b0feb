"""Coordinators as bytes, in the format of today and of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from freshband._packed import pack, unpack
from freshband.errors import FileError, FreshbandError, reason
from freshband.fleet._planning import _SURE
from freshband.fleet._state import UNKNOWN
from freshband.states import _arrays, _rebuild, reserve

if TYPE_CHECKING:
    from freshband.coordinator import Coordinator

_FORMAT: Final = "freshband coordinator 2"
_FIRST: Final = "freshband coordinator 1"  # one slot per client, no outcome ever late
_PARTS: Final = ("fleet", "scheduler", "matching")


def write_coordinator(coordinator: Coordinator) -> bytes:
    """Return a file of a coordinator: a header and copies of all arrays, taken at one time."""
    with coordinator._lock:
        header = {
            "policy": coordinator.policy.name,
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
    return pack(_FORMAT, header, held)


def read_coordinator(kind: type[Coordinator], data: bytes, source: str) -> Coordinator:
    """Return the coordinator in a file, or raise `FileError` about ``source``."""
    header, held = unpack(_FORMAT, data, source, older=(_FIRST,))
    try:
        coordinator = kind(
            header["policy"],
            header["n_clients"],
            header["n_channels"],
            header["seed"],
            run=header.get("run", 0),
            options=header["options"],
            horizon=header["horizon"],
            client_ids=header.get("client_ids"),
            channel_ids=header.get("channel_ids"),
            **header.get("fleet", {}),
        )
        if header["format"] == _FIRST:
            _restore_first(coordinator, header, held)
        else:
            coordinator._fleet = _rebuild(coordinator._fleet, held, "fleet.")
            coordinator._members, coordinator._left = held["members"], held["left"]
        _restore(coordinator, header, held)
    except KeyError as error:
        raise FileError(f"cannot restore {source}: it lacks {error}") from None
    except (FreshbandError, TypeError, ValueError) as error:
        raise FileError(f"cannot restore {source}: {reason(error)}") from None
    return coordinator


def _restore(
    coordinator: Coordinator, header: Mapping[str, Any], held: Mapping[str, NDArray[Any]]
) -> None:
    coordinator._scheduler = _rebuild(coordinator._scheduler, held, "scheduler.")
    coordinator._matching = _rebuild(coordinator._matching, held, "matching.")
    coordinator._round, coordinator._planned = int(header["round"]), bool(header["planned"])
    # Reserve the same room as the saved run: growing in other rounds could change rounding.
    coordinator._reserved = int(header["reserved"])
    room = max(0, coordinator._reserved - coordinator._round)
    coordinator._scheduler = reserve(coordinator._scheduler, room)
    coordinator._rng.bit_generator.state = header["rng"]


def _restore_first(
    coordinator: Coordinator, header: Mapping[str, Any], held: Mapping[str, NDArray[Any]]
) -> None:
    """Take the desk of the first version; a plan that waits for its outcome goes on waiting."""
    fleet, t = coordinator._fleet, int(header["round"])
    for name in ("priorities", "chosen", "scores", "assignment", "overridden", "outcome"):
        old, new = held[f"desk.{name}"], getattr(fleet.desk, name)
        if old.shape != new.shape or old.dtype != new.dtype:
            raise FileError(f"saved state does not fit this problem at {'desk.' + name!r}")
        new[:] = old
    fleet.since[:] = t + 1 - held["desk.ages"]
    fleet.doubts.heard[:] = t
    if header["planned"]:
        senders = np.flatnonzero(fleet.desk.assignment >= 0)
        channels = fleet.desk.assignment[senders]
        fleet.sent.rounds[fleet.sent.row(t + 1)] = (t + 1, len(senders), len(senders))
        entries = fleet.sent.of(t + 1)
        entries["client"], entries["channel"], entries["outcome"] = senders, channels, UNKNOWN
        entries["chance"] = np.clip(coordinator.channel_means[channels], _SURE, 1.0 - _SURE)
