"""Which samples a client trains on: a function of seed, run, round and client, and nothing else.

There is no state to save: a resumed run, another policy on the same air, or other workers meet
the same batches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshband._seeding import Role, check_seed, sequence


class Batches:
    """Draws the batches of every client and round.

    A client goes through its samples in random order, and through them again in a new order when
    they run out, so no sample comes up twice before all have come up once. Each round begins a new
    order.

    Examples
    --------
    >>> batches = Batches(seed=0, run=0, local_steps=2, batch_size=3)
    >>> drawn = batches.draw(np.array([4, 5, 6, 7, 8, 9]), round=1, client=0)
    >>> drawn.shape, sorted(drawn.ravel().tolist())
    ((2, 3), [4, 5, 6, 7, 8, 9])
    """

    def __init__(self, seed: int, run: int, local_steps: int, batch_size: int) -> None:
        self.shape = (local_steps, batch_size)
        # Child 0 of the role draws weights.
        batches, noise = sequence(check_seed(seed), Role.TRAINING, run).spawn(3)[1:]
        self._key = batches.generate_state(2, np.uint64)
        self._noise = noise.generate_state(2, np.uint64)

    def draw(
        self, samples: npt.NDArray[np.int64], *, round: int, client: int
    ) -> npt.NDArray[np.int64]:
        """Return the samples of each step, shape (local_steps, batch_size)."""
        place = np.array([0, 0, client, round], np.uint64)  # the next is 2^128 numbers away
        rng = np.random.Generator(np.random.Philox(key=self._key, counter=place))
        wanted = self.shape[0] * self.shape[1]
        orders = [rng.permutation(samples) for _ in range(-(-wanted // len(samples)))]
        return np.concatenate(orders)[:wanted].reshape(self.shape)

    def noise(self, *, round: int, client: int) -> int:
        """Return the seed of what a client's model draws in a round, such as dropout."""
        place = np.array([0, 0, client, round], np.uint64)
        return int(np.random.Philox(key=self._noise, counter=place).random_raw() >> 1)
