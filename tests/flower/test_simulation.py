"""Flower's own simulation engine plays the run that `freshband train` plays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")
pytest.importorskip("ray")

from freshband.federated import Federation, Training

CONFIG = {
    "clients": 4, "rounds": 6, "seed": 1, "model": "mlp", "path": "threads",
    "matching": "priority",
}  # fmt: skip


def play(out):
    """Play the template in Flower's engine, and write what happened."""
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from freshband.flower import build_rounds
    from freshband.flower.template.task import open_task
    from tests.flower.playground import digits_client
    from tests.flower.test_quickstart import load

    settings = Training(**CONFIG)
    server = ServerApp()

    @server.main()
    def main(grid, context):
        task = open_task(settings)
        rounds = build_rounds(settings, grid, ArrayRecord(task.model().state_dict()))
        records = [json.loads(record.to_json()) for record in rounds]
        model = {name: array.ravel().tolist() for name, array in rounds.model.items()}
        Path(out).write_text(json.dumps({"records": records, "model": model}))

    backend = {"init_args": {"num_cpus": 2}}
    run_simulation(server, digits_client(CONFIG), 4, backend_config=backend)
    theirs, asked = load("server_app.py", scheduled=True), ServerApp()

    @asked.main()
    def ask(grid, context):
        given = {"num-server-rounds": 6, "learning-rate": 0.05}
        theirs.main(grid, Context(context.run_id, context.node_id, {}, context.state, given))

    run_simulation(asked, load("client_app.py", scheduled=True).app, 4, backend_config=backend)
    metrics = theirs.RESULTS[-1].evaluate_metrics_clientapp
    found = json.loads(Path(out).read_text())
    found["quickstart"] = {t: each["eval_acc"] for t, each in metrics.items()}
    Path(out).write_text(json.dumps(found))


@pytest.mark.slow
def test_the_simulation_engine_plays_the_same_run(tmp_path):
    out = tmp_path / "out.json"
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "RAY_worker_niceness": "0",  # by default they wait for everything else on the machine
    }
    done = subprocess.run(
        [sys.executable, __file__, str(out)], check=False, capture_output=True, text=True,
        timeout=600, env=env,
    )  # fmt: skip
    assert out.exists(), done.stderr[-2000:]
    found = json.loads(out.read_text())
    with Federation(Training(**CONFIG)) as federation:
        others = [json.loads(record.to_json()) for record in federation]
        module = federation.module()
    for mine, other in zip(found["records"], others, strict=True):
        for name in ("ages", "delivered", "assignment", "alarm", "staleness", "trained"):
            assert mine[name] == other[name], (mine["round"], name)
        for name in ("contributions", "errors", "priorities", "weights", "steps"):
            assert mine[name] == pytest.approx(other[name], rel=1e-4, abs=1e-5), name
    for name, weights in module.named_parameters():
        flat = weights.detach().ravel().tolist()
        assert found["model"][name] == pytest.approx(flat, rel=1e-4, abs=1e-5), name
    assert list(found["quickstart"]) == ["1", "2", "3", "4", "5", "6"]  # an app of somebody else's
    assert found["quickstart"]["6"] > 0.5


if __name__ == "__main__":
    play(sys.argv[1])
