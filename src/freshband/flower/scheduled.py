"""A Flower strategy whose updates travel over scheduled channels: for an app one already has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from freshband._default import DEFAULT_POLICY
from freshband.errors import ParameterError, shown
from freshband.federated.records import RoundRecord
from freshband.federated.settings import Training
from freshband.federated.uplink import Uplink
from freshband.flower.aggregation import StrategyAggregation
from freshband.flower.building import build_rounds

_PATIENCE = 60.0  # seconds to wait for nodes at the start
_PAUSE = 1.0  # seconds between two looks at them

_log = logging.getLogger("flwr")


class Scheduled:
    """Puts a scheduler around a Flower strategy: ``Scheduled(FedAvg()).start(grid, ...)``.

    `start` takes what the strategy's own does and returns the same `Result`. The clients of the app
    need `channel_mod`: ``ClientApp(mods=[channel_mod()])``. Nothing else of the app changes.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        It configures training and evaluation, and aggregates; who trains and whose update counts
        depends on the channels.
    policy : str, default "bayes"
        The scheduler, as for ``freshband train``.
    clients : int >= 1, optional
        The number of clients, whose ``partition-id`` is their number; by default the number of
        nodes that are connected at the start.
    uplink : Uplink, optional
        What "delivered" means, such as `DeadlineUplink`; by default the channels of the settings,
        simulated.
    **settings
        Further settings of `freshband.federated.Training`, such as ``channels`` or ``seed``.

    Attributes
    ----------
    records : list of RoundRecord
        All rounds: ages, channels, deliveries.
    """

    def __init__(
        self,
        strategy: Strategy,
        policy: str = DEFAULT_POLICY,
        *,
        clients: int | None = None,
        uplink: Uplink | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(strategy, Strategy):
            hint = "; give an object, not its class" if isinstance(strategy, type) else ""
            raise ParameterError(f"strategy must be a Flower Strategy, got {shown(strategy)}{hint}")
        for name in ("rounds", "algorithm"):
            if name in settings:
                raise ParameterError(f"{name} follows from the app: leave it out")
        self.strategy, self.clients, self.uplink = strategy, clients, uplink
        self.settings = {"policy": policy, **settings}
        self.records: list[RoundRecord] = []

    def _count_nodes(self, grid: Grid, patience: float) -> int:
        """Return the number of nodes, once enough are connected and it stays the same a while."""
        enough = max(1, int(getattr(self.strategy, "min_available_nodes", 1)))
        before, end = 0, time.monotonic() + patience
        while time.monotonic() < end:
            now = len(list(grid.get_node_ids()))
            if now >= enough and now == before:
                return now
            before = now
            time.sleep(_PAUSE)
        return before

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Play all rounds; see ``flwr.serverapp.strategy.Strategy.start``.

        Where ``clients`` was not given, nodes have a minute to connect, or ``timeout`` seconds if
        that is less.
        """
        nodes = self.clients
        if nodes is None:
            nodes = self._count_nodes(grid, min(_PATIENCE, timeout))
        if nodes < 1:
            raise ParameterError("clients must be given where no node is connected at the start")
        settings = Training(clients=nodes, rounds=num_rounds, **self.settings)
        aggregation = StrategyAggregation(self.strategy, config=dict(train_config or {}))
        rounds = build_rounds(
            settings, grid, initial_arrays, uplink=self.uplink, aggregation=aggregation
        )
        result = Result(arrays=initial_arrays)
        self._examine(0, initial_arrays, evaluate_fn, result)
        for record in rounds:
            self.records.append(record)
            arrays = result.arrays = rounds.arrays
            got = [client for client, yes in enumerate(record.delivered) if yes]
            _log.info("round %s of %s: delivered %s", record.round, num_rounds, got)
            messages = self.strategy.configure_evaluate(
                record.round, arrays, evaluate_config or ConfigRecord(), grid
            )
            replies = grid.send_and_receive(messages, timeout=timeout)
            found = self.strategy.aggregate_evaluate(record.round, replies)
            if found is not None:
                result.evaluate_metrics_clientapp[record.round] = found
            self._examine(record.round, arrays, evaluate_fn, result)
        result.train_metrics_clientapp = aggregation.metrics
        return result

    def _examine(
        self,
        round: int,
        arrays: ArrayRecord,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
        result: Result,
    ) -> None:
        found = None if evaluate_fn is None else evaluate_fn(round, arrays)
        if found is not None:
            result.evaluate_metrics_serverapp[round] = found
