"""Monte Carlo: many runs of many policies over the same channel environment (*air*)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from freshband._backends import Backend, ThreadBackend, open_backend
from freshband._jit import explained
from freshband._policy import Policy, parse_policy, read_options
from freshband._rounds import broken_rule, open_desk
from freshband._seeding import Role, check_seed, generator
from freshband.channels.base import ChannelModel, _same_air, build, open_air, registry
from freshband.errors import ParameterError, nearest, shown
from freshband.parameters import Parameters, whole_number
from freshband.schedulers._aoi_aware import AoIAwareState
from freshband.schedulers.oracle import Oracle
from freshband.simulation._loop import Tally, open_tally, run_block
from freshband.simulation.result import _collect, _Record
from freshband.states import reserve

__all__ = ["simulate"]

_CELLS = 1 << 17  # states per block, so that it and its means stay in the second-level cache


def simulate(
    channels: str | ChannelModel,
    policies: Sequence[str | Policy] | str,
    *,
    clients: int = 2,
    rounds: int = 20_000,
    runs: int = 10,
    seed: int = 0,
    channel_options: Mapping[str, Any] | None = None,
    policy_options: Mapping[str, Mapping[str, Any]] | None = None,
    points: int = 200,
    threads: int | None = None,
    backend: Literal["threads", "ray"] = "threads",
    address: str | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Run policies over the same air and measure ages, regret and fairness.

    Parameters
    ----------
    channels : str or ChannelModel
        The channel environment: a registered name, or a model.
    policies : sequence of str or Policy
        Policies, ``scheduler[:preset][+token...]``; a string is split at commas.
    clients : int >= 1, default 2
        The number of clients M, at most the number of channels.
    rounds : int >= 1, default 20000
        T.
    runs : int >= 1, default 10
        The number of independent repetitions; every policy meets the same air in each.
    seed : int >= 0, default 0
        The seed of all random numbers.
    channel_options : mapping, optional
        Parameters of a channel model that is given by name.
    policy_options : mapping of str to mapping, optional
        Hyper-parameters by policy, as written in ``policies``.
    points : int >= 1, default 200
        The number of points of the thinned curves; totals are exact.
    threads : int >= 1, optional
        The number of parallel runs; by default one per core.
    backend : {"threads", "ray"}, default "threads"
        Where runs are computed: in this process, or as Ray tasks. Results are the same.
    address : str, optional
        The address of a Ray cluster; by default one is started on this machine.
    progress : bool, default True
        Whether a progress bar is shown on stderr if that is a terminal.

    Returns
    -------
    xarray.Dataset
        Totals over (policy, run): ``regret`` against mean+age, ``regret_rotate`` against
        mean+rotate (both NaN where channels have no means), ``regret_fixed`` against the best
        fixed set (computed where there are no means), ``mean_age``, ``cumulative_variance``,
        ``max_age``, ``jain``, ``delivered``, ``alarms``, ``detected``, ``missed``,
        ``false_alarms``, ``delay``; ``participation`` over (policy, run, client); and thinned
        curves over (policy, run, round): ``age_curve``, ``variance_curve``, ``delivered_curve``,
        ``regret_curve``, ``regret_rotate_curve``, ``regret_fixed_curve``. Attributes hold the
        configuration, seed and versions; ``same_air`` is 1 where all runs met the same states.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["random", "glr-cucb"], clients=2, rounds=3000, runs=4, seed=1
    ... )
    >>> result.regret.dims, result.sizes["run"]
    (('policy', 'run'), 4)
    >>> bool((result.regret.sel(policy="random") > result.regret.sel(policy="glr-cucb")).all())
    True
    """
    model = build(channels, read_options("channel_options", channel_options))
    options = read_options("policy_options", policy_options)
    named = _name_policies(policies, options)
    plan = _Plan(
        model=model,
        policies=[parse_policy(text, options.get(name)) for name, text in named.items()],
        clients=_read_clients(clients, model.n_channels),
        rounds=whole_number("rounds", rounds, at_least=1),
        runs=whole_number("runs", runs, at_least=1),
        seed=check_seed(seed),
        points=whole_number("points", points, at_least=1),
    )
    plan.check()  # before any run begins, so that mistakes show at once
    where = open_backend(backend, workers=threads, address=address)
    began = time.perf_counter()
    records = _run_all(plan, where, progress)
    result = _collect(
        [policy.name for policy in plan.policies],
        plan.checkpoints,
        records,
        plan.config(),
        time.perf_counter() - began,
    )
    same = _same_air(plan.model, plan.rounds, plan.seed, range(plan.runs))
    return result.assign_attrs(same_air=1) if same else result


@dataclass(frozen=True)
class _Plan:
    """A validated request: everything that a run needs."""

    model: ChannelModel
    policies: list[Policy]
    clients: int
    rounds: int
    runs: int
    seed: int
    points: int
    stop: threading.Event = field(default_factory=threading.Event, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the stop event, which belongs to this process."""
        given = (self.model, self.policies, self.clients, self.rounds, self.runs)
        return _Plan, (*given, self.seed, self.points)

    @cached_property
    def checkpoints(self) -> NDArray[np.int64]:
        """Evenly spaced rounds, the last one included."""
        points = min(self.points, self.rounds)
        return np.unique(np.linspace(0, self.rounds, points + 1).round().astype(np.int64)[1:])

    @property
    def yardsticks(self) -> dict[str, Policy]:
        """The oracles against which regret is measured, by the name of the measure."""
        if self.model.has_means:
            return {
                "regret": parse_policy("oracle:mean+age"),
                "regret_rotate": parse_policy("oracle:mean+rotate"),
            }
        return {"regret_fixed": parse_policy("oracle:fixed+age")}

    def check(self) -> None:
        """Raise `ParameterError` for a request that cannot work, before any run begins."""
        for policy in self.policies:
            if policy.needs_contributions:
                raise ParameterError(
                    f"policy {policy.name!r} needs contributions, which only training can give"
                )
            shown_to = _selection(policy)
            if not self.model.has_means and (shown_to == "mean" or (shown_to and policy.aware)):
                raise ParameterError(
                    f"policy {policy.name!r} needs channel means, which these channels do not "
                    "have; use oracle:fixed or oracle:csi, without +aa"
                )
            rng = np.random.default_rng(0)
            policy.start(self.clients, self.model.n_channels, rng, self.rounds)
        open_air(self.model, self.rounds, self.seed)

    def config(self) -> dict[str, Any]:
        """Return what reproduces this simulation, as plain JSON values."""
        kind = type(self.model)
        return {
            "channels": registry.name_of(kind) or kind.__name__,
            "channel_options": self.model.model_dump(mode="json", exclude_unset=True)
            if isinstance(self.model, Parameters)
            else {},
            "policies": [policy.name for policy in self.policies],
            "policy_options": {p.name: dict(p.options) for p in self.policies if p.options},
            "clients": self.clients,
            "rounds": self.rounds,
            "runs": self.runs,
            "seed": self.seed,
            "points": self.points,
        }


def _name_policies(
    policies: Sequence[str | Policy] | str,
    options: Mapping[str, Mapping[str, Any]],
    done: str = "simulated",
) -> dict[str, str | Policy]:
    """Return policies by name, each once; options must belong to one of them."""
    if not isinstance(policies, Iterable):
        raise ParameterError(f"policies must be a list of policies, got {shown(policies)}")
    texts = policies.split(",") if isinstance(policies, str) else list(policies)
    names = [text.name if isinstance(text, Policy) else str(text).strip() for text in texts]
    if not names:
        raise ParameterError("policies must name at least one policy, got none")
    for name in options:
        if name not in names:
            raise ParameterError(
                f"options are given for policy {name!r}, which is not {done}; "
                + nearest(name, names)
            )
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ParameterError(f"policies must differ, got {sorted(twice)[0]!r} twice")
    return dict(zip(names, texts, strict=True))


def _read_clients(clients: object, n_channels: int) -> int:
    number = whole_number("clients", clients, at_least=1)
    if number > n_channels:
        raise ParameterError(
            f"clients must be at most the number of channels, {n_channels}, got {number}"
        )
    return number


def _blocks(plan: _Plan) -> Iterator[tuple[int, int]]:
    """Yield (number of rounds before, number of rounds in) each block."""
    size = max(64, _CELLS // plan.model.n_channels)
    for t in range(0, plan.rounds, size):
        if plan.stop.is_set():
            raise CancelledError
        yield t, min(size, plan.rounds - t)


def _play_run(plan: _Plan, run: int, *, yardsticks: bool = True) -> _Record:
    """Play all policies of a plan, and the oracles, over the air of one run."""
    oracles = plan.yardsticks if yardsticks else {}
    everybody = [*plan.policies, *oracles.values()]
    hindsight = None
    if any(_selection(policy) == "fixed" for policy in everybody):
        air = open_air(plan.model, plan.rounds, plan.seed, run)  # first pass: best set in hindsight
        hindsight = np.zeros(plan.model.n_channels)
        for _, size in _blocks(plan):
            hindsight += air.block(size).states.sum(axis=0)
    players = [_Player(policy, plan, run, hindsight) for policy in everybody]
    air = open_air(plan.model, plan.rounds, plan.seed, run)
    for t, size in _blocks(plan):
        states, means = air.block(size)
        for player in players:  # all on one block, while it is in the cache
            player.play(t, states, means)
    own = players[: len(plan.policies)]
    return _Record(
        tallies=[_trim(player.tally) for player in own],
        seconds=[player.seconds for player in own],
        yardsticks={
            name: player.tally.age_curve
            for name, player in zip(oracles, players[len(own) :], strict=True)
        },
        breakpoints=air.breakpoints if plan.model.has_means else None,
    )


def _trim(tally: Tally) -> Tally:
    """Return a tally without unused room for alarms: it may be sent to another machine."""
    return tally._replace(alarm=tally.alarm[: tally.mark[0]["alarms"]].copy())


def _run_all(plan: _Plan, backend: Backend, progress: bool) -> list[_Record]:
    records: list[_Record | None] = [None] * plan.runs
    with _progress_bar(progress) as bar:
        if isinstance(backend, ThreadBackend):  # once, before all threads need it
            _compile(plan, bar)
        task = bar.add_task("simulating", total=plan.runs)
        try:
            play = partial(_play_run, plan)
            for run, record in backend.compute(play, range(plan.runs), plan.stop):
                records[run] = record
                bar.advance(task)
        except BaseException:
            plan.stop.set()  # active runs end after their block
            raise
    return [record for record in records if record is not None]


def _compile(plan: _Plan, bar: Progress) -> None:
    """Compile every policy, or load it from the disk cache, by playing no rounds."""
    nothing = np.zeros((0, plan.model.n_channels))
    everybody = [*plan.policies, *plan.yardsticks.values()]
    task = bar.add_task("compiling (once)", total=len(everybody))
    for policy in everybody:
        _Player(policy, plan, 0, nothing.sum(axis=0)).play(0, nothing.astype(np.uint8), nothing)
        bar.advance(task)
    bar.remove_task(task)


def _progress_bar(wanted: bool) -> Progress:
    """Return a progress bar on stderr, which is hidden if that is not a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not wanted or not console.is_terminal,
        transient=True,
    )
