from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.figure import Figure

from freshband.channels import Piecewise, Table, build, open_air
from freshband.errors import ParameterError
from freshband.reporting.channel_map import draw
from tests.channels.cases import CASES

BREAKS = {"means": [[0.1, 0.9], [0.9, 0.9], [0.9, 0.1]], "breakpoints": [101, 251]}


def shown(figure: Figure, panel: int) -> Any:
    """Return the values of a map, shape (bins, n_channels)."""
    (mesh,) = (m for m in figure.axes[panel].collections if isinstance(m, QuadMesh))
    n_channels = round(figure.axes[panel].get_ylim()[0] + 0.5)
    return np.asarray(mesh.get_array()).reshape(n_channels, -1).T


@pytest.mark.parametrize(
    "name", ["fig2", "fig3-piecewise", "fig3-extreme", "gilbert-elliott", "jammer", "trace"]
)
def test_pictures_can_be_saved(name: str) -> None:
    figure = draw(build(name, CASES[name][0]), 400, seed=0)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)  # lays it out; a warning would be an error
    assert file.getvalue().startswith(b"\x89PNG")
    assert figure.get_suptitle() == f"{name}, seed 0, run 0"


@pytest.mark.parametrize("rounds", [1, 2, 300])
def test_short_runs_show_every_state(rounds: int) -> None:
    figure = draw("stationary", rounds, seed=3, run=2)
    block = open_air("stationary", rounds, seed=3, run=2).block(rounds)
    np.testing.assert_array_equal(shown(figure, 0), block.means)
    np.testing.assert_array_equal(shown(figure, 1), block.states)


@pytest.mark.parametrize("rounds", [301, 5000])
def test_long_runs_show_averages(rounds: int) -> None:
    figure = draw(Piecewise(n_breakpoints=1), rounds, seed=0)
    block = open_air(Piecewise(n_breakpoints=1), rounds, seed=0).block(rounds)
    means, shares = shown(figure, 0), shown(figure, 1)
    assert len(means) <= 480
    assert len(shares) == -(-len(means) // 4)
    np.testing.assert_allclose(means[0], block.means[0])
    width = len(shares) / rounds
    edges = [0, *(round(i / width) for i in range(1, len(shares))), rounds]
    first = block.states[: edges[1]].mean(axis=0)
    np.testing.assert_allclose(shares[0], first, atol=0.6 / edges[1] + 1e-9)
    assert shares.min() >= 0
    assert shares.max() <= 1


def test_breakpoints_are_marked_where_they_are() -> None:
    top = draw(Piecewise(**BREAKS), 400, seed=0).axes[0]
    assert top.lines[0].get_xdata().tolist() == [100.5, 250.5]
    assert "2 breakpoints" in top.get_title(loc="left")
    lines = [c for c in top.collections if isinstance(c, LineCollection)]
    verticals = sorted(
        (float(s[0, 0]), float(s[0, 1]))
        for c in lines
        for s in c.get_segments()
        if s[0, 0] == s[1, 0]
    )
    assert verticals == [(100.5, -0.5), (250.5, 0.5)]  # channel 0, then channel 1


def test_many_breakpoints_are_counted_and_not_lined() -> None:
    figure = draw(Piecewise(n_breakpoints=100), 400, seed=0)
    assert "100 breakpoints" in figure.axes[0].get_title(loc="left")
    assert len(figure.axes[0].lines[0].get_xdata()) == 100
    assert len(figure.axes[0].collections) == 2  # the map and the lines between channels


def test_without_means_there_are_running_averages() -> None:
    states = np.zeros((4800, 2), int)
    states[2400:, 1] = 1
    figure = draw(Table(states=states), 4800, seed=0)
    top = figure.axes[0]
    assert top.get_title(loc="left") == "Running average of the states over 240 rounds"
    values = shown(figure, 0)
    assert not values[:, 0].any()
    assert values[0, 1] == 0
    assert values[-1, 1] == 1
    assert values[240, 1] == pytest.approx(0.5, abs=0.03)  # half of the window is past the step
    assert not top.lines


@pytest.mark.parametrize(("clients", "chosen"), [(1, [0]), (4, [0, 1, 2, 3]), (9, range(9))])
def test_links_that_differ_have_a_map_for_each_client(clients: int, chosen: Any) -> None:
    model = Piecewise(per_client=True, n_channels=3, n_breakpoints=1)
    figure = draw(model, 200, seed=0, clients=clients)
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    means = open_air(model, 200, 0, clients=clients).block(200).means
    for panel, client in enumerate(chosen):
        np.testing.assert_array_equal(shown(figure, panel), means[:, client])
        assert figure.axes[panel].get_title(loc="left") == f"client {client}"
    assert sum(axes.get_visible() for axes in figure.axes) == clients + 1  # and the scale
    assert figure.get_suptitle().endswith(
        f"Success rates, 1 breakpoint, {clients} client{'s' * (clients > 1)}"
    )


def test_of_many_clients_nine_are_shown() -> None:
    figure = draw(build("stationary", per_client=True), 400, seed=0, clients=200)
    titles = [axes.get_title(loc="left") for axes in figure.axes[:9]]
    assert titles[0] == "client 0"
    assert titles[-1] == "client 199"
    assert figure.get_suptitle().endswith("Success rates, 9 of 200 clients")


def test_links_without_means_show_running_averages() -> None:
    states = np.zeros((480, 2, 2), int)
    states[:, 1, 0] = 1
    figure = draw(Table(states=states, per_client=True), 480, seed=0)
    assert "Running average of the states over 24 rounds, 2 clients" in figure.get_suptitle()
    assert not shown(figure, 0).any()
    assert shown(figure, 1).mean(axis=0).tolist() == [1, 0]


def test_bad_rounds() -> None:
    with pytest.raises(ParameterError, match="rounds must be a whole number >= 1, got 0"):
        draw("fig2", 0, seed=0)
