"""An app that somebody else wrote, given a scheduler by a few changed lines."""

import difflib
import re
import types
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

import torch
from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import FedAvg

from freshband.errors import ParameterError
from freshband.flower import Scheduled
from tests.flower.playground import Playground
from tests.flower.quickstart.task import Net

HOME = Path(__file__).parent / "quickstart"
PAGE = (Path(__file__).parents[2] / "docs" / "flower.md").read_text(encoding="utf-8")
PATCHES = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)


def patched(name):
    """Return the lines of a file with the changes that the page shows, and their number."""
    lines = (HOME / name).read_text(encoding="utf-8").splitlines()
    before, changed = list(lines), 0
    for patch in PATCHES:
        if name not in patch:
            continue
        marked = [line for line in patch.splitlines() if line[:1] in "+-" and line[:3] != "+++"]
        for mark, line in ((line[0], line[2:]) for line in marked if line[:3] != "---"):
            if mark == "-":
                [at] = [n for n, known in enumerate(lines) if known.strip() == line.strip()]
                indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
                del lines[at]
            else:
                if "import" in line:
                    at = max(n for n, known in enumerate(lines) if known.startswith("from "))
                    lines.insert(at + 1, line)
                else:
                    lines.insert(at, indent + line.strip())
    delta = difflib.ndiff(before, lines)
    changed = sum(line.startswith("+ ") for line in delta)
    return "\n".join(lines), changed


def load(name, scheduled):
    source = patched(name)[0] if scheduled else (HOME / name).read_text(encoding="utf-8")
    module = types.ModuleType(f"tests.flower.quickstart.{name[:-3]}_{scheduled}")
    exec(compile(source, str(HOME / name), "exec"), module.__dict__)
    return module


class Nodes(Playground):
    """A playground that also evaluates, as Flower's own strategies ask for it."""

    def __init__(self, app, n_clients):
        super().__init__(app, n_clients)
        for client, context in enumerate(self.contexts.values()):
            context.node_config = {"partition-id": client, "num-partitions": n_clients}

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            replies.append(self.app(message, self.contexts[message.metadata.dst_node_id]))
        return replies


def play(scheduled, rounds=30, clients=4):
    torch.manual_seed(0)
    client, server = load("client_app.py", scheduled), load("server_app.py", scheduled)
    grid = Nodes(client.app, clients)
    config = {"num-server-rounds": rounds, "learning-rate": 0.05}
    server.main(grid, Context(7, 1, {}, RecordDict(), config))
    return server.RESULTS[-1]


def test_at_most_five_lines_change():
    changed = [patched(name)[1] for name in ("client_app.py", "server_app.py")]
    assert min(changed) > 0
    assert sum(changed) <= 5


def test_batchnorm_learns_over_many_rounds_with_a_scheduler():
    plain, scheduled = play(False), play(True)
    accuracy = [result.evaluate_metrics_clientapp[30]["eval_acc"] for result in (plain, scheduled)]
    assert accuracy[1] > 0.85
    assert accuracy[0] - accuracy[1] < 0.1
    assert set(scheduled.evaluate_metrics_clientapp) == set(range(1, 31))
    assert set(scheduled.train_metrics_clientapp) <= set(range(1, 31))
    assert len(scheduled.train_metrics_clientapp) > 20
    state = scheduled.arrays.to_torch_state_dict()
    assert state["norm.running_var"].min() >= 0
    assert state["norm.num_batches_tracked"] > 100
    for name, value in Net().state_dict().items():  # types stay, also those of counters
        assert (state[name].dtype, state[name].shape) == (value.dtype, value.shape)


def test_perfect_channels_and_everybody_on_time_is_the_strategy_itself():
    torch.manual_seed(0)
    client = load("client_app.py", True)
    plain = play(False, rounds=5)
    from flwr.app import ArrayRecord, ConfigRecord

    torch.manual_seed(0)
    loop = Scheduled(
        FedAvg(),
        "random",
        channels="stationary",
        channel_options={"means": [1.0] * 4},
        length_limit=0,
    )
    result = loop.start(
        Nodes(client.app, 4), ArrayRecord(Net().state_dict()), 5,
        train_config=ConfigRecord({"lr": 0.05}),
        evaluate_fn=lambda round, arrays: None,
    )  # fmt: skip
    assert [record.delivered.all() for record in loop.records] == [True] * 5
    for name, value in plain.arrays.to_torch_state_dict().items():
        np.testing.assert_allclose(
            result.arrays.to_torch_state_dict()[name], value, rtol=1e-4, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scheduled(FedAvg), "strategy must be a Flower Strategy, got <class .*not its cl"),
        (lambda: Scheduled(FedAvg(), rounds=3), "rounds follows from the app: leave it out"),
        (lambda: Scheduled(FedAvg(), "byes").start(Nodes(None, 2), None), "unknown scheduler"),
        (
            lambda: Scheduled(FedAvg()).start(Nodes(None, 0), None, timeout=0),
            "clients must be given where no",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()
