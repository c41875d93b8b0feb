"""Links that differ per client: how their means come about, and users' own models."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from freshband.channels import (
    Block,
    MeansStream,
    Piecewise,
    Stationary,
    Stream,
    Switching,
    Table,
    build,
    held,
    links_differ,
    open_air,
)
from freshband.channels import streams as streams_module
from freshband.channels.base import _same_air
from freshband.errors import ParameterError, RuleError
from freshband.parameters import Parameters
from tests.channels.margins import assert_mean, assert_share, draw, drawn

LINKS = [[0.9, 0.1, 0.5], [0.2, 0.8, 0.5]]


def logit(means: Any) -> Any:
    return np.log(means / (1 - means))


def test_given_means_are_honoured_link_by_link() -> None:
    model = Stationary(means=LINKS, per_client=True)
    assert (model.n_clients, model.n_channels) == (2, 3)
    block = draw(model, 20_000)
    np.testing.assert_array_equal(block.means, np.broadcast_to(LINKS, (20_000, 2, 3)))
    for hits, mean in zip(block.states.sum(axis=0).ravel(), np.ravel(LINKS), strict=True):
        assert_share(hits, 20_000, mean)


def test_links_are_independent() -> None:
    states = draw(Stationary(means=[[0.5], [0.5]], per_client=True), 50_000).states[:, :, 0]
    assert_share((states[:, 0] == states[:, 1]).sum(), 50_000, 0.5)


def test_links_are_those_of_the_same_model_with_a_column_for_each() -> None:
    links = draw(Piecewise(n_channels=4, per_client=True, p_change=0.5), 900, clients=3)
    wide = draw(Piecewise(n_channels=12, p_change=0.5), 900)
    np.testing.assert_array_equal(links.means.reshape(900, 12), wide.means)
    np.testing.assert_array_equal(links.states.reshape(900, 12), wide.states)


def test_segments_of_given_means_and_which_channels_change() -> None:
    means = [[[0.1, 0.2], [0.3, 0.4]], [[0.1, 0.2], [0.9, 0.4]], [[0.1, 0.5], [0.9, 0.6]]]
    model = Piecewise(means=means, per_client=True)
    assert draw(model, 6).means[::2].tolist() == means
    stream = drawn(model, 6)
    assert stream.breakpoints.tolist() == [3, 5]
    assert stream.changed.tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("model", [Stationary, Piecewise, Switching])
def test_some_links_differ_from_their_channels(model: Any) -> None:
    """Those that do not are equal in all rounds; which ones differ stays the same."""
    means = draw(model(n_channels=20, per_client=True, p_differ=0.25), 3000, clients=50).means
    common = np.median(means, axis=1, keepdims=True)  # three of four links have the channel's mean
    differs = means != common
    assert (differs == differs[0]).all()
    assert_share(differs[0].sum(), 1000, 0.25)
    own = means[0][differs[0]]
    assert_mean(own, 0.5, 0.8 / np.sqrt(12))
    assert len(np.unique(own)) == len(own)


def test_no_link_differs_at_probability_zero() -> None:
    means = draw(Piecewise(per_client=True, p_differ=0), 60, clients=4).means
    assert (means == means[:, :1]).all()
    assert len(np.unique(means)) == 6 * 5


@pytest.mark.parametrize("model", [Stationary, Piecewise, Switching])
def test_offsets_are_the_clients_own_and_last_for_the_run(model: Any) -> None:
    means = draw(model(per_client=True, offset_sd=2.0), 3000, clients=400).means[::100]
    offsets = logit(means) - logit(means[:, :1])
    np.testing.assert_allclose(offsets, np.broadcast_to(offsets[0, :, :1], offsets.shape))
    drawn_ones = offsets[0, :, 0]
    spread = np.std(drawn_ones, ddof=1)
    assert abs(spread - 2) < 5 * 2 / np.sqrt(2 * 400)


def test_offsets_leave_certainty_as_it_is() -> None:
    for rate in (0.0, 1.0):
        model = Stationary(mean_low=rate, mean_high=rate, per_client=True, offset_sd=10)
        assert (draw(model, 3, clients=200).means == rate).all()


def test_an_offset_is_redrawn_in_each_run() -> None:
    model = Stationary(mean_low=0.5, mean_high=0.5, per_client=True, offset_sd=1)
    one, other = (draw(model, 1, run=run, clients=3).means for run in (0, 1))
    assert not np.isin(one, other).any()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"p_differ": 0.5}, "p_differ must be left out when links are the same for all clients "),
        ({"offset_sd": 1}, "offset_sd must be left out when links are the same for all clients "),
        (
            {"per_client": True, "p_differ": 0.5, "offset_sd": 1},
            "p_differ must be left out when offset_sd is given, got 0.5",
        ),
        (
            {"per_client": True, "means": LINKS, "offset_sd": 1},
            "offset_sd must be left out when means is given, got 1.0",
        ),
        ({"per_client": True, "offset_sd": -1}, "offset_sd must be a number in [0, 10], got -1"),
        ({"per_client": True, "p_differ": 2}, "p_differ must be a number in [0, 1], got 2"),
        ({"per_client": 1.5}, "per_client must be true or false, got 1.5"),
        (
            {"per_client": True, "means": [0.5]},
            "means must be a matrix, a list of equally long lists, of numbers in [0, 1], got [0.5]",
        ),
        (
            {"per_client": True, "means": LINKS, "n_channels": 2},
            "means must have n_channels = 2 columns, got 3",
        ),
        ({"means": LINKS}, "means must be a list of numbers in [0, 1], got [[0.9"),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Stationary(**params)
    assert str(caught.value).startswith(message)


def test_lists_must_be_nested_deep_enough() -> None:
    with pytest.raises(ParameterError, match="means must be a list of matrices of one shape, a"):
        Piecewise(means=LINKS, per_client=True)
    with pytest.raises(ParameterError, match="states must be a list of matrices of one shape, a"):
        Table(states=[[1, 0]], per_client=True)
    with pytest.raises(ParameterError, match="means must be a matrix, a list of equally long"):
        Piecewise(means=[LINKS])


def test_only_some_models_have_links_that_differ() -> None:
    assert links_differ(build("switching", per_client=True))
    assert not links_differ(build("switching"))
    assert not links_differ(build("jammer"))
    assert not links_differ(build("hard-stationary"))  # has n_clients of its own


def test_recorded_links_are_the_same_air_in_every_run() -> None:
    recorded = Table(states=[[[1, 0], [0, 1]], [[1, 1], [0, 0]]], per_client=True, wrap=True)
    assert _same_air(recorded, 9, 0, range(3), 2)
    assert not _same_air(Stationary(per_client=True), 90, 0, range(3), 2)


def test_wide_rows_are_held_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "_CELLS", 100)
    for width in (3, 40, 100, 101):
        rows = np.arange(30.0 * width).reshape(30, width)
        lengths = np.arange(30) % 7 + 1
        pieces = list(held(rows, lengths))
        np.testing.assert_array_equal(np.concatenate(pieces), np.repeat(rows, lengths, axis=0))
        assert all(piece.strides[0] == 0 or piece.size <= 100 for piece in pieces)


# ------------------------------------------------------------------------------ a user's own model


class Near(Parameters):
    """Client i has a good link to channel i alone."""

    has_means: ClassVar[bool] = True
    per_client: ClassVar[bool] = True
    n_clients: ClassVar[None] = None
    n_channels: int = 3

    def start(self, rounds: int, structure: Any, states: Any, clients: int | None = None) -> Stream:
        assert clients is not None
        row = np.where(np.eye(clients, self.n_channels), 0.9, 0.1).reshape(1, -1)
        pieces = held(row, np.array([rounds]))
        return MeansStream(rounds, self.n_channels, pieces, states, clients=clients)


class Flat(Near):
    """Forgets that links differ."""

    def start(self, rounds: int, structure: Any, states: Any, clients: int | None = None) -> Stream:
        return Stationary(n_channels=self.n_channels).start(rounds, structure, states)


def test_a_users_model_may_have_links_that_differ() -> None:
    assert links_differ(Near())
    block = draw(Near(), 5, clients=2)
    assert isinstance(block, Block)
    assert block.means[4].tolist() == [[0.9, 0.1, 0.1], [0.1, 0.9, 0.1]]
    with pytest.raises(ParameterError, match="clients must be given, because the links of Near"):
        open_air(Near(), 5, 0)


def test_a_users_model_must_say_for_how_many_clients_it_is() -> None:
    class Half(Parameters):
        has_means: ClassVar[bool] = True
        per_client: ClassVar[bool] = True
        n_channels: int = 3

        def start(self, rounds: int, structure: Any, states: Any) -> Stream:
            raise NotImplementedError

    with pytest.raises(ParameterError, match="Half has per_client, but not n_clients: the number"):
        open_air(Half(), 5, 0, clients=2)


def test_blocks_of_a_users_model_must_have_the_shape_of_its_links() -> None:
    with pytest.raises(RuleError) as caught:
        draw(Flat(), 5, clients=2)
    assert str(caught.value) == (
        "Flat.block: states must be a C-contiguous array of uint8 of shape (5, 2, 3), got uint8 "
        "of shape (5, 3)"
    )
