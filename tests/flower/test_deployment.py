"""Real processes, TLS and keys on this machine: what the federation survives.

A message takes seconds here and much longer on a busy machine. So nothing below depends on how long
things take: clients do what a file tells them until the test has seen what it waits for, and rounds
go on until the test has seen enough. Limits are there to end a test that hangs, no more.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

import torch

from benchmarks.reliability._lossy import WAYS, lossy_network
from freshband.federated import Federation, Training
from freshband.federated._checkpoint import has_checkpoint, load_checkpoint
from freshband.federated.result import load_training
from freshband.flower._deployment import Deployment, DeploymentError
from freshband.flower._keeper import marked
from freshband.flower._scaffold import write_app
from freshband.flower.certificates import make_node_key
from tests.flower.test_quickstart import patched, play

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]

CLIENTS = 3
LIMIT = 300.0  # seconds for one thing to happen

# Put before freshband's mod: a client that trains says so in a file and does what another tells.
TROUBLE = """
import time
from pathlib import Path

import numpy as np


def told(signs, client, round):
    file = signs / f"client-{client}"
    what, _, since = (file.read_text() if file.exists() else "train").partition(" from ")
    return what if round >= int(since or 1) else "train"


def trouble(message, context, call_next):
    client = context.node_config["partition-id"]
    order = message.content["freshband"]
    if order["task"] != "train":
        return call_next(message, context)
    signs = Path(context.run_config["signs"])
    (signs / f"client-{client}-in-round-{order['round']}").write_text(str(np.random.random()))
    while (what := told(signs, client, order["round"])) == "stall":
        time.sleep(0.1)
    if what == "raise":
        raise ValueError("trouble on purpose")
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

# Put into the server: its log as a file, which is there whatever becomes of the stream.
LOGGED = """\
    config = context.run_config
    log.addHandler(logging.FileHandler(Path(config["signs"]) / "server.log"))
"""


def change(file, *pairs):
    text = file.read_text()
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after)
    file.write_text(text)


def make_app(folder: Path, signs: Path) -> Path:
    """Write an app whose clients do what files in a folder tell them."""
    app = folder / "digits"
    write_app(app, clients=CLIENTS, rounds=4)
    config = f'out = ""\nsigns = "{signs}"\nmodel = "mlp"\n'
    change(app / "pyproject.toml", ('out = ""\n', config))
    change(
        app / "digits" / "client_app.py",
        ("app = ClientApp(mods=[channel_mod(on_channel, measure_error)])\n", TROUBLE),
        ("import ArrayRecord", "import Array, ArrayRecord"),
    )
    change(app / "digits" / "server_app.py", ("    config = context.run_config\n", LOGGED))
    signs.mkdir()
    return app


class Stage:
    """A federation, and the folder through which the test and its clients talk."""

    def __init__(self, federation: Deployment, signs: Path) -> None:
        self.federation, self.signs = federation, signs

    def tell(self, client: int, what: str) -> None:
        """Tell a client what to do from now on: train, stall, raise, nan or shape.

        ``"stall from 2"`` is for the orders of round 2 and later ones.
        """
        scratch = self.signs / "scratch"
        scratch.write_text(what)
        scratch.replace(self.signs / f"client-{client}")  # never seen half written

    def trains(self, client: int, round: int) -> bool:
        return (self.signs / f"client-{client}-in-round-{round}").exists()

    def log(self) -> str:
        """Return what the ServerApp logged."""
        file = self.signs / "server.log"
        return file.read_text() if file.exists() else ""

    @contextmanager
    def playing(self, **config):
        """Start a run; end its ServerApp in the end, whatever happened."""
        for sign in self.signs.iterdir():
            if "-in-round-" in sign.name or sign.name == "server.log":
                sign.unlink()
        process = self.federation.begin_run({"clients": CLIENTS, **config})
        try:
            yield
        finally:
            self.kill_server()
            process.kill()
            process.communicate()
            for client in range(CLIENTS):
                self.tell(client, "train")  # nobody stalls for ever

    def kill_server(self) -> None:
        """Kill the ServerApp at once, if there is one."""
        for pid in marked(self.federation.name, "flwr-serverapp"):
            with suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """One federation for all tests that can share it."""
    folder = tmp_path_factory.mktemp("deployment")
    app = make_app(folder, folder / "signs")
    with Deployment(app, CLIENTS, folder / "kept") as federation:
        yield Stage(federation, folder / "signs")
    assert marked(federation.name) == []


def wait_for(condition, about=lambda: "", seconds=LIMIT):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it never happened: {about()}"
        time.sleep(0.1)


def kill_node(federation, client):
    """Kill a client's SuperNode and all it started, as a power cut would."""
    for pid in marked(f"{federation.name}/client-{client}"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    federation.processes.pop(f"client-{client}").wait()


def restart_node(federation, client):
    """Start a SuperNode again and again until the SuperLink takes it back.

    The SuperLink notices only by missing heartbeats, within a minute, that a node was killed, and
    refuses the same key until then.
    """
    log = federation.folder / f"client-{client}.log"
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        already = log.read_bytes().count(b"SuperNode ID")
        node = federation.start_node(client)
        while node.poll() is None and time.monotonic() < end:
            if log.read_bytes().count(b"SuperNode ID") > already:
                return
            time.sleep(0.2)
        kill_node(federation, client)
        time.sleep(2.0)
    raise AssertionError(f"client {client} was not taken back; see {log}")


def rounds_in(out, name):
    """Return a field of the rounds saved so far, shape (rounds, clients)."""
    if not has_checkpoint(out / "checkpoints"):
        return np.zeros((0, CLIENTS))
    return load_checkpoint(out / "checkpoints").tensors[f"records.{name}"].numpy()


def test_a_stranger_is_refused(stage):
    """A SuperNode whose key was never registered does not get in."""
    federation = stage.federation
    stranger, _ = make_node_key(federation.folder / "keys", "stranger")
    command = [sys.executable, "-m", "freshband", "flower", "node", f"127.0.0.1:{federation.port}"]
    command += ["--authority", str(federation.certificates.authority), "--key", str(stranger)]
    tried = subprocess.run(
        [*command, "--client", "2", "--clients", str(CLIENTS)],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert tried.returncode == 1
    assert "SuperNode ID" not in tried.stdout + tried.stderr

    def entered(client):
        return "SuperNode ID" in (federation.folder / f"client-{client}.log").read_text()

    wait_for(lambda: all(entered(client) for client in range(CLIENTS)))
    assert "Attempted to register" in (federation.folder / "superlink.log").read_text()


def test_a_killed_server_goes_on(stage, tmp_path):
    """The ServerApp dies in the middle of a round; another one plays the run never killed."""
    out = tmp_path / "out"
    config = {"rounds": 2, "channels": "stationary", "policy": "glr-cucb"}
    with Federation(Training(model="mlp", clients=CLIENTS, **config)) as alone:
        others = list(alone)
    config["out"] = str(out)
    (awaited, *_) = np.flatnonzero(others[0].delivered)  # who trains in round 2
    for client in range(CLIENTS):
        stage.tell(client, "stall from 2")
    with stage.playing(**config):
        wait_for(lambda: stage.trains(awaited, 2), stage.log)
        assert len(rounds_in(out, "ages")) == 1
        drawn = [sign.read_text() for sign in stage.signs.glob("client-*-in-round-1")]
        assert len({*drawn}) == CLIENTS  # forked processes do not draw alike
        stage.kill_server()
    with stage.playing(**config):
        wait_for((out / "result.nc").exists, stage.log)
        assert "going on after round 1" in stage.log()
        assert "round 1 of 2" not in stage.log()
    server = load_training(out / "result.nc")
    assert server.ages.values.tolist() == [record.ages.tolist() for record in others]
    assert server.delivered.values.tolist() == [record.delivered.tolist() for record in others]
    np.testing.assert_allclose(server.loss.values, [r.loss for r in others], rtol=1e-4)
    assert server.staleness.values[1].max() > 0  # an update of before waited for its delivery


def test_troubled_clients(stage, tmp_path):
    """One client raises, sends NaN, then a wrong shape; one stalls; one loses its node."""
    out = tmp_path / "out"
    stage.tell(0, "raise")
    stage.tell(1, "stall")
    stage.tell(2, "stall")

    def logged(text):
        wait_for(lambda: text in stage.log(), stage.log)

    # Rounds end when they may: client 1 and then the lost node let the first ones last 30 s.
    with stage.playing(rounds=999, uplink="deadline", deadline=30.0, out=str(out)):
        wait_for(lambda: stage.trains(2, 1), stage.log)
        kill_node(stage.federation, 2)
        stage.tell(2, "train")
        logged("client 0 failed")
        stage.tell(0, "nan")
        wait_for(lambda: len(rounds_in(out, "ages")) > 0, stage.log)
        stage.tell(1, "train")  # it has missed the deadline
        logged("must be finite")
        stage.tell(0, "shape")
        without = len(rounds_in(out, "ages"))
        restart_node(stage.federation, 2)
        logged("must have the shape")
        stage.tell(0, "train")
        wait_for(lambda: rounds_in(out, "delivered").any(axis=0).all(), stage.log)
    assert "trouble on purpose" in stage.log()
    delivered, refused = rounds_in(out, "delivered"), rounds_in(out, "refused")
    spoilt = np.flatnonzero(refused[:, 0])
    assert len(spoilt) >= 2
    assert not delivered[: spoilt[-1] + 1, 0].any()
    assert delivered[spoilt[-1] + 1 :, 0].any()
    assert not refused[:, 1:].any()
    (first, *_) = np.flatnonzero(delivered[:, 1])
    assert first > 0
    assert rounds_in(out, "staleness")[first, 1] >= 1  # its update was kept, not thrown away
    assert not delivered[:without, 2].any()
    assert np.isfinite(rounds_in(out, "accuracy")).all()


# As the command does, but for shells that let what they start in the background ignore Ctrl-C.
FRESHBAND = """
import signal
from freshband.cli.app import main

signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


class Up:
    """``freshband flower up`` as its user starts it; nothing of it is left in the end."""

    def __init__(self, folder, *more, before=()):
        self.app = make_app(folder, folder / "signs")
        self.kept, self.output = folder / "kept", folder / "output"
        command = [*before, sys.executable, "-c", FRESHBAND, "flower", "up", str(self.app)]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--keep", str(self.kept), *more],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pid in self.started():
            os.kill(pid, signal.SIGKILL)

    def printed(self):
        return self.output.read_text(errors="replace")

    def started(self):
        """Return what runs with this deployment's home."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                text = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"FLWR_HOME={self.kept / 'flwr'}\0".encode() in text:
                found.append(int(entry.name))
        return found


def test_ctrl_c_ends_everything(tmp_path):
    with Up(tmp_path, "--clients", "1", "--set", "rounds=50") as up:
        wait_for(lambda: "Start `flwr-serverapp`" in up.printed(), up.printed)
        assert up.started()
        for _ in range(3):  # somebody is impatient
            up.process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert up.process.wait(timeout=LIMIT) in (130, -signal.SIGINT), up.printed()
        assert "interrupted" in up.printed()
        assert up.started() == []


@pytest.mark.parametrize("killed", ["flwr-serverapp", "the group"])
def test_what_is_killed_ends_everything(killed, tmp_path):
    """A ServerApp that dies ends the command at once; one that is killed leaves no process."""
    with Up(tmp_path, "--clients", "1", "--set", "rounds=500") as up:
        wait_for(lambda: "round 1 of" in up.printed(), up.printed)
        if killed == "the group":
            os.killpg(up.process.pid, signal.SIGKILL)
        for pid in up.started():
            if killed in Path(f"/proc/{pid}/comm").read_text():
                os.kill(pid, signal.SIGKILL)
        code = up.process.wait(timeout=60)
        wait_for(lambda: up.started() == [])
    if killed != "the group":
        assert code == 1
        assert "error: the ServerApp died before the run was over" in up.printed()


QUICKSTART = """\
[project]
name = "quickstart"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "quickstart.server_app:app"
clientapp = "quickstart.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 3
learning-rate = 0.05
out = ""
"""


def write_quickstart(folder):
    """Write somebody else's app with the lines that the page changes; it saves its model."""
    package = folder / "quickstart"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(QUICKSTART)
    for file in ("__init__.py", "task.py", "client_app.py", "server_app.py"):
        text = patched(file)[0].replace("tests.flower.quickstart", "quickstart")
        (package / file).write_text(text)
    change(
        package / "server_app.py",
        ("# Create", "import torch\n# Create"),
        ("    global_model = ", "    torch.manual_seed(0)\n    global_model = "),
        ("RESULTS.append(result)", "torch.save(result.arrays.to_torch_state_dict(), out)"),
        ("    lr = ", "    out = context.run_config['out']\n    lr = "),
    )


def test_an_app_of_somebody_else_is_the_one_simulated(tmp_path):
    """It learns the same model; and all paths are found from where the command is given."""
    home, out = tmp_path / "some where", 'it\'s "new" ☺'
    write_quickstart(home / "my app")
    command = [sys.executable, "-m", "freshband", "flower", "up", "my app", "--clients", "2"]
    done = subprocess.run(
        [*command, "--keep", "to keep", "--set", f"out={out}"],
        cwd=home, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    state, simulated = torch.load(home / out), play(True, rounds=3, clients=2)
    for name, value in simulated.arrays.to_torch_state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)
    assert (home / "to keep" / "keys" / "client-0.pub").exists()
    assert "SuperNode ID" in (home / "to keep" / "client-0.log").read_text()


def test_the_reason_why_a_key_is_not_registered_is_told(tmp_path):
    app = make_app(tmp_path, tmp_path / "signs")
    with Deployment(app, 1) as federation:
        nonsense = federation.folder / "nonsense.pub"
        nonsense.write_text("no key at all")
        with pytest.raises(DeploymentError, match=r"key of nonsense was not registered: .*[Kk]ey"):
            federation.register([nonsense])


@pytest.mark.parametrize("way", WAYS)
def test_lossy_network(way, tmp_path):
    try:
        before = lossy_network(way)
    except OSError as error:
        pytest.skip(str(error))
    count = '"$@"; code=$?; grep ^Tcp: /proc/net/snmp; exit $code'
    before += ["sh", "-c", count, "sh"]
    out = tmp_path / "out"
    settings = ["rounds=1", "channels=stationary", "uplink=deadline", "deadline=240"]
    settings += [f'out="{out}"']
    more = [part for setting in settings for part in ("--set", setting)]
    with Up(tmp_path, "--clients", "2", "--cold", *more, before=before) as up:
        assert up.process.wait(timeout=2 * LIMIT) == 0, up.printed()
    names, numbers = (line.split() for line in up.printed().splitlines() if line[:4] == "Tcp:")
    assert int(numbers[names.index("RetransSegs")]) > 0  # packets were lost
    assert load_training(out / "result.nc").delivered.values.all()
