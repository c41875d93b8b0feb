from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freshband.errors import FileError, ParameterError
from freshband.federated._checkpoint import has_checkpoint, load_checkpoint, save_checkpoint

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16,
    torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip

names = st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def any_tensor(draw: st.DrawFn) -> torch.Tensor:
    """Any bits, in any shape, laid out in any way."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    n_bytes = torch.empty(shape, dtype=dtype).numel() * dtype.itemsize
    top = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, top, (n_bytes,), dtype=torch.uint8, generator=generator)
    tensor = raw.view(dtype).reshape(shape) if n_bytes else torch.empty(shape, dtype=dtype)
    layout = draw(st.sampled_from(["plain", "transposed", "strided", "expanded"]))
    if layout == "transposed":
        return tensor.permute(tuple(reversed(range(tensor.ndim))))
    if layout == "strided" and tensor.ndim:
        return tensor[::2]
    return tensor.expand(3, *shape) if layout == "expanded" else tensor


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))
    raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return tensor.dtype, tuple(tensor.shape), raw


def save_three(folder: Path, keep: int = 3) -> None:
    for round in (10, 20, 30):
        save_checkpoint(folder, round, {"w": torch.full((5,), float(round))}, {"at": round}, keep)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files_of(folder: Path, round: int) -> list[Path]:
    return sorted(folder.glob(f"round-{round:08d}*"))


@given(st.dictionaries(names, any_tensor(), max_size=4), st.dictionaries(st.text(), values))
def test_everything_comes_back_bit_for_bit(
    tensors: dict[str, torch.Tensor], facts: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(folder, 7, tensors, facts, keep=1)
        found = load_checkpoint(folder)
    assert found.round == 7
    assert found.damaged == ()
    assert {name: bits(one) for name, one in found.tensors.items()} == {
        name: bits(one) for name, one in tensors.items()
    }
    assert json.dumps(found.facts) == json.dumps(facts)  # NaN is not equal to itself


def test_tensors_that_share_memory_come_back_apart(tmp_path: Path) -> None:
    matrix = torch.arange(12.0).reshape(3, 4)
    save_checkpoint(tmp_path, 1, {"all": matrix, "row": matrix[1], "same": matrix}, {}, keep=1)
    found = load_checkpoint(tmp_path).tensors
    assert torch.equal(found["row"], matrix[1])
    assert torch.equal(found["same"], matrix)
    found["all"].zero_()
    assert torch.equal(found["row"], matrix[1])


def test_what_was_loaded_can_be_written_to_and_needs_a_gradient_no_more(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"w": torch.ones(2, requires_grad=True)}, {}, keep=1)
    found = load_checkpoint(tmp_path).tensors["w"]
    assert not found.requires_grad
    found += 1


def test_a_flipped_bit_in_any_byte_is_found_and_the_checkpoint_before_used(tmp_path: Path) -> None:
    save_three(tmp_path)
    for path in files_of(tmp_path, 30):
        content = path.read_bytes()
        for place, byte in enumerate(content):
            flipped = byte ^ (1 << place % 8)
            path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
            found = load_checkpoint(tmp_path)
            assert (found.round, found.facts) == (20, {"at": 20}), (path.name, place)
            assert len(found.damaged) == 1
            assert "round-00000030.json: " in found.damaged[0]
        path.write_bytes(content)
    assert load_checkpoint(tmp_path).round == 30


def test_truncation_anywhere_is_found(tmp_path: Path) -> None:
    save_three(tmp_path)
    for path in files_of(tmp_path, 30):
        content = path.read_bytes()
        for length in range(len(content)):
            path.write_bytes(content[:length])
            assert load_checkpoint(tmp_path).round == 20, (path.name, length)
        path.write_bytes(content)
    assert load_checkpoint(tmp_path).round == 30


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_file_is_found(tmp_path: Path, which: int) -> None:
    save_three(tmp_path)
    files_of(tmp_path, 30)[which].unlink()
    found = load_checkpoint(tmp_path)
    assert found.round == 20
    assert len(found.damaged) == 1
    assert "round-00000030" in found.damaged[0]


def test_a_checkpoint_under_another_name_is_found(tmp_path: Path) -> None:
    save_three(tmp_path)
    (tmp_path / "round-00000020.json").rename(tmp_path / "round-00000040.json")
    found = load_checkpoint(tmp_path)
    assert found.round == 30
    assert "round-00000040.json: it is of round 20" in found.damaged[0]


def test_damage_upon_damage(tmp_path: Path) -> None:
    save_three(tmp_path)
    for round in (20, 30):
        files_of(tmp_path, round)[0].write_bytes(b"")
    found = load_checkpoint(tmp_path)
    assert found.round == 10
    assert ["00030.json: " in which for which in found.damaged] == [True, False]
    assert ["00020.json: " in which for which in found.damaged] == [False, True]
    files_of(tmp_path, 10)[1].write_bytes(b"{}")
    with pytest.raises(FileError, match=r"no checkpoint in .*30.*20.*10") as caught:
        load_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def test_nothing_there(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        assert not has_checkpoint(folder)
        with pytest.raises(FileError, match="holds no checkpoint"):
            load_checkpoint(folder)


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_the_last_ones_are_kept(tmp_path: Path, keep: int) -> None:
    for round in range(6):
        save_checkpoint(tmp_path, round, {"w": torch.tensor(round)}, {}, keep)
        assert len(files(tmp_path)) == 2 * min(keep, round + 1)
    assert load_checkpoint(tmp_path).tensors["w"] == 5


def test_a_run_that_went_back_leaves_no_other_future(tmp_path: Path) -> None:
    save_three(tmp_path)
    files_of(tmp_path, 30)[0].write_bytes(b"")
    save_checkpoint(tmp_path, 25, {"w": torch.ones(1)}, {}, keep=2)
    found = load_checkpoint(tmp_path)
    assert (found.round, found.damaged) == (25, ())
    assert len(files(tmp_path)) == 4


def test_the_same_round_again_replaces_it(tmp_path: Path) -> None:
    for value in (1.0, 2.0, 2.0):
        save_checkpoint(tmp_path, 3, {"w": torch.tensor(value)}, {}, keep=1)
        assert load_checkpoint(tmp_path).tensors["w"] == value
        assert len(files(tmp_path)) == 2


def test_debris_is_cleaned_and_other_files_are_not(tmp_path: Path) -> None:
    debris = [".round-00000009.json.123.tmp", ".round-00000009-0123456789ab.safetensors.9.tmp"]
    orphan = "round-00000009-0123456789ab.safetensors"
    others = ["notes.txt", "round-9.json", "round-00000009.json.bak", ".hidden"]
    for name in (*debris, orphan, *others):
        (tmp_path / name).write_text("x")
    path = save_checkpoint(tmp_path, 10, {}, {}, keep=5)
    left = set(files(tmp_path)) - {path.name}
    assert left - set(others) == {one.name for one in tmp_path.glob("round-00000010-*")}
    assert set(others) <= left


def test_half_written_is_not_used(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 10, {}, {}, keep=5)
    (tmp_path / "round-00000020-0123456789ab.safetensors").write_bytes(b"whole, but no JSON yet")
    found = load_checkpoint(tmp_path)
    assert found.round == 10
    assert "it was being written when the process ended" in found.damaged[0]


def test_what_cannot_be_written_is_refused_and_nothing_lost(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {}, {}, keep=1)
    before = files(tmp_path)
    with pytest.raises(ParameterError, match="facts must be JSON values"):
        save_checkpoint(tmp_path, 2, {}, {"x": object()}, keep=1)
    with pytest.raises(ParameterError, match="tensors cannot be written"):
        save_checkpoint(tmp_path, 2, {"c": torch.ones(2, dtype=torch.complex128)}, {}, keep=1)
    with pytest.raises(ParameterError, match="tensors cannot be called '__metadata__'"):
        save_checkpoint(tmp_path, 2, {"__metadata__": torch.ones(2)}, {}, keep=1)
    with pytest.raises(ParameterError, match="keep must be a whole number >= 1, got 0"):
        save_checkpoint(tmp_path, 2, {}, {}, keep=0)
    with pytest.raises(ParameterError, match="round must be a whole number >= 0, got -1"):
        save_checkpoint(tmp_path, -1, {}, {}, keep=1)
    assert files(tmp_path) == before


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match="cannot write"):
            save_checkpoint(folder, 1, {}, {}, keep=1)


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """Let the system refuse to write more into any file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_for_the_tensors_or_for_the_json(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"w": torch.ones(9)}, {}, keep=1)
    before = files(tmp_path)
    for tensors, facts in [
        ({"w": torch.ones(9999)}, {}),
        ({"w": torch.zeros(9)}, {"x": "y" * 9999}),
    ]:
        with largest_file(4096), pytest.raises(FileError, match=r"cannot write .*File too large"):
            save_checkpoint(tmp_path, 2, tensors, facts, keep=1)
        assert files(tmp_path) == before
        assert load_checkpoint(tmp_path).round == 1


FULL = """
import os, sys
from pathlib import Path
import torch
from freshband.errors import FileError
from freshband.federated._checkpoint import load_checkpoint, save_checkpoint

folder = Path(sys.argv[1])
big = {"w": torch.zeros(200_000, dtype=torch.uint8)}
save_checkpoint(folder, 1, big, {}, keep=1)
before = sorted(os.listdir(folder))
for room in (0, 4096, 100_000, 202_000):  # none, some of the tensors, nearly all, no JSON
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    ballast = folder.parent / "ballast"
    ballast.write_bytes(b"x" * (free - room))
    try:
        save_checkpoint(folder, 2, big, {"more": "x" * 9000}, keep=1)
    except FileError as error:
        assert "No space left on device" in str(error), error
    else:
        raise AssertionError("there was room")
    assert sorted(os.listdir(folder)) == before
    assert load_checkpoint(folder).round == 1
    ballast.unlink()
save_checkpoint(folder, 2, big, {"more": "x" * 9000}, keep=1)
assert load_checkpoint(folder).round == 2
print("fine")
"""


def on_small_disk(code: str, folder: Path, kilobytes: int) -> str:
    """Run Python with a folder that is a disk of its own; skip where that is not allowed."""
    mount = f'mount -t tmpfs -o size={kilobytes}k none "$0"'
    try:
        subprocess.run(["unshare", "-rm", "sh", "-c", mount, str(folder)], check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk is not allowed here")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$1" -W error -c "$2" "$0/run"',
         str(folder), sys.executable, code],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    assert on_small_disk(FULL, tmp_path, 1024).strip() == "fine"
