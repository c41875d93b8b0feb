"""Small files in CIFAR's official binary format, and a web server for them on this machine."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from freshband.federated._download import Archive
from freshband.federated.data.cifar import _FileLayout

TINY_10 = _FileLayout(
    folder="cifar-10-batches-bin",
    train={f"data_batch_{number}.bin": 4 for number in range(1, 6)},
    test={"test_batch.bin": 3},
    label_bytes=1,
    n_classes=10,
)
TINY_100 = _FileLayout(
    folder="cifar-100-binary",
    train={"train.bin": 6},
    test={"test.bin": 3},
    label_bytes=2,
    n_classes=100,
)


def records(n: int, layout: _FileLayout, seed: int) -> npt.NDArray[np.uint8]:
    """Draw records with labels that exist."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 256, (n, layout.record), np.uint8)
    drawn[:, : layout.label_bytes] %= 20 if layout.n_classes == 100 else 10  # coarse: 0 … 19
    drawn[:, layout.label_bytes - 1] = rng.integers(0, layout.n_classes, n)
    return drawn


def write(folder: Path, layout: _FileLayout) -> dict[str, npt.NDArray[np.uint8]]:
    """Write all files of a layout; return what is in them."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {}
    for seed, (name, n) in enumerate({**layout.train, **layout.test}.items()):
        held[name] = records(n, layout, seed)
        held[name].tofile(folder / name)
    return held


def write_blank(folder: Path, layout: _FileLayout) -> None:
    """Write sparse files of the official sizes: all labels and pixels zero, no disk used."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in layout.sizes.items():
        with (folder / name).open("wb") as file:
            file.truncate(size)


def pack(path: Path, files: dict[str, bytes]) -> str:
    """Write a compressed tar archive; return its checksum."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def archive_of(folder: Path, layout: _FileLayout, url: str) -> Archive:
    """Pack a layout's files as the official archives are; return how to fetch it."""
    source = folder / "unpacked"
    write(source, layout)
    files = {f"{layout.folder}/{name}": (source / name).read_bytes() for name in layout.sizes}
    extra = {f"{layout.folder}/readme.html": b"see the web", "../outside.bin": b"mischief"}
    checksum = pack(folder / "tiny-binary.tar.gz", {**extra, **files})
    return Archive(f"{url}/tiny-binary.tar.gz", checksum, layout.folder, layout.sizes)


class Server:
    """A web server on this machine that counts what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                asked.append(self.path)

        handler = functools.partial(Handler, directory=str(folder))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a folder for a while."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(folder)
    thread = threading.Thread(
        target=server.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()
        thread.join()
