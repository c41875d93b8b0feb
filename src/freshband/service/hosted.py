"""A coordinator in service: requests are answered once, and what was answered is kept.

With a file, every request that changed something is a line in a journal, written and synced before
the answer leaves. After a crash the coordinator is restored from its last snapshot and the requests
since are executed again; each must have the answer that the journal holds. A snapshot is made every
few thousand lines, and at the end.

The first line of a journal, and one before every snapshot, names a snapshot by its digest, so a
crash at any time leaves a state and a journal of which it is known what follows what.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from freshband._files import write_whole
from freshband.coordinator import Coordinator
from freshband.errors import FileError, ParameterError, RuleError, accessing, reason, shown
from freshband.service._exclusive import Exclusive
from freshband.service.calls import CALLS, SETTINGS, check_body
from freshband.service.journal import Journal
from freshband.warming import compile_for

_LOG = logging.getLogger("freshband.service")
_FORMAT: Final = "freshband journal 1"
_REMEMBERED: Final = 64  # answers, for requests that are repeated
_SORT: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
_WRITE: Final = json.JSONEncoder(separators=(",", ":")).encode
_LINES: Final = 4096  # of a journal, after which a snapshot is made,
_BYTES: Final = 1 << 26  # and its size


class Hosted:
    """A coordinator in service.

    Parameters
    ----------
    settings : mapping
        Arguments of `Coordinator`. An existing file must have been started with the same.
    path : Path, optional
        Where its state is kept, with a journal beside it; without one it lives in memory.
    key : bytes, optional
        A secret that seals both files.

    Examples
    --------
    >>> hosted = Hosted({"policy": "cucb", "n_clients": 1, "n_channels": 1})
    >>> hosted.answer("plan", {"round": 1})
    b'{"round":1,"channels":[0],"alarm":null}'
    >>> hosted.answer("plan", {"round": 2, "delivered": [True]})
    b'{"round":2,"channels":[0],"alarm":null}'
    >>> hosted.answer("plan", {"round": 2, "delivered": [True]})  # repeated: nothing is executed
    b'{"round":2,"channels":[0],"alarm":null}'
    """

    def __init__(
        self, settings: Mapping[str, Any], path: Path | None = None, key: bytes | None = None
    ) -> None:
        self.settings = check_body("a coordinator", dict(settings), SETTINGS)
        self.path: Final = path
        self.executed = self.repeated = self.alarms = self.snapshots = 0
        self._key = key
        self._coordinator: Coordinator | None = None
        self._answers: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._journal: Journal | None = None
        if path is None:
            self._coordinator = Coordinator(**self.settings, warm_up=True)
            return
        self._journal = Journal(path.with_name(f"{path.name}.journal"), key)
        self._lock = Exclusive(path.with_name(f"{path.name}.lock"), path)
        try:
            self._open(path, self._journal)
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def reopened(cls, path: Path, key: bytes | None = None) -> Hosted:
        """Return what is kept in a file, with the settings it was started with."""
        journal = Journal(path.with_name(f"{path.name}.journal"), key)
        return cls(journal.first().get("settings", {}), path, key)

    # ------------------------------------------------------------------------------- requests

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, read from its file again if an answer could not be kept."""
        if self._coordinator is None:
            assert self.path is not None
            assert self._journal is not None
            self._restore(self.path, self._journal)
        assert self._coordinator is not None
        return self._coordinator

    @property
    def journal_bytes(self) -> int:
        """The size of the journal."""
        return 0 if self._journal is None else self._journal.size

    def answer(self, call: str, body: Any) -> bytes:
        """Return the answer to a request as JSON; `settle` must have returned before it leaves.

        A request that is equal to an earlier one about the same subject (a round, an outcome, a
        client) gets the same answer, and changes nothing. Raises what the call in Python raises.
        """
        given = check_body(call, body, CALLS[call].fields)
        coordinator = self.coordinator
        text, subject = _named(call, given)
        known, answer = self._answers.get(subject, ("", b""))
        if known == f"{call} {text}":
            self.repeated += 1
            return answer
        reply = self._execute(coordinator, call, given)
        if self._journal is not None:
            line = b'{"call":"%s","body":%s,"reply":%s}' % (call.encode(), text.encode(), reply)
            try:
                self._journal.append(line)
            except FileError:
                self._coordinator = None  # it is ahead of its file
                raise
        self._remember(subject, f"{call} {text}", reply)
        self.executed += 1
        return reply

    def _execute(self, coordinator: Coordinator, call: str, given: Mapping[str, Any]) -> bytes:
        try:
            reply = CALLS[call].run(coordinator, given)
        except RuleError:  # a user's own scheduler, after it has changed something
            if self._journal is not None:
                self._coordinator = None
            raise
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ParameterError):
                raise
            raise ParameterError(f"{call} cannot use {shown(given)}: {reason(error)}") from None
        self.alarms += reply.get("alarm") is not None
        return _WRITE(reply).encode()

    def _remember(self, subject: str, text: str, reply: bytes) -> None:
        self._answers.pop(subject, None)
        self._answers[subject] = (text, reply)
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)

    @property
    def unsettled(self) -> bool:
        """Whether an answer is not durable yet."""
        return self._journal is not None and self._journal.unsynced

    def settle(self) -> None:
        """Make all answers durable, and now and then a snapshot; raises `FileError`."""
        journal = self._journal
        if journal is None:
            return
        try:
            journal.sync()
        except FileError:
            self._coordinator = None  # what the file holds is not known: read it again
            raise
        if journal.lines > _LINES or journal.size > _BYTES:
            try:
                self.snapshot()
            except FileError as error:  # the journal has it all
                _LOG.warning("no snapshot was made: %s", error)

    # ---------------------------------------------------------------------------------- files

    def snapshot(self) -> None:
        """Write the state and begin a new journal; raises `FileError`."""
        if self.path is None or self._journal is None:
            return
        state = self.coordinator.to_bytes(key=self._key)
        first = self._opening(state)
        self._journal.append(first)
        self._journal.sync()
        write_whole(self.path, state)
        self._journal.begin(first)
        self.snapshots += 1

    def close(self) -> None:
        """Make a snapshot and let others use the files."""
        if self._journal is None:
            return
        try:
            if self._journal.lines > 1:
                self.snapshot()
        finally:
            self._journal.close()
            self._lock.release()

    def remove(self) -> None:
        """Delete the files; the state goes first, because it is what is looked for."""
        if self.path is None or self._journal is None:
            return
        self._journal.close()
        self._lock.release()
        for path in (
            self.path,
            self._journal.path,
            self.path.with_name(f"{self.path.name}.lock"),
        ):
            path.unlink(missing_ok=True)

    def _opening(self, state: bytes) -> bytes:
        """Return the line that names a snapshot, with all that must be known to go on from it."""
        opening = {
            "format": _FORMAT,
            "snapshot": hashlib.sha256(state).hexdigest(),
            "settings": self.settings,
            "answers": [
                [subject, text, reply.decode()] for subject, (text, reply) in self._answers.items()
            ],
        }
        return _WRITE(opening).encode()

    def _open(self, path: Path, journal: Journal) -> None:
        """Start a coordinator, or restore the one that is kept."""
        if path.exists() and journal.path.exists():
            self._restore(path, journal)
        elif path.exists():  # saved by `Coordinator.save`
            self._coordinator = Coordinator.load(path, key=self._key)
            for name in ("n_clients", "n_channels"):
                self._agree(name, getattr(self._coordinator, name))
            journal.begin(self._opening(path.read_bytes()))
        else:
            if journal.path.exists() and len(journal.read()) > 1:
                raise FileError(
                    f"{path} is missing, but not its journal {journal.path}: bring it back, or "
                    "remove the journal to begin anew"
                )
            self._coordinator = Coordinator(**self.settings)
            state = self._coordinator.to_bytes(key=self._key)
            journal.begin(self._opening(state))
            write_whole(path, state)
        assert self._coordinator is not None
        compile_for(self._coordinator)

    def _restore(self, path: Path, journal: Journal) -> None:
        """Read the snapshot, and execute the requests since then again."""
        records = journal.read()
        with accessing("read", path):
            state = path.read_bytes()
        digest = hashlib.sha256(state).hexdigest()
        found = [n for n, each in enumerate(records) if each.get("snapshot") == digest]
        if not found or records[0].get("format") != _FORMAT:
            raise FileError(f"{journal.path} does not belong to {path}, which was changed since")
        for name in SETTINGS:
            self._agree(name, records[0]["settings"].get(name))
        self._answers.clear()
        for subject, text, reply in records[found[-1]]["answers"]:
            self._remember(subject, text, reply.encode())
        coordinator = Coordinator.from_bytes(state, str(path), key=self._key)
        for number, record in enumerate(records[found[-1] + 1 :], start=found[-1] + 2):
            if "call" in record:
                self._replay(coordinator, record, f"{journal.path}, line {number}")
        self._coordinator = coordinator

    def _replay(self, coordinator: Coordinator, record: Mapping[str, Any], where: str) -> None:
        call, given = record["call"], record["body"]
        reply = self._execute(coordinator, call, given)
        if json.loads(reply) != record["reply"]:
            raise FileError(
                f"{where}: executed again, the answer is {shown(reply)}, not "
                f"{shown(record['reply'])}; the file is of another version of freshband"
            )
        text, subject = _named(call, given)
        self._remember(subject, f"{call} {text}", reply)

    def _agree(self, name: str, kept: Any) -> None:
        """Raise `ParameterError` if a setting is not what a file was started with."""
        given = self.settings.get(name)
        default = SETTINGS[name].schema.get("default")
        if (default if given is None else given) != (default if kept is None else kept):
            raise ParameterError(
                f"{self.path} holds a coordinator with {name}={shown(kept)}, got {shown(given)}"
            )


def _named(call: str, given: Mapping[str, Any]) -> tuple[str, str]:
    """Return a request's body as text, and what it is about."""
    text = _SORT(given)
    return text, CALLS[call].subject(given, text)
