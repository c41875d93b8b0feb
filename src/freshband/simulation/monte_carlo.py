"""Monte Carlo: many runs of many policies over the same channel environment (*air*)."""

from __future__ import annotations

import os
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
from freshband._keeping import KeptRuns
from freshband._policy import Policy, label_of, parse_policy, read_options, split_policies
from freshband._sealed import versions_of
from freshband._seeding import check_seed
from freshband.channels.base import (
    ChannelModel,
    _same_air,
    build,
    links_differ,
    registry,
)
from freshband.errors import ParameterError, nearest, shown
from freshband.fleet.conditions import SimulatedFleet
from freshband.parameters import Parameters, whole_number
from freshband.simulation._loop import Tally
from freshband.simulation._players import Game, enter, selection_of
from freshband.simulation.result import _LIBRARIES, _collect, _Record

_CELLS = 1 << 17  # states per block, so that it and its means stay in the second-level cache
_FATES = 1 << 22  # rounds times clients per block, so that what happens to them takes 100 MB


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
    fleet: Mapping[str, Any] | SimulatedFleet | None = None,
    points: int = 200,
    threads: int | None = None,
    backend: Literal["threads", "ray"] = "threads",
    address: str | None = None,
    progress: bool = True,
    keep: str | os.PathLike[str] | None = None,
) -> xr.Dataset:
    """Run policies over the same air and measure ages, regret and fairness.

    Parameters
    ----------
    channels : str or ChannelModel
        The channel environment: a registered name, or a model.
    policies : sequence of str or Policy
        Policies, ``scheduler[:preset][+token...]``; a string is split at commas. One with settings
        of its own is ``"fast=cucb{mean_window=200}"``, whose results are called ``fast``, or an
        object such as ``freshband.parse_policy(Cucb(mean_window=200), name="fast")``.
    clients : int >= 1, default 2
        The number of clients M; there may be more than channels.
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
    fleet : mapping or SimulatedFleet, optional
        Weights, a limit of transmissions, late and lost acknowledgements, clients and channels that
        come and go: see `freshband.fleet.conditions.SimulatedFleet`.
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
    keep : path, optional
        Keep every finished run in the folder ``KEEP.runs``, and compute only those missing there.

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
        clients=whole_number("clients", clients, at_least=1),
        rounds=whole_number("rounds", rounds, at_least=1),
        runs=whole_number("runs", runs, at_least=1),
        seed=check_seed(seed),
        points=whole_number("points", points, at_least=1),
        fleet=_read_fleet(fleet),
    )
    plan.check()  # before any run begins, so that mistakes show at once
    where = open_backend(backend, workers=threads, address=address)
    began = time.perf_counter()
    made_of = {**plan.config(), "model": repr(model), "versions": versions_of(_LIBRARIES)}
    kept = KeptRuns(keep, {**made_of, "runs": None})  # of which there may be more another time
    records = _run_all(plan, where, progress, kept)
    result = _collect(
        [policy.name for policy in plan.policies],
        plan.checkpoints,
        records,
        plan.config(),
        time.perf_counter() - began,
    )
    same = _same_air(plan.model, plan.rounds, plan.seed, range(plan.runs), plan.clients)
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
    fleet: SimulatedFleet = field(default_factory=SimulatedFleet)
    stop: threading.Event = field(default_factory=threading.Event, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the stop event, which belongs to this process."""
        given = (self.model, self.policies, self.clients, self.rounds, self.runs)
        return _Plan, (*given, self.seed, self.points, self.fleet)

    @cached_property
    def checkpoints(self) -> NDArray[np.int64]:
        """Evenly spaced rounds, the last one included."""
        points = min(self.points, self.rounds)
        return np.unique(np.linspace(0, self.rounds, points + 1).round().astype(np.int64)[1:])

    @cached_property
    def yardsticks(self) -> dict[str, Policy]:
        """The oracles against which regret is measured, by the name of the measure."""
        if not self.model.has_means:
            return {"regret_fixed": parse_policy("oracle:fixed+age")}
        found = {"regret": parse_policy("oracle:mean+age")}
        if self.game(0).is_plain(found["regret"]):  # of the paper's problem
            found["regret_rotate"] = parse_policy("oracle:mean+rotate")
        return found

    def game(self, run: int) -> Game:
        """Return what the players of a run share."""
        return Game(
            self.model, self.fleet, self.clients, self.rounds, self.seed, run, self.checkpoints
        )

    def check(self) -> None:
        """Raise `ParameterError` for a request that cannot work, before any run begins."""
        self.fleet.check_clients(self.clients)
        if "links" in self.fleet.model_fields_set:
            raise ParameterError(
                "links cannot be set in a simulation: links differ where the channels have "
                "per_client = true"
            )
        for policy in self.policies:
            if policy.needs_contributions:
                raise ParameterError(
                    f"policy {policy.name!r} needs contributions, which only training can give"
                )
            shown_to = selection_of(policy)
            if not self.model.has_means and (shown_to == "mean" or (shown_to and policy.aware)):
                raise ParameterError(
                    f"policy {policy.name!r} needs channel means, which these channels do not "
                    "have; use oracle:fixed or oracle:csi, without +aa"
                )
            game = self.game(0)
            enter(policy, game, check=True)
            policy.check_late(self.fleet.ack_delay, game.links)
        self.game(0).open_air()

    def config(self) -> dict[str, Any]:
        """Return what reproduces this simulation, as plain JSON values."""
        kind = type(self.model)
        return {
            "channels": registry.name_of(kind) or kind.__name__,
            "channel_options": self.model.model_dump(mode="json", exclude_unset=True)
            if isinstance(self.model, Parameters)
            else {},
            "policies": [policy.text for policy in self.policies],
            "policy_options": {p.name: dict(p.options) for p in self.policies if p.options},
            "clients": self.clients,
            "rounds": self.rounds,
            "runs": self.runs,
            "seed": self.seed,
            "points": self.points,
            **self.fleet.as_config(),
        }


def _name_policies(
    policies: Sequence[str | Policy] | str,
    options: Mapping[str, Mapping[str, Any]],
    done: str = "simulated",
) -> dict[str, str | Policy]:
    """Return policies by name, each once; options must belong to one of them."""
    if not isinstance(policies, Iterable):
        raise ParameterError(f"policies must be a list of policies, got {shown(policies)}")
    texts: list[Any] = split_policies(policies) if isinstance(policies, str) else [*policies]
    texts = [parse_policy(text) if isinstance(text, Parameters) else text for text in texts]
    names = [text.name if isinstance(text, Policy) else label_of(str(text)) for text in texts]
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


def _read_fleet(fleet: Mapping[str, Any] | SimulatedFleet | None) -> SimulatedFleet:
    return (
        fleet
        if isinstance(fleet, SimulatedFleet)
        else SimulatedFleet(**read_options("fleet", fleet))
    )


def _sizes(plan: _Plan) -> Iterator[tuple[int, int]]:
    """Yield (number of rounds before, number of rounds in) each block."""
    rows = plan.clients if links_differ(plan.model) else 1
    size = max(64, _CELLS // (plan.model.n_channels * rows))
    size = max(1, min(size, _FATES // plan.clients))
    for t in range(0, plan.rounds, size):
        if plan.stop.is_set():
            raise CancelledError
        yield t, min(size, plan.rounds - t)


def _play_run(plan: _Plan, run: int, *, yardsticks: bool = True) -> _Record:
    """Play all policies of a plan, and the oracles, over the air of one run."""
    game, oracles = plan.game(run), plan.yardsticks if yardsticks else {}
    own = [enter(policy, game) for policy in plan.policies]
    judges = [enter(policy, game, informed=True) for policy in oracles.values()]
    players = own + judges
    fixed = [player for player in players if selection_of(player.policy) == "fixed"]
    if fixed:
        air = game.open_air()  # first pass: best set in hindsight
        good = [air.block(size).states.sum(axis=0, dtype=np.int64) for _, size in _sizes(plan)]
        for player in fixed:
            player.look_ahead(np.sum(good, axis=0).astype(np.float64))
    air = game.open_air()
    fates = None if all(game.is_plain(player.policy) for player in players) else game.open_fates()
    for t, size in _sizes(plan):
        block = air.block(size)
        conditions = None if fates is None else fates.block(size)
        for player in players:  # all on one block, while it is in the cache
            player.play(t, block, conditions)
    return _Record(
        tallies=[_trim(player.tally) for player in own],
        seconds=[player.seconds for player in own],
        exposure=[player.exposure for player in own],
        yardsticks={
            name: player.tally.age_curve for name, player in zip(oracles, judges, strict=True)
        },
        breakpoints=air.breakpoints if plan.model.has_means else None,
    )


def _trim(tally: Tally) -> Tally:
    """Return a tally without unused room for alarms: it may be sent to another machine."""
    return tally._replace(alarm=tally.alarm[: tally.mark[0]["alarms"]].copy())


def _run_all(plan: _Plan, backend: Backend, progress: bool, kept: KeptRuns) -> list[_Record]:
    records: list[_Record | None] = [None] * plan.runs
    for run in range(plan.runs):
        arrays = kept.load(run)
        records[run] = None if arrays is None else _Record.from_arrays(arrays)
    missing = [run for run in range(plan.runs) if records[run] is None]
    if not missing:
        return [record for record in records if record is not None]
    with _progress_bar(progress) as bar:
        if isinstance(backend, ThreadBackend):  # once, before all threads need it
            _compile(plan, bar)
        task = bar.add_task("simulating", total=plan.runs, completed=plan.runs - len(missing))
        try:
            play = partial(_play_run, plan)
            for place, record in backend.compute(play, missing, plan.stop):
                kept.save(missing[place], record.to_arrays())
                records[missing[place]] = record
                bar.advance(task)
        except BaseException:
            plan.stop.set()  # active runs end after their block
            raise
    return [record for record in records if record is not None]


def _compile(plan: _Plan, bar: Progress) -> None:
    """Compile every policy, or load it from the disk cache, by playing no rounds."""
    game = plan.game(0)
    everybody = [*plan.policies, *plan.yardsticks.values()]
    task = bar.add_task("compiling (once)", total=len(everybody))
    for policy in everybody:
        enter(policy, game).play(0, *game.nothing())
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
