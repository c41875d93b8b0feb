"""The server: plays the rounds and writes the result."""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp, strategy

from freshband.federated.result import collect_records, save_training
from freshband.flower import DeadlineUplink, StrategyAggregation, build_rounds, read_training
from freshband.flower.template.task import open_task

app = ServerApp()
log = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play all rounds; continue from a checkpoint if there is one."""
    config = context.run_config
    settings = read_training(config)
    task = open_task(settings)

    # When an update counts: a simulated channel let it through, or it came before the deadline.
    uplink = None
    if config["uplink"] == "deadline":
        channels = settings.build_channels().n_channels
        uplink = DeadlineUplink(n_channels=channels, deadline=float(config["deadline"]))

    # How the model is made from updates: freshband's server rule, or a Flower strategy.
    aggregation = None
    if config["strategy"]:
        aggregation = StrategyAggregation(getattr(strategy, str(config["strategy"]))())

    out = Path(str(config["out"])).expanduser() if config["out"] else None
    rounds = build_rounds(
        settings,
        grid,
        ArrayRecord(task.model().state_dict()),
        uplink=uplink,
        aggregation=aggregation,
        sizes=task.partition.sizes,
        evaluate=lambda round, arrays: task.examine(task.model(arrays)),
        wait_for_clients=float(config["wait-for-clients"]),
        checkpoint=out / "checkpoints" if out else None,
    )
    for record in rounds:
        log.info(
            "round %s of %s: accuracy %.3f, delivered %s, ages %s",
            record.round, settings.rounds, record.accuracy,
            [client for client, yes in enumerate(record.delivered) if yes], record.ages.tolist(),
        )  # fmt: skip
    if out:
        result = collect_records(rounds.records, settings)
        result["scheduler_seconds"] = ("round", rounds.scheduler_seconds)
        save_training(result, out / "result.nc")
        log.info("wrote %s", out / "result.nc")
