"""What the service counts, in the text format of Prometheus."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from freshband import __version__
from freshband.errors import FileError
from freshband.service.catalogue import Catalogue

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0, 10.0)


class Metrics:
    """Requests by route and status, and how long they took.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.count("plan", 200, 0.0004)
    >>> 'freshband_requests_total{route="plan",status="200"} 1' in metrics.text(Catalogue())
    True
    """

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._durations = [0] * (len(_SECONDS) + 1)
        self._seconds = 0.0

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[route, status] += 1
        self._durations[bisect_left(_SECONDS, seconds)] += 1
        self._seconds += seconds

    def text(self, catalogue: Catalogue) -> str:
        """Return all numbers as Prometheus reads them."""
        return "\n".join(itertools.chain(self._own(), _of_coordinators(catalogue), [""]))

    def _own(self) -> Iterator[str]:
        yield from _head("build_info", "gauge", "The version of freshband.")
        yield f'freshband_build_info{{version="{__version__}"}} 1'
        yield from _head("requests_total", "counter", "Requests answered.")
        for (route, status), count in sorted(self._requests.items()):
            yield f'freshband_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _head("request_seconds", "histogram", "Time from a request to its answer.")
        total = 0
        for bound, count in zip([*_SECONDS, "+Inf"], self._durations, strict=True):
            total += count
            yield f'freshband_request_seconds_bucket{{le="{bound}"}} {total}'
        yield f"freshband_request_seconds_sum {self._seconds}"
        yield f"freshband_request_seconds_count {total}"


def _of_coordinators(catalogue: Catalogue) -> Iterator[str]:
    rows: dict[str, list[tuple[str, float]]] = {name: [] for name in _DESCRIBED}
    for name, hosted in catalogue.items():
        try:
            coordinator = hosted.coordinator
        except FileError:  # its file cannot be read; requests say why
            continue
        ages = coordinator.ages
        there = ~np.isnan(ages)
        values = {
            "rounds_total": coordinator.round,
            "changes_total": hosted.executed,
            "repeated_total": hosted.repeated,
            "alarms_total": hosted.alarms,
            "snapshots_total": hosted.snapshots,
            "journal_bytes": hosted.journal_bytes,
            "open_rounds": len(coordinator.open_rounds),
            "clients": int(there.sum()),
            "clients_alive": float(coordinator.alive[there].sum()),
            "age_mean": float(ages[there].mean()) if there.any() else 0.0,
            "age_max": float(ages[there].max()) if there.any() else 0.0,
        }
        for metric, value in values.items():
            rows[metric].append((name, value))
    for metric, found in rows.items():
        kind = "counter" if metric.endswith("_total") else "gauge"
        yield from _head(metric, kind, _DESCRIBED[metric])
        for name, value in found:
            yield f'freshband_{metric}{{coordinator="{name}"}} {value}'


_DESCRIBED: Final = {
    "rounds_total": "Rounds closed.",
    "changes_total": "Requests executed since the start of the process.",
    "repeated_total": "Repeated requests, answered without being executed.",
    "alarms_total": "Changes of a channel that were reported.",
    "snapshots_total": "Snapshots written.",
    "journal_bytes": "Size of the journal.",
    "open_rounds": "Rounds with outcomes that are unknown.",
    "clients": "Clients that have not left.",
    "clients_alive": "Expected number of clients that are there.",
    "age_mean": "Mean expected age of the clients, in rounds.",
    "age_max": "Largest expected age, in rounds.",
}


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP freshband_{name} {text}"
    yield f"# TYPE freshband_{name} {kind}"
