"""The contest: families × policies, piece by piece, in parallel, and resumable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import xarray as xr

from freshband._backends import open_backend
from freshband._jit import _fingerprint
from freshband._keeping import KeptRuns
from freshband._policy import Policy, parse_policy, split_policies
from freshband._sealed import versions_of
from freshband._seeding import check_seed
from freshband.arena.against import is_deterministic
from freshband.arena.families import FAMILIES, Family, family, pick_families
from freshband.arena.pieces import Contest, Found, Piece, agent_text, play_piece
from freshband.arena.result import collect
from freshband.errors import ParameterError, shown
from freshband.parameters import file_path, whole_number
from freshband.schedulers.base import registry
from freshband.simulation.monte_carlo import _name_policies, _progress_bar
from freshband.simulation.result import _LIBRARIES

_QUIET_FOR = 30.0  # seconds between two lines of a log
_LIMIT = {False: 10.0, True: 600.0}  # seconds per piece, by whether it is a full contest


def every_policy() -> list[str]:
    """Return all registered schedulers that learn, those of imported files too.

    Examples
    --------
    >>> "bayes" in every_policy(), "oracle" in every_policy()
    (True, False)
    """
    return [name for name in registry if not registry[name].sees_channels]


def compete(
    policies: Sequence[str | Policy] | str | None = None,
    families: Iterable[str | Family] | None = None,
    *,
    agents: Sequence[str] = (),
    full: bool = False,
    runs: int | None = None,
    rounds: int | None = None,
    seed: int = 0,
    limit: float | None = None,
    keep: str | os.PathLike[str] | None = None,
    progress: bool = True,
    threads: int | None = None,
    backend: Literal["threads", "ray"] = "threads",
    address: str | None = None,
) -> xr.Dataset:
    """Let policies compete on families of instances; in each family all meet the same instances.

    Parameters
    ----------
    policies : sequence of str or Policy, optional
        As for `freshband.simulate`; by default every registered scheduler that learns.
    families : sequence of str or Family, optional
        Names, patterns such as ``"jammer-*"``, or families; by default all, and a table against
        every policy that makes no random choices.
    agents : sequence of str, optional
        Names of agents that `freshband.gym.register_agent` entered; they need the extra ``gym``.
    full : bool, default False
        Whether each family has as many instances as a publication needs.
    runs, rounds : int >= 1, optional
        The number of instances of each family, and the most rounds of an instance.
    seed : int >= 0, default 0
        The seed of all random numbers.
    limit : float > 0, optional
        Seconds that a policy may take on the instances of a family, by default 10, and 600 in
        full; one that would take longer is not run there.
    keep : path, optional
        A folder in which finished pieces are kept: a later call computes only what is missing.
    progress, threads, backend, address
        As for `freshband.simulate`.

    Returns
    -------
    xarray.Dataset
        ``mean_age`` and ``regret`` over (family, policy, run), NaN where a policy was not run, a
        family has fewer instances, or regret has no oracle; ``ns_per_round`` over (family,
        policy); mean curves over (family, policy, point). `freshband.arena.summarise_arena` makes
        it a summary.

    Examples
    --------
    >>> result = compete("random,cucb", ["stationary"], runs=2, rounds=300, progress=False)
    >>> result.mean_age.dims, result.sizes["run"]
    (('family', 'policy', 'run'), 2)
    """
    named = _name_policies(every_policy() if policies is None else policies, {}, "in the arena")
    parsed = [parse_policy(text) for text in named.values()]
    chosen = _read_families(families, parsed)
    seconds = _LIMIT[full] if limit is None else limit
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ParameterError(f"limit must be a number of seconds > 0, got {shown(limit)}")
    contest = Contest(
        families=tuple(chosen),
        seed=check_seed(seed),
        full=full,
        runs=None if runs is None else whole_number("runs", runs, at_least=1),
        rounds=None if rounds is None else whole_number("rounds", rounds, at_least=1),
        limit=float(seconds),
    )
    where = open_backend(backend, workers=threads, address=address)
    names = [*(policy.name for policy in parsed), *_check_agents(agents, named)]
    texts = [None, *(_spell(policy) for policy in parsed), *map(agent_text, agents)]
    pieces = [Piece(place, text) for place in range(len(chosen)) for text in texts]
    found = dict(_play(contest, pieces, where, progress, keep))
    return collect(contest, names, texts, found)


def _check_agents(agents: Sequence[str], policies: Iterable[str]) -> Sequence[str]:
    """Return the names of agents, of which each must be known, and none that of a policy."""
    for name in agents:
        from freshband.gym import find_agent

        find_agent(name)
        if name in policies or list(agents).count(name) > 1:
            raise ParameterError(f"policies and agents must differ, got {name!r} twice")
    return agents


def _spell(policy: Policy) -> str:
    if policy.options:
        raise ParameterError(
            f"policy {policy.name!r} has options besides its text: put them into braces, such as "
            f"'{policy.name}{{key=value}}'"
        )
    if policy.needs_contributions:
        raise ParameterError(
            f"policy {policy.name!r} needs contributions, which only training can give"
        )
    return policy.text


def _read_families(
    families: Iterable[str | Family] | None, policies: Sequence[Policy]
) -> list[Family]:
    """Return the families that are asked for, by default all."""
    if families is None:
        victims = [policy.text for policy in policies if policy.text == policy.name]
        tables = [family(f"against-{text}") for text in victims if is_deterministic(text)]
        return [*FAMILIES.values(), *tables]
    given = split_policies(families) if isinstance(families, str) else list(families)
    found: dict[str, Family] = {}
    for each in given:
        for one in [each] if isinstance(each, Family) else pick_families([each]):
            if found.setdefault(one.name, one) != one:
                raise ParameterError(f"two families are called {one.name!r}: rename one of them")
    return list(found.values()) or pick_families([])


def _play(
    contest: Contest,
    pieces: Sequence[Piece],
    backend: Any,
    progress: bool,
    keep: str | os.PathLike[str] | None,
) -> Iterator[tuple[Piece, Found]]:
    """Yield what every piece gives: kept ones first, then those computed now, the largest first."""
    shelves = [_shelf(contest, each, keep) for each in contest.families]
    plans = [contest.plan(each, []) for each in contest.families]
    work = [plan.rounds * plan.runs * plan.model.n_channels for plan in plans]
    missing = []
    for piece in pieces:
        known = shelves[piece.family].load(piece.key)
        if known is None or _is_stale(known, contest, piece):
            missing.append(piece)
        else:
            yield piece, known
    missing.sort(key=lambda piece: work[piece.family], reverse=True)
    rest = sum(work[piece.family] for piece in missing)
    with _Watch(sum(work[piece.family] for piece in pieces), rest, progress) as watch:
        for place, found in backend.compute(partial(play_piece, contest), missing, contest.stop):
            piece = missing[place]
            shelves[piece.family].save(piece.key, found)
            name, policy = contest.families[piece.family].name, piece.policy or "oracle"
            watch.advance(f"{name}: {policy}", work[piece.family])
            yield piece, found


def _shelf(contest: Contest, each: Family, keep: str | os.PathLike[str] | None) -> KeptRuns:
    path = None if keep is None else file_path("keep", keep) / each.name
    made_of = {"versions": versions_of(_LIBRARIES), "sources": _fingerprint()}
    return KeptRuns(path, {**contest.config(each), **made_of})


def _is_stale(known: Found, contest: Contest, piece: Piece) -> bool:
    """Whether a policy was too slow for another limit, and may be played now."""
    if piece.policy is None or len(known["age"]):
        return False
    plan = contest.plan(contest.families[piece.family], [])
    return bool(known["trial"][0] * plan.rounds * plan.runs <= contest.limit)


class _Watch:
    """Progress with the remaining time: a bar on a terminal, elsewhere a line every half minute."""

    def __init__(self, total: int, rest: int, wanted: bool) -> None:
        self._total, self._rest, self._due = total, rest, rest
        self._bar = _progress_bar(wanted)
        self._logs = wanted and not sys.stderr.isatty()
        self._began = self._told = time.monotonic()

    def __enter__(self) -> _Watch:
        self._bar.start()
        done = 100 * (self._total - self._rest) // self._total
        self._task = self._bar.add_task("arena", total=100, completed=done)  # per cent
        return self

    def __exit__(self, *problem: object) -> None:
        self._bar.stop()

    def advance(self, name: str, work: int) -> None:
        """Note that a piece of so much work is done."""
        self._rest -= work
        self._bar.update(self._task, advance=100 * work / self._total, description=name)
        now = time.monotonic()
        if self._logs and now - self._told >= _QUIET_FOR:
            self._told = now
            left = self._rest * (now - self._began) / (self._due - self._rest)
            minutes, seconds = divmod(round(left), 60)
            share = 100 * (self._total - self._rest) // self._total
            sys.stderr.write(f"{share} % of the arena, {minutes}:{seconds:02d} left\n")
