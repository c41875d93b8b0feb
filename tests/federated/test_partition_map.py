from __future__ import annotations

import io

import numpy as np
import pytest

from freshband.errors import ParameterError
from freshband.federated.partition import Partition, split_samples
from freshband.reporting.partition_map import draw


def test_the_map_shows_the_counts() -> None:
    labels = np.arange(400) % 4
    parts = split_samples(labels, 6, seed=1)
    figure = draw(labels, parts, ["ant", "bee", "cat", "dog"], title="animals")
    above, below, _ = figure.axes
    counts = parts.counts(labels)
    np.testing.assert_array_equal(below.collections[0].get_array(), counts.T)
    assert sorted(int(text.get_text()) for text in below.texts) == sorted(counts[counts > 0])
    assert [text.get_text() for text in below.get_yticklabels()] == ["ant", "bee", "cat", "dog"]
    heights = [bar.get_height() for bar in above.patches]
    assert heights == [*parts.sizes, *(len(val) for val in parts.val)]
    assert figure.get_suptitle().startswith("animals: ")


def test_the_summary_has_the_effective_number_of_classes() -> None:
    parts = Partition(train=[[0, 1], [2, 3]], val=[[], []])  # type: ignore[arg-type,list-item]
    figure = draw([0, 1, 2, 2], parts)
    summary = "effectively 1.5 of 3 classes per client, 2 samples each"
    assert figure.get_suptitle() == summary
    assert len(figure.axes[0].patches) == 2  # no validation, no bars of it


@pytest.mark.parametrize(("n_clients", "n_classes"), [(1, 2), (24, 24), (100, 10), (70, 100)])
def test_any_size_is_drawn(n_clients: int, n_classes: int) -> None:
    labels = np.arange(4000) % n_classes
    figure = draw(labels, split_samples(labels, n_clients))
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    assert bool(figure.axes[1].texts) == (n_clients <= 24 and n_classes <= 24)


def test_names_have_to_fit() -> None:
    parts = split_samples([0, 1, 2] * 20, 2)
    with pytest.raises(ParameterError, match="class_names must be at least 3 names, got 2"):
        draw([0, 1, 2] * 20, parts, ["a", "b"])
    assert draw([0, 1, 2] * 20, parts, list("abcd")).axes[1].get_ylim() == (3.5, -0.5)
