"""A picture of a partition: the number of samples of each class at each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from freshband.errors import ParameterError
from freshband.federated.partition import Partition
from freshband.reporting._maps import add_color_bar, count_along, paint_map

_NUMBERED = 24  # up to this number of clients and classes every cell shows its count
_NAMED = 30  # up to this number of classes each has its name
_COLOURS = "Blues"  # white means no samples
_TRAIN, _VAL = "#0072B2", "#E69F00"  # Okabe and Ito's


def draw(
    labels: npt.ArrayLike,
    partition: Partition,
    class_names: Sequence[str] = (),
    title: str = "",
) -> Figure:
    """Draw a map of samples, with a column for each client and a row for each class.

    Above the map are the clients' sizes, split into training and validation. The line at the top
    says how much the clients differ: the effective number of classes per client, which is the
    exponential of the entropy of a client's classes, averaged over clients; and the range of sizes.

    Parameters
    ----------
    labels : array_like of int, shape (n_samples,)
        Labels of the training set.
    partition : Partition
        The division of these samples among clients.
    class_names : sequence of str, optional
        Names for the rows, at least one for each class; numbers by default.
    title : str, optional
        Text before the summary, such as ``"digits, dirichlet 0.5"``.

    Returns
    -------
    matplotlib.figure.Figure
        Ready for ``figure.savefig("who.pdf")``; it needs no display.

    Examples
    --------
    >>> from freshband.federated.partition import split_samples
    >>> labels = [0, 1, 2, 3] * 100
    >>> figure = draw(labels, split_samples(labels, n_clients=8), title="an example")
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['samples', 'class', 'samples']
    """
    counts = partition.counts(labels)
    if class_names:
        if len(class_names) < counts.shape[1]:
            raise ParameterError(
                f"class_names must be at least {counts.shape[1]} names, got {len(class_names)}"
            )
        counts = partition.counts(labels, len(class_names))
    n_clients, n_classes = counts.shape
    rows = min(max(0.24 * n_classes, 1.2), 6.0)
    numbered = n_clients <= _NUMBERED and n_classes <= _NUMBERED
    width = min(max(2.6 + 0.36 * n_clients, 4.6), 10.0 if numbered else 7.2)
    figure = Figure(figsize=(width, rows + 2.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[0.9, rows])
    _stack(above, partition)
    scale = PowerNorm(0.5, vmin=0, vmax=max(int(counts.max()), 1))  # small counts stay visible
    edges, ruled = np.arange(n_clients + 1) - 0.5, (n_clients <= 60, n_classes <= _NAMED)
    colours = paint_map(below, edges, counts, ruled=ruled, cmap=_COLOURS, norm=scale)
    if numbered:
        _number(below, counts)
    below.set_xlabel("client", fontsize="small")
    below.set_ylabel("class", fontsize="small")
    count_along(below.xaxis, n_clients if n_clients <= _NUMBERED else 12)
    if n_classes <= _NAMED:
        below.set_yticks(
            np.arange(n_classes), list(class_names) or list(map(str, range(n_classes)))
        )
    else:
        count_along(below.yaxis, 10)
    shape: dict[str, Any] = {"ax": below, "fraction": 0.05, "aspect": 7 * rows}
    count_along(add_color_bar(figure, colours, "samples", **shape), 5)
    head = (f"{title}: " if title else "") + _summary(counts)
    figure.suptitle(head, fontsize="small", x=0.01, ha="left")
    return figure


def _stack(axes: Axes, partition: Partition) -> None:
    """Draw the clients' sizes, validation on top of training."""
    clients = np.arange(partition.n_clients)
    val = np.array([len(held) for held in partition.val])
    width = 0.8 if len(clients) <= 60 else 1.0
    axes.bar(clients, partition.sizes, width, color=_TRAIN, label="training")
    if val.any():
        axes.bar(clients, val, width, bottom=partition.sizes, color=_VAL, label="validation")
    axes.set_ylabel("samples", fontsize="small")
    count_along(axes.yaxis, 3)
    axes.tick_params(length=3, labelsize="small", bottom=False, labelbottom=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.legend(
        frameon=False, fontsize="x-small", ncols=2, loc="lower right", bbox_to_anchor=(1.0, 0.98),
        borderpad=0, handlelength=1.0,
    )  # fmt: skip


def _number(axes: Axes, counts: npt.NDArray[np.int64]) -> None:
    """Write every count into its cell; a cell without samples stays empty."""
    dark = 0.3 * counts.max()
    size = 6.5 if counts.max() < 1000 else 5.5
    for (client, label), count in np.ndenumerate(counts):
        if count:
            colour = "white" if count > dark else "black"
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size}
            axes.text(client, label, str(count), color=colour, **style)


def _summary(counts: npt.NDArray[np.int64]) -> str:
    """Return one line on how much the clients differ."""
    sizes = counts.sum(axis=1)
    shares = counts / sizes[:, None]
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)
    effective = np.exp(entropy).mean()
    span = f"{sizes.min():,} to {sizes.max():,} samples"
    if sizes.min() == sizes.max():
        span = f"{sizes[0]:,} samples each"
    return f"effectively {effective:.1f} of {counts.shape[1]} classes per client, {span}"
