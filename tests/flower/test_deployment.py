"""Real processes, TLS and keys on this machine: what the federation survives.

A message takes seconds here, so there are few rounds and several troubles in one run.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

from freshband.federated import Federation, Training
from freshband.federated.result import load_training
from freshband.flower.deployment import Deployment, _marked
from freshband.flower.scaffold import write_app

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]

# Put before freshband's mod: what a broken client does, as "client:round:what" in the settings.
TROUBLE = """
import time


def trouble(message, context, call_next):
    order = message.content["freshband"]
    client, round, task = context.node_config["partition-id"], order["round"], order["task"]
    plan = {}
    for part in filter(None, str(context.run_config["trouble"]).split()):
        who, when, what = part.split(":")
        plan[int(who), int(when)] = what
    what = plan.get((client, round)) if task == "train" else None
    if what == "raise":
        raise ValueError("trouble on purpose")
    if what == "stall":
        time.sleep(float(context.run_config["stall"]))
    reply = call_next(message, context)
    if what in ("nan", "shape"):
        record = reply.content.array_records["arrays"]
        name = next(iter(record))
        array = record[name].numpy().copy()
        array = array * float("nan") if what == "nan" else array[:1]
        record[name] = Array(array)
    return reply


app = ClientApp(mods=[trouble, channel_mod(on_channel, measure_error)])
"""


def make_app(folder: Path) -> Path:
    app = folder / "digits"
    write_app(app, clients=3, rounds=4)
    project = app / "pyproject.toml"
    config = 'trouble = ""\nstall = 0.0\nmodel = "mlp"\n'
    project.write_text(project.read_text().replace('out = ""\n', 'out = ""\n' + config))
    client = app / "digits" / "client_app.py"
    plain = "app = ClientApp(mods=[channel_mod(on_channel, measure_error)])\n"
    text = client.read_text()
    assert plain in text
    text = text.replace(plain, TROUBLE).replace("import ArrayRecord", "import Array, ArrayRecord")
    client.write_text(text)
    return app


@contextmanager
def told(federation, config, timeout=240.0):
    """Run in the background; lend the growing log and wait for the end."""
    lines, code = [], []
    thread = threading.Thread(
        target=lambda: code.append(federation.run(config, lines.append, timeout))
    )
    thread.start()
    yield lines
    thread.join()
    lines.append(f"code {code}")


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.2)


def seen(lines, text):
    return any(text in line for line in lines)


def test_troubled_clients_and_strangers(tmp_path):
    out = tmp_path / "out"
    with Deployment(make_app(tmp_path), 2, tmp_path / "kept") as federation:
        stranger, _ = federation.new_key("stranger")
        refused_node = federation.start_node(9, key=stranger)
        config = {
            "clients": 2, "rounds": 4, "uplink": "deadline", "deadline": 30.0, "stall": 34.0,
            "out": str(out), "trouble": "0:1:raise 0:2:nan 0:3:shape 1:1:stall",
        }  # fmt: skip
        with told(federation, config) as lines:
            pass
        assert lines[-1] == "code [0]", lines
        assert refused_node.wait(timeout=60) != 0
        entered = [
            "SuperNode ID" in (federation.folder / f"client-{client}.log").read_text()
            for client in (0, 1, 9)
        ]
    result = load_training(out / "result.nc")
    delivered, refused = result.delivered.values, result.refused.values
    assert not delivered[:3, 0].any(), delivered  # raised, NaN, wrong shape
    assert refused[:, 0].tolist() == [False, True, True, False]
    assert delivered[3, 0]
    assert not delivered[0, 1]  # it stalled past the deadline
    stale = result.staleness.values[:, 1]
    assert delivered[1:, 1].any()
    assert stale[np.flatnonzero(delivered[:, 1])[0]] >= 1  # and was kept, not thrown away
    assert np.isfinite(result.accuracy.values).all()
    assert entered == [True, True, False]  # the last one's key was never registered
    assert _marked(federation.name) == []


def test_a_killed_node_comes_back(tmp_path):
    """A SuperNode dies while its client trains, and is started again."""
    out = tmp_path / "out"
    with Deployment(make_app(tmp_path), 2, tmp_path / "kept") as federation:
        config = {
            "clients": 2, "rounds": 9, "uplink": "deadline", "deadline": 20.0, "stall": 10.0,
            "out": str(out), "trouble": "1:1:stall",
        }  # fmt: skip
        log = federation.folder / "client-1.log"
        with told(federation, config) as lines:
            wait_for(lambda: "ROUND 1" in log.read_text())
            time.sleep(2.0)
            federation.kill_node(1)
            federation.restart_node(1)
        assert lines[-1] == "code [0]", lines
    delivered = load_training(out / "result.nc").delivered.values
    assert not delivered[0, 1]
    assert delivered[1:, 1].any()
    assert delivered[:, 0].any()


def test_a_killed_server_goes_on(tmp_path):
    """The ServerApp dies after a round; started again it plays the run that was never killed."""
    out = tmp_path / "out"
    with Deployment(make_app(tmp_path), 2, tmp_path / "kept") as federation:
        config = {"clients": 2, "rounds": 4, "out": str(out)}
        process = federation.begin_run(config)
        assert process.stdout is not None
        for line in process.stdout:
            if b"round 2 of 4" in line:
                break
        for pid in _marked(federation.name):
            if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()
        with told(federation, config) as second:
            pass
        assert second[-1] == "code [0]", second
        assert seen(second, "going on after round")
        assert not seen(second, "round 1 of 4")
    server = load_training(out / "result.nc")
    with Federation(Training(model="mlp", clients=2, rounds=4)) as alone:
        others = list(alone)
    assert server.ages.values.tolist() == [record.ages.tolist() for record in others]
    assert server.delivered.values.tolist() == [record.delivered.tolist() for record in others]
    np.testing.assert_allclose(server.loss.values, [r.loss for r in others], rtol=1e-4)


def up(app, *more, before=()):
    command = [*before, sys.executable, "-m", "freshband", "flower", "up", str(app), *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def children(folder):
    """Return what still runs with a deployment's folder in its arguments or environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"FLWR_HOME={folder}".encode() in text:
            found.append(int(entry.name))
    return found


def test_ctrl_c_ends_everything(tmp_path):
    kept = tmp_path / "kept"
    process = up(make_app(tmp_path), "--clients", "1", "--set", "rounds=50", "--keep", str(kept))
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "Starting logstream" in line:
                break
        assert children(kept / "flwr")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    assert children(kept / "flwr") == []


def lossy_network():
    """Return a command that runs another on a lossy, slow loopback, or say why there is none."""
    tools = [shutil.which(name) for name in ("unshare", "ip", "tc")]
    if not all(tools):
        pytest.skip("needs unshare, ip and tc")
    shape = "ip link set lo up && tc qdisc add dev lo root netem loss 5% delay 20ms 10ms"
    tried = subprocess.run(
        ["unshare", "-n", "sh", "-c", shape], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"this machine makes no lossy network: {tried.stderr.strip()}")
    return ["unshare", "-n", "sh", "-c", shape + ' && exec "$@"', "sh"]


def test_lossy_network(tmp_path):
    before = lossy_network()
    out = tmp_path / "out"
    process = up(
        make_app(tmp_path), "--clients", "2", "--set", "rounds=3", "--set", "uplink=deadline",
        "--set", "deadline=60", "--set", f'out="{out}"', before=before,
    )  # fmt: skip
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 0, printed
    assert load_training(out / "result.nc").delivered.values.any()
