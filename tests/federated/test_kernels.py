"""The hand-written kernels compute what torch computes, on any machine: in Triton's interpreter."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="Triton is for Linux"
)
def test_the_kernels_in_the_interpreter():
    """Triton reads TRITON_INTERPRET when it is imported, so the tests run in their own process."""
    checks = Path(__file__).with_name("interpreted_kernels.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(checks)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " skipped" not in done.stdout
