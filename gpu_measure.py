"""Measure ways to train 20 clients on one GPU: ``PYTHONPATH=src:. python3 gpu_measure.py [seconds]``.

Each variant is a process of its own: all of a wave compile at the same time, then each in turn is
timed alone. Prints a line of JSON per variant as soon as it is known.
"""

import contextlib
import copy
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import numpy as np
import torch

CLIENTS, STEPS, BATCH, LR, REPEATS = 20, 5, 64, 0.01, 7
CLASSES = {"cnn8": 10, "resnet18": 100}


@contextlib.contextmanager
def multiplying(precision):
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    wanted = "tf32" if precision == "tf32" else "ieee"
    before = (cudnn.deterministic, cudnn.conv.fp32_precision, matmul.fp32_precision)
    cudnn.deterministic = True
    cudnn.conv.fp32_precision = matmul.fp32_precision = wanted
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.conv.fp32_precision, matmul.fp32_precision = before


class Bench:
    def __init__(self, name):
        from freshband.federated.clients.base import Job, Layout
        from freshband.federated.data.base import Dataset
        from freshband.federated.models import build_model

        rng = np.random.default_rng(0)
        images = torch.from_numpy(rng.integers(0, 256, (10_000, 3, 32, 32), np.uint8))
        labels = torch.from_numpy(rng.integers(0, CLASSES[name], 10_000))
        self.dataset = Dataset.of(
            images[:9_000], labels[:9_000], images[9_000:], labels[9_000:],
            n_classes=CLASSES[name],
        ).to("cuda")
        self.module = build_model(name, self.dataset.shape, CLASSES[name], seed=0)
        self.layout = Layout(self.module)
        self.start = self.layout.read(self.module).cuda()
        outs = torch.empty((CLIENTS, self.layout.size), device="cuda")
        batches = rng.integers(0, 9_000, (CLIENTS, STEPS, BATCH))
        self.jobs = [Job(self.start, some, out) for some, out in zip(batches, outs)]
        self.outs = outs
        self.batches = torch.from_numpy(batches).cuda()

    def exact(self):
        """Each client by itself, torch's own kernels, uncompiled, float32; a few clients."""
        module = copy.deepcopy(self.module).cuda()
        found = []
        with multiplying("float32"):
            for samples in self.batches[:4]:
                self.layout.write(self.start, module)
                for some in samples:
                    images = self.dataset.normalise(self.dataset.train_images[some])
                    loss = torch.nn.functional.cross_entropy(
                        module(images), self.dataset.train_labels[some]
                    )
                    gradients = torch.autograd.grad(loss, list(module.parameters()))
                    with torch.no_grad():
                        for weights, gradient in zip(module.parameters(), gradients):
                            weights -= LR * gradient
                found.append((self.start - self.layout.read(module)) / LR)
        return torch.stack(found)


class Graphed:
    def __init__(self, bench, way, precision, room):
        if way == "streams":
            from gpu_streams import GraphedClients
        else:
            from freshband.federated.clients.gpu import mapped
            from freshband.federated.clients.gpu.graphs import GraphedClients
        if way == "vmap":  # convolutions stay convolutions
            mapped._is_plain = lambda part: False
        self.bench = bench
        self.clients = GraphedClients(
            bench.module, bench.dataset, precision, way="mapped" if way == "vmap" else way,
            together=room,
        )
        self.train()
        model = getattr(self.clients, "_model", None)
        self.compiled = getattr(model, "_compiled", None) is not None

    def train(self):
        self.clients.train(self.bench.jobs, LR)


def profile(path):
    """Return the share of GPU time of the heaviest kernels."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CUDA]) as seen:
        path.train()
        torch.cuda.synchronize()
    rows = [(event.key[:70], event.self_device_time_total) for event in seen.key_averages()]
    total = sum(took for _, took in rows) or 1.0
    rows.sort(key=lambda row: -row[1])
    return {name: round(100 * took / total, 1) for name, took in rows[:7]}


def worker(name, way, precision, room):
    began = time.perf_counter()
    found = {"model": name, "way": way, "precision": precision, "room": room}
    try:
        bench = Bench(name)
        path = Graphed(bench, way, precision, room)
        path.train()
        torch.cuda.synchronize()
        found["compiled"] = path.compiled
        found["prepare_s"] = round(time.perf_counter() - began, 1)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"[:600]
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(found), flush=True)
        return
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        times = []
        for turn in range(-2, REPEATS):
            torch.cuda.synchronize()
            began = time.perf_counter()
            path.train()
            torch.cuda.synchronize()
            if turn >= 0:
                times.append(time.perf_counter() - began)
        found["ms"] = round(statistics.median(times) * 1e3, 2)
        found["spread_ms"] = [round(min(times) * 1e3, 2), round(max(times) * 1e3, 2)]
        first = bench.outs.clone()
        path.train()
        found["same_bits_twice"] = bool(torch.equal(first, bench.outs))
        want = bench.exact()
        off = first[: len(want)] - want
        found["max_abs_off"] = float(off.abs().max())
        found["of_max"] = float(want.abs().max())
        found["relative_off"] = float(off.norm() / want.norm())
        found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
        found["kernels"] = profile(path)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"[:600]
    print(json.dumps(found), flush=True)


WAVES = [
    [(name, "kernels", precision, 40) for name in CLASSES for precision in ("bf16", "tf32")],
]


def collect(child, lines):
    for line in child.stdout:
        lines.append(line.strip())


def main(seconds):
    ends = time.monotonic() + seconds
    folder = os.environ.get("OUT", ".")
    everything = []
    for at, wave in enumerate(WAVES):
        left = ends - time.monotonic()
        if left < 15:
            print(f"no time left for wave {at + 1}", flush=True)
            continue
        print(f"--- wave {at + 1} with {left:.0f} s left", flush=True)
        environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="2", PYTHONWARNINGS="ignore")
        running = []
        for label in wave:
            log = open(os.path.join(folder, f"log-{at + 1}.txt"), "a")  # noqa: SIM115
            child = subprocess.Popen(
                [sys.executable, __file__, "worker", *map(str, label)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=environment,
            )
            lines = []
            reader = threading.Thread(target=collect, args=(child, lines), daemon=True)
            reader.start()
            running.append((label, child, lines, reader))
        wave_ends = min(ends, time.monotonic() + max(left - 45, 30))
        while time.monotonic() < wave_ends and not all(
            lines or child.poll() is not None for _, child, lines, _ in running
        ):
            time.sleep(0.2)
        late = [each for each in running if not each[2]]
        for label, child, _, _ in late:  # they would disturb the others
            child.kill()
            print(json.dumps({"variant": label, "error": "not ready in time"}), flush=True)
        for label, child, lines, reader in running:
            if not lines:
                continue
            try:
                child.stdin.write("go\n")
                child.stdin.flush()
                reader.join(timeout=max(5, ends - time.monotonic()))
                everything.append(json.loads(lines[-1]))
                print(lines[-1], flush=True)
            except Exception as error:
                child.kill()
                print(json.dumps({"variant": label, "error": repr(error)}), flush=True)
    print("\nmodel     precision way             room      ms  peak GB  prepare s  rel. off  bits")
    for row in everything:
        if "ms" in row:
            print(
                f"{row['model']:9} {row['precision']:9} {row['way']:15} {row['room']:4} "
                f"{row['ms']:7.2f} {row['peak_gb']:8.1f} {row['prepare_s']:10.1f} "
                f"{row['relative_off']:9.2e}  {'same' if row['same_bits_twice'] else 'DIFFER'}"
                f"{'' if row['compiled'] or row['way'] in ('streams', 'kernels') else ' EAGER'}"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 280.0)
