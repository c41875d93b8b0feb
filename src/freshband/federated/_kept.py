"""The finished runs of a comparison, kept until all are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from freshband._keeping import KeptRuns
from freshband._sealed import versions_of
from freshband.federated._terms import fingerprint
from freshband.federated.algorithms import Rule
from freshband.federated.clients import name_device, pick_device
from freshband.federated.records import RoundRecord, _stack_records, _unstack_records
from freshband.federated.result import _LIBRARIES
from freshband.federated.settings import Training

Records: TypeAlias = dict[tuple[str, int], list[RoundRecord]]  # by policy and run


class KeptRecords:
    """The records of finished runs, in files."""

    def __init__(
        self,
        path: Any,
        settings: Training,
        asked: Mapping[str, Sequence[Training]],
        algorithm: Rule | None,
        things: Mapping[str, Any],
    ) -> None:
        each = {name: row[0].model_dump(mode="json") for name, row in asked.items()}
        libraries = versions_of(_LIBRARIES)
        device = name_device(pick_device(settings.device))
        made_of: dict[str, Any] = {
            "policies": each,
            "own": repr(algorithm),
            "device": device,
            "with": libraries,
        }
        if things:
            made_of["things"] = {name: fingerprint(value) for name, value in things.items()}
        self._files = KeptRuns(path, made_of)
        self._names, self._rounds = list(asked), settings.rounds

    def load(self, runs: Iterable[int]) -> Records:
        """Return the records of the runs that are there."""
        records: Records = {}
        for run in runs:
            arrays = self._files.load(run)
            for place, name in enumerate(self._names if arrays is not None else ()):
                own = f"{place}."
                fields = {
                    key.removeprefix(own): value
                    for key, value in (arrays or {}).items()
                    if key.startswith(own)
                }
                records[name, run] = _unstack_records(fields, self._rounds)
        return records

    def save(self, run: int, records: Records) -> None:
        """Keep the records of one run."""
        stacked = {
            f"{place}.{field}": values
            for place, name in enumerate(self._names)
            for field, values in _stack_records(records[name, run]).items()
        }
        self._files.save(run, stacked)
