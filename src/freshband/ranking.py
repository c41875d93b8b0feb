"""Sorting by key, with ties broken explicitly.

Equal keys are ordered by a hash of the round and the item: the same in compiled code and in plain
Python, and fair, because no client or channel is preferred over many rounds.
"""

from __future__ import annotations

from typing import Any

from freshband._jit import cold, kernel

CLIENTS = 1 << 30
"""Added to the round when clients are sorted, so that their ties are independent of channels'."""

_FEW = 16  # insertion sort is faster below this number of items


@kernel
def _tie_break(t: int, item: int) -> int:
    """Hash a round and an item to 31 bits, without ever leaving int64."""
    h = (t * 73856093 + item * 19349663 + 83492791) & 0x7FFFFFFF
    h = ((h ^ (h >> 15)) * 739982445) & 0x7FFFFFFF
    return h ^ (h >> 13)


@kernel
def _before(keys: Any, t: int, a: int, b: int) -> bool:
    """Whether item ``a`` goes before item ``b``: the larger key first."""
    if keys[a] == keys[b]:
        return _tie_break(t, a) < _tie_break(t, b)
    larger: bool = keys[a] > keys[b]
    return larger


@kernel
def _insert(keys: Any, t: int, items: Any, end: int, item: int) -> None:
    """Put an item into its place among the first ``end``, which are sorted; later ones move up."""
    while end > 0 and _before(keys, t, item, items[end - 1]):
        items[end] = items[end - 1]
        end -= 1
    items[end] = item


@kernel
def sort_by(keys: Any, t: int, items: Any) -> None:
    """Sort ``items``, indices into ``keys``, in place by decreasing key; ``t`` decides ties.

    Examples
    --------
    >>> import numpy as np
    >>> items = np.arange(4)
    >>> sort_by(np.array([0.1, 0.9, 0.5, 0.7]), 1, items)
    >>> items.tolist()
    [1, 3, 2, 0]
    """
    if len(items) <= _FEW:
        for i in range(1, len(items)):
            _insert(keys, t, items, i, items[i])
    else:
        _heap_sort(keys, t, items)


@cold
def _heap_sort(keys: Any, t: int, items: Any) -> None:
    n = len(items)
    for start in range(n // 2 - 1, -1, -1):
        _sift(keys, t, items, start, n)
    for end in range(n - 1, 0, -1):
        items[0], items[end] = items[end], items[0]
        _sift(keys, t, items, 0, end)


@kernel
def _sift(keys: Any, t: int, heap: Any, start: int, end: int) -> None:
    """Restore the heap below ``start``; its root is the item that goes last."""
    item = heap[start]
    hole = start
    child = 2 * hole + 1
    while child < end:
        if child + 1 < end and _before(keys, t, heap[child], heap[child + 1]):
            child += 1
        if not _before(keys, t, item, heap[child]):
            break
        heap[hole] = heap[child]
        hole = child
        child = 2 * hole + 1
    heap[hole] = item


@kernel
def take_best(keys: Any, t: int, best: Any) -> None:
    """Fill ``best`` with the indices of the largest keys, in any order; ``t`` decides ties.

    Examples
    --------
    >>> import numpy as np
    >>> best = np.zeros(2, np.int64)
    >>> take_best(np.array([0.1, 0.9, 0.5, 0.7]), 1, best)
    >>> best.tolist()
    [1, 3]
    """
    if len(best) <= _FEW:
        have = 0
        for item in range(len(keys)):
            if have < len(best):
                j = have
                have += 1
            elif _before(keys, t, item, best[have - 1]):
                j = have - 1
            else:
                continue
            _insert(keys, t, best, j, item)
    else:
        _heap_select(keys, t, best)


@cold
def take_available(keys: Any, t: int, available: Any, best: Any) -> None:
    """Fill ``best`` with the indices of the largest keys, in order, where ``available`` is 1.

    Examples
    --------
    >>> import numpy as np
    >>> best = np.zeros(2, np.int64)
    >>> take_available(np.array([0.1, 0.9, 0.5, 0.7]), 1, np.array([1, 0, 1, 1]), best)
    >>> best.tolist()
    [3, 2]
    """
    have = 0
    for item in range(len(keys)):
        if available[item] == 1:
            if have < len(best):
                best[have] = item
                have += 1
                if have == len(best):
                    for start in range(have // 2 - 1, -1, -1):
                        _sift(keys, t, best, start, have)
            elif _before(keys, t, item, best[0]):
                best[0] = item
                _sift(keys, t, best, 0, have)
    sort_by(keys, t, best)


@cold
def _heap_select(keys: Any, t: int, best: Any) -> None:
    """Keep the best in a heap; every 2^k-th item goes first, so that few enter it in any order."""
    n, m = len(keys), len(best)
    step = 1
    while n >= 16 * step * m:
        step *= 2
    for i in range(m):
        best[i] = i * step
    for start in range(m // 2 - 1, -1, -1):
        _sift(keys, t, best, start, m)
    _challenge(keys, t, best, m * step, step)
    while step > 1:
        step //= 2
        _challenge(keys, t, best, step, 2 * step)


@cold
def _challenge(keys: Any, t: int, best: Any, first: int, step: int) -> None:
    """Let every step-th item from ``first`` replace the root of the heap, if it goes before it."""
    key, tie = keys[best[0]], _tie_break(t, best[0])
    for item in range(first, len(keys), step):
        if keys[item] > key or (keys[item] == key and _tie_break(t, item) < tie):
            best[0] = item
            _sift(keys, t, best, 0, len(best))
            key, tie = keys[best[0]], _tie_break(t, best[0])


@kernel
def draw_to_front(deck: Any, rng: Any, first: int, last: int) -> None:
    """Fill places ``first`` to ``last - 1`` with a uniform draw from them and all after them."""
    for place in range(first, last):
        other = place + int(rng.random() * (len(deck) - place))
        deck[place], deck[other] = deck[other], deck[place]


@kernel
def draw_subset(deck: Any, rng: Any, chosen: Any) -> None:
    """Fill ``chosen`` with a uniformly random subset of ``deck`` (partial Fisher-Yates)."""
    for place in range(len(chosen)):  # in one loop with the drawing: a second one takes longer
        draw_to_front(deck, rng, place, place + 1)
        chosen[place] = deck[place]


@kernel
def _sort_few(items: Any) -> None:
    """Sort a few numbers in ascending order, by insertion: numba's own sort takes much longer."""
    for i in range(1, len(items)):
        item = items[i]
        j = i
        while j > 0 and items[j - 1] > item:
            items[j] = items[j - 1]
            j -= 1
        items[j] = item
