"""What importing the package brings along, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import freshband

EXTRAS = ["torch", "flwr", "ray", "plotly", "safetensors", "sklearn", "tensorboard"]
HEAVY = ["numpy", "numba", "pandas", "xarray", "scipy", "matplotlib", "pydantic", "typer", "rich"]


def imported(statement: str, names: list[str]) -> list[str]:
    """Which modules a fresh interpreter has imported after a statement."""
    code = f"{statement}; import sys; print(*[n for n in {names!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_import_is_instant() -> None:
    assert imported("import freshband", EXTRAS + HEAVY) == []


def test_using_it_needs_no_extra() -> None:
    use = (
        "import freshband; freshband.Coordinator('random'); freshband.simulate; "
        "import freshband.cli.app, freshband.reporting.curves"
    )
    assert imported(use, EXTRAS) == []


def test_a_gateway_needs_three_libraries() -> None:
    """All others are for simulation, training and the command line; see the installation page."""
    use = (
        "import freshband; c = freshband.Coordinator('cucb', 2, 3); c.plan(); "
        "c.observe([1, None]); c.observe([None, 0], round=1); c.join('Eve'); c.leave('Eve'); "
        "freshband.Coordinator.from_bytes(c.to_bytes())"
    )
    others = {*EXTRAS, *HEAVY} - {"scipy"}  # numba imports SciPy where it is installed
    assert imported(use, sorted(others)) == ["numba", "numpy", "pydantic"]


def test_verdicts_and_their_figures_need_no_pytorch() -> None:
    """`reproduce fig2a` trains nothing."""
    use = "import freshband.reporting._figures, freshband.reporting._sources"
    assert imported(use, ["torch", "safetensors", "flwr"]) == []


def test_training_needs_no_compiler_of_pytorchs() -> None:
    """Importing it takes longer than a short run."""
    use = (
        "import freshband.federated as f; "
        "f.Federation(f.Training(model='mlp', clients=2, rounds=9)).step()"
    )
    assert imported(use, ["torch", "torch._dynamo", "sympy"]) == ["torch"]


def test_public_names() -> None:
    assert sorted(freshband.__all__) == dir(freshband)
    for name in freshband.__all__:
        assert getattr(freshband, name) is not None
    with pytest.raises(AttributeError, match="module 'freshband' has no attribute 'simulte'"):
        freshband.simulte  # noqa: B018
