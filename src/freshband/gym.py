"""The scheduling problem as a Gymnasium environment, so that reinforcement learners can enter.

It needs the extra ``gym``. An agent that is registered with `register_agent` takes part in the
arena: ``freshband --import FILE.py arena --agent NAME``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from freshband._seeding import check_seed
from freshband.channels.adversary import Still, react, start_reacting
from freshband.channels.base import Block, ChannelModel, build, links_differ, open_air
from freshband.errors import (
    FreshbandError,
    ParameterError,
    SequenceError,
    UnknownNameError,
    nearest,
)
from freshband.parameters import whole_number
from freshband.ranking import CLIENTS, sort_by, take_best

try:
    import gymnasium
    from gymnasium.spaces import Box
except ModuleNotFoundError:
    raise FreshbandError(
        "Gymnasium is missing; install it with: pip install 'freshband[gym]'"
    ) from None

__all__ = ["Agent", "SchedulingEnv", "find_agent", "register_agent"]

_BLOCK: Final = 1024  # rounds drawn at a time

Observation = NDArray[np.float32]
Action = NDArray[np.float32]


class SchedulingEnv(gymnasium.Env[Observation, Action]):
    """A run of the scheduling problem: every step is a round.

    The action holds a score in [0, 1] for each channel, shape (N,). The M channels with the highest
    scores are used, the best one by the oldest client, and so on: every action is a valid plan.

    The observation, shape (M + HN,), holds `1 − 1/age` of each client, and of the last H rounds,
    the latest first, a number for each channel: 1 delivered, −1 lost, 0 not used. The reward is
    minus the mean age after the round. An episode is truncated after ``rounds`` rounds.

    Parameters
    ----------
    channels : str or ChannelModel, default "piecewise"
        The channel environment; its links must not differ per client.
    n_clients : int in [1, N], default 2
        The number of clients M.
    rounds : int >= 1, default 1000
        The length T of an episode.
    history : int >= 1, default 8
        The number H of past rounds that are observed.
    **options
        Parameters of a channel model that is given by name.

    Examples
    --------
    >>> environment = SchedulingEnv("stationary", rounds=3, means=[1, 1, 0])
    >>> observation, _ = environment.reset(seed=0)
    >>> step = environment.step(np.array([1, 0.5, 0], np.float32))
    >>> step[1], step[4]["assignment"].tolist()
    (-1.0, [0, 1])
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self,
        channels: str | ChannelModel = "piecewise",
        n_clients: int = 2,
        rounds: int = 1000,
        history: int = 8,
        **options: Any,
    ) -> None:
        self.model = build(channels, options)
        if links_differ(self.model):
            raise ParameterError("channels must be the same for all clients, got links that differ")
        self.n_clients = whole_number("n_clients", n_clients, at_least=1)
        n_channels = self.model.n_channels
        if self.n_clients > n_channels:
            raise ParameterError(f"n_clients must be at most {n_channels}, got {n_clients}")
        self.rounds = whole_number("rounds", rounds, at_least=1)
        self.history = whole_number("history", history, at_least=1)
        seen = self.n_clients + self.history * n_channels
        self.observation_space = Box(-1, 1, (seen,), np.float32)
        self.action_space = Box(0, 1, (n_channels,), np.float32)
        self._round = -1  # before the first reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: a new instance, or the ``seed`` and ``run`` that ``options`` name."""
        super().reset(seed=seed)
        chosen = dict(options or {})
        drawn = int(self.np_random.integers(2**31))
        base, run = check_seed(chosen.pop("seed", drawn)), chosen.pop("run", 0)
        if chosen:
            raise ParameterError(f"options must be seed and run, got {sorted(chosen)}")
        self._air = open_air(self.model, self.rounds, base, run)
        self._jammer = start_reacting(self.model)
        self._round, self._block = 0, Block(np.zeros((0, 0), np.uint8), np.zeros((0, 0)))
        self.ages = np.ones(self.n_clients, np.int64)
        self._assignment = np.full(self.n_clients, -1, np.int64)
        self._seen = np.zeros((self.history, self.model.n_channels), np.float32)
        return self._observe(), {}

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play a round."""
        if not 0 <= self._round < self.rounds:
            raise SequenceError("the episode is over or has not begun: call reset")
        scores = np.asarray(action, np.float64)
        if scores.shape != self.action_space.shape or not np.isfinite(scores).all():
            raise ParameterError(
                f"action must be {self.model.n_channels} finite scores, got {scores.tolist()}"
            )
        states = self._next_states()
        self._assign(scores)
        delivered = states[self._assignment]
        self.ages = np.where(delivered == 1, 1, self.ages + 1)
        self._seen = np.roll(self._seen, 1, axis=0)
        self._seen[0] = 0
        self._seen[0, self._assignment] = 2.0 * delivered - 1.0
        facts = {"ages": self.ages.copy(), "assignment": self._assignment.copy()}
        facts["delivered"] = delivered.astype(np.bool_)
        ended = self._round == self.rounds
        return self._observe(), -float(self.ages.mean()), False, ended, facts

    def _next_states(self) -> NDArray[np.uint8]:
        """Draw the states of the next round, after a jammer that reacts has changed them."""
        place = self._round % _BLOCK
        if place == 0:
            block = self._air.block(min(_BLOCK, self.rounds - self._round))
            still = isinstance(self._jammer, Still)
            self._block = block if still else Block(block.states.copy(), block.means.copy())
        self._round += 1
        states: NDArray[np.uint8] = self._block.states[place]
        react(self._jammer, self._round, self._assignment, states, self._block.means[place])
        return states

    def _assign(self, scores: NDArray[np.float64]) -> None:
        """Give the best channel to the oldest client, and so on."""
        best = np.zeros(self.n_clients, np.int64)
        take_best(scores, self._round, best)
        sort_by(scores, self._round, best)
        oldest = np.arange(self.n_clients)
        sort_by(self.ages, self._round + CLIENTS, oldest)
        self._assignment[oldest] = best

    def _observe(self) -> Observation:
        waited = (1 - 1 / self.ages).astype(np.float32)
        return np.concatenate([waited, self._seen.ravel()])


# -------------------------------------------------------------------------------- in the arena


class Agent(Protocol):
    """What acts in the environment; ``reset`` is called before each episode."""

    def reset(self, n_clients: int, n_channels: int, history: int) -> None:
        """Forget everything, and prepare for observations and actions of these sizes."""
        ...

    def act(self, observation: Observation) -> Action:
        """Return the scores of the channels for the next round."""
        ...


_Maker = TypeVar("_Maker", bound=Callable[[], Any])
_agents: dict[str, Callable[[], Agent]] = {}


def register_agent(name: str) -> Callable[[_Maker], _Maker]:
    """Return a decorator that enters a class or function, which makes an agent, under a name."""

    def enter(make: _Maker) -> _Maker:
        _agents[name] = make
        return make

    return enter


def find_agent(name: str) -> Callable[[], Agent]:
    """Return what makes the agent of a name, or raise `UnknownNameError`."""
    if name not in _agents:
        raise UnknownNameError(f"unknown agent {name!r}; {nearest(name, _agents)}")
    return _agents[name]


def play_agent(agent: Agent, environment: SchedulingEnv, seed: int, run: int) -> NDArray[np.int64]:
    """Play an instance; return the sum of ages after each round, shape (T,)."""
    observation, _ = environment.reset(options={"seed": seed, "run": run})
    agent.reset(environment.n_clients, environment.model.n_channels, environment.history)
    sums = np.zeros(environment.rounds, np.int64)
    for t in range(environment.rounds):
        observation, *_ = environment.step(agent.act(observation))
        sums[t] = environment.ages.sum()
    return sums
