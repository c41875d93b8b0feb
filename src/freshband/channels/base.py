"""Channel models: the contract, the registry, and how to open a run's channels.

*Air* is short for the channel environment: the states of all channels in all rounds of a run. A
channel model is a frozen set of parameters. `ChannelModel.start` opens a `Stream`, which draws the
air block by block from two random generators: *structure* (means, breakpoints, jamming plans) and
*states* (the Good/Bad draws). Nothing a stream returns depends on the size of the blocks, so every
policy and every oracle of a run meets the same air, and ten million rounds need no more memory
than one block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

from freshband._registry import Registry
from freshband._seeding import Role, check_seed, generator
from freshband.errors import ParameterError, RuleError, shown
from freshband.parameters import whole_number

_Rng: TypeAlias = np.random.Generator
_Bits: TypeAlias = npt.NDArray[np.uint8]
_Flags: TypeAlias = npt.NDArray[np.bool_]
_Floats: TypeAlias = npt.NDArray[np.float64]

_COMPARED: Final = 1024  # rounds of two runs compared at a time


class Block(NamedTuple):
    """The next rounds of the air.

    Attributes
    ----------
    states : ndarray of uint8, shape (n, n_channels)
        C-contiguous; 1 is Good, 0 is Bad: `X_k(t)` of the paper. The shape is
        (n, clients, n_channels) where links differ per client; see `LinkModel`.
    means : ndarray of float64, of the same shape
        C-contiguous; the success rate of the current regime, `μ_k(t)`, never a hidden state. NaN
        throughout where the model has no means, such as a recorded trace of 0/1 states.
    """

    states: _Bits
    means: _Floats


class Stream(Protocol):
    """One realisation of the air, drawn forward only."""

    def block(self, n: int) -> Block:
        """Draw the next ``n`` >= 1 rounds, or raise `SequenceError` past the horizon."""
        ...

    @property
    def breakpoints(self) -> npt.NDArray[np.int64]:
        """Rounds drawn so far, counted from 1, at which a mean differs from the round before.

        Only the first 100,000 are remembered, so that a model which changes in every round still
        runs in bounded memory. Empty for models without means.
        """
        ...

    @property
    def changed(self) -> _Flags:
        """Which channels changed at each of `breakpoints`, shape (breakpoints, n_channels).

        Where links differ per client, a channel has changed if any of its links has.
        """
        ...


@runtime_checkable
class ChannelModel(Protocol):
    """A channel environment: a frozen `freshband.parameters.Parameters` that opens streams."""

    @property
    def n_channels(self) -> int:
        """The number of channels, N of the paper."""
        ...

    @property
    def has_means(self) -> bool:
        """Whether blocks hold success rates; otherwise an oracle can only know the states."""
        ...

    def start(self, rounds: int, structure: _Rng, states: _Rng) -> Stream:
        """Open a stream of ``rounds`` rounds.

        Parameters
        ----------
        rounds : int
            Horizon T >= 1. Breakpoints are placed within it; drawing more rounds is an error.
        structure : numpy.random.Generator
            The generator of means, breakpoints and plans. The stream owns it from now on.
        states : numpy.random.Generator
            The generator of the states; another one gives other states of the same structure.
        """
        ...


@runtime_checkable
class LinkModel(ChannelModel, Protocol):
    """A channel model whose links may differ per client: one success rate per client and channel.

    All other models give every client the same channels.
    """

    @property
    def per_client(self) -> bool:
        """Whether links differ; otherwise this is an ordinary `ChannelModel`."""
        ...

    @property
    def n_clients(self) -> int | None:
        """The number of clients M that the parameters give links for; None for any number."""
        ...

    def start(
        self, rounds: int, structure: _Rng, states: _Rng, clients: int | None = None
    ) -> Stream:
        """Open a stream as `ChannelModel.start` does, of the links of ``clients`` clients.

        Where links differ, blocks have the shape (n, clients, n_channels);
        `freshband.channels.MeansStream` makes them from success rates.
        """
        ...


def links_differ(model: ChannelModel) -> TypeGuard[LinkModel]:
    """Return whether the links of a model differ per client; without `per_client` they do not."""
    if not getattr(model, "per_client", False):
        return False
    if not isinstance(model, LinkModel):
        raise ParameterError(
            f"{type(model).__name__} has per_client, but not n_clients: the number of clients it "
            "gives links for, or None for any number"
        )
    return True


def fit_clients(model: LinkModel, clients: int | None) -> int:
    """Return the number of clients of a model whose links differ, or raise `ParameterError`.

    Examples
    --------
    >>> fit_clients(build("stationary", means=[[0.9, 0.1], [0.2, 0.8]], per_client=True), 3)
    Traceback (most recent call last):
    freshband.errors.ParameterError: clients must be 2, those Stationary gives links for, got 3
    """
    name, known = type(model).__name__, model.n_clients
    if clients is None:
        if known is None:
            raise ParameterError(
                f"clients must be given, because the links of {name} differ per client, got None"
            )
        return known
    clients = whole_number("clients", clients, at_least=1)
    if known is not None and clients != known:
        raise ParameterError(
            f"clients must be {known}, those {name} gives links for, got {clients}"
        )
    return clients


registry: Registry[type[ChannelModel]] = Registry(
    "channel model", "freshband.channels", distant={"against": "freshband.arena.against.Against"}
)
register = registry.register


def build(
    model: str | ChannelModel, params: Mapping[str, object] | None = None, /, **named: object
) -> ChannelModel:
    """Return a channel model from its name and parameters; a model is returned as it is.

    Parameters
    ----------
    model : str or ChannelModel
        A registered name, such as ``"piecewise"`` or ``"besson-1"``, or a ready model.
    params : mapping, optional
        Parameters by name.
    **named
        Parameters as keywords; they take precedence over ``params``.

    Examples
    --------
    >>> build("piecewise", n_channels=3, n_breakpoints=2).n_channels
    3
    >>> build("picewise")
    Traceback (most recent call last):
    freshband.errors.UnknownNameError: unknown channel model 'picewise'; did you mean 'piecewise'?
    """
    values = {**(params or {}), **named}
    if isinstance(model, str):
        built = registry[model](**values)
        if not isinstance(built, ChannelModel):
            lacking = [n for n in ("n_channels", "has_means", "start") if not hasattr(built, n)]
            raise ParameterError(f"channel model {model!r} lacks {', '.join(lacking)}")
        return built
    if not isinstance(model, ChannelModel) or isinstance(model, type):
        raise ParameterError(f"channels must be a name or a channel model, got {shown(model)}")
    if values:
        raise ParameterError(
            f"parameters need a channel model given by name, got {sorted(values)} with a "
            f"ready {type(model).__name__}"
        )
    return model


def _at_most(rounds: int, model: ChannelModel) -> int:
    """Return a default number of rounds, or the length of a recording that is shorter."""
    lasts: int | None = getattr(model, "n_rounds", None)
    return rounds if lasts is None else min(rounds, lasts)


def open_air(
    model: str | ChannelModel, rounds: int, seed: int, run: int = 0, clients: int | None = None
) -> Stream:
    """Open the air of one run; the same model, rounds, seed and run always give the same air.

    Parameters
    ----------
    model : str or ChannelModel
        The channel model; a name stands for the model with its default parameters.
    rounds : int
        Horizon T >= 1.
    seed : int
        The user's seed, >= 0.
    run : int, default 0
        The number of the run, >= 0; runs are independent.
    clients : int >= 1, optional
        Number of clients M; it matters only where links differ per client, and must be given
        there unless the model's parameters determine it.

    Examples
    --------
    >>> air = open_air("piecewise", rounds=12, seed=1)
    >>> block = air.block(12)
    >>> block.states.shape, block.states.dtype.name
    ((12, 5), 'uint8')
    >>> air.breakpoints
    array([ 3,  5,  7,  9, 11])
    """
    seed, run = check_seed(seed), whole_number("run", run, at_least=0)
    opened = build(model) if isinstance(model, str) else model  # a ready model was checked before
    given = (
        whole_number("rounds", rounds, at_least=1),
        generator(seed, Role.CHANNEL_STRUCTURE, run),
        generator(seed, Role.CHANNEL_STATES, run),
    )
    row: tuple[int, ...] = (opened.n_channels,)
    if links_differ(opened):
        row = (fit_clients(opened, clients), *row)
        stream = opened.start(*given, clients=row[0])
    else:
        stream = opened.start(*given)
    if type(opened).__module__.startswith("freshband."):
        return stream
    return _Checked(type(opened).__name__, stream, row)


class _Checked:
    """The stream of a user's model; every block is checked before compiled code reads it."""

    def __init__(self, name: str, stream: Stream, row: tuple[int, ...]) -> None:
        self._name, self._stream = name, stream
        self._row = row  # the shape of a round

    def block(self, n: int) -> Block:
        """Draw the next rounds, and check that they meet the contract of `Block`."""
        try:
            states, means = self._stream.block(n)
        except (TypeError, ValueError) as error:
            raise RuleError(f"{self._name}.block must return a Block: {error}") from error
        shape = (n, *self._row)
        for field, array, dtype in (("states", states, np.uint8), ("means", means, np.float64)):
            if not (
                isinstance(array, np.ndarray)
                and array.dtype == dtype
                and array.shape == shape
                and array.flags.c_contiguous
            ):
                kind = getattr(array, "dtype", type(array).__name__)
                raise RuleError(
                    f"{self._name}.block: {field} must be a C-contiguous array of "
                    f"{np.dtype(dtype).name} of shape {shape}, got {kind} of "
                    f"shape {np.shape(array)}"
                )
        if states.max(initial=0) > 1:
            raise RuleError(f"{self._name}.block: states must be 0 or 1, got {states.max()}")
        return Block(states, means)

    @property
    def breakpoints(self) -> npt.NDArray[np.int64]:
        return self._stream.breakpoints

    @property
    def changed(self) -> _Flags:
        return self._stream.changed


def _same_air(
    model: ChannelModel, rounds: int, seed: int, runs: Sequence[int], clients: int | None = None
) -> bool:
    """Return whether all runs meet the same states, as with a recording."""
    first, *others = runs
    for run in others:
        airs = [open_air(model, rounds, seed, each, clients) for each in (first, run)]
        for done in range(0, rounds, _COMPARED):
            size = min(_COMPARED, rounds - done)
            one, other = (air.block(size).states for air in airs)
            if not np.array_equal(one, other):
                return False
    return len(others) > 0
