"""M-Exp3 (Algorithm 1): exponential weights over sets of channels, for adversarial channels.

Every M-subset I of the N channels is a *super-arm* with weight `w_I`. There may be far too many to
list (30,045,015 for N = 30, M = 20), but all that were never played have the same weight: write
`w_I = base + excess_I`, where `excess_I = 0` for every super-arm never played. Then

    p_I = (1-γ) w_I / W + γ/C   is   uniform with probability  γ + (1-γ) C base / W,
                                     else the played super-arm I with probability ~ excess_I,

which is sampled exactly from the V super-arms played. Weights are kept as logarithms, and a Fenwick
tree of `excess` relative to a moving reference allows draws in O(log V).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
from pydantic import Field

from freshband._jit import cold, kernel
from freshband.errors import ParameterError
from freshband.parameters import Parameters
from freshband.ranking import _sort_few, draw_subset
from freshband.schedulers._super_arms import MExp3State, find_set
from freshband.schedulers.base import Matchings, Presets, _needed_horizon, register, select, update
from freshband.schedulers.counts import absorb, start_counts
from freshband.states import record

_FIXED, _ANYTIME = range(2)
_SKIP, _PROPENSITY = range(2)
_HEADROOM = 200.0  # rebuild the tree when a weight outgrows the reference by e^200


@kernel
def _total(state: Any) -> float:
    """Sum of excess relative to the reference, over all played super-arms."""
    total = 0.0
    node = state.mark[0]["played"]
    while node > 0:
        total += state.tree[node]
        node -= node & -node
    return total


@kernel
def _add(state: Any, position: int, weight: float) -> None:
    node = position + 1
    while node <= state.mark[0]["played"]:
        state.tree[node] += weight
        node += node & -node


@kernel
def _append_node(state: Any, node: int) -> None:
    """Set the tree's new last node to the sum of its range; the new weight itself is still 0."""
    total = 0.0
    child = node - 1
    while child > node - (node & -node):
        total += state.tree[child]
        child -= child & -child
    state.tree[node] = total


@kernel
def _locate(state: Any, weight: float) -> int:
    """Return the played super-arm at which the running sum of excess passes ``weight``."""
    played: int = state.mark[0]["played"]
    step = 1
    while 2 * step <= played:
        step *= 2
    node = 0
    while step > 0:
        if node + step <= played and state.tree[node + step] < weight:
            node += step
            weight -= state.tree[node]
        step >>= 1
    return min(node, played - 1)


@cold
def _rebuild_tree(state: Any) -> None:
    """Move the reference to the largest weight and recompute the sums."""
    reference = state.level[0]["base"]
    for position in range(state.mark[0]["played"]):
        reference = max(reference, state.excess[position])
    state.level[0]["reference"] = reference
    for node in range(len(state.tree)):
        state.tree[node] = 0.0
    for position in range(state.mark[0]["played"]):
        _add(state, position, math.exp(state.excess[position] - reference))


@kernel
def _log_add(a: float, b: float) -> float:
    """ln(e^a + e^b)."""
    if a < b:
        a, b = b, a
    return a + math.log1p(math.exp(b - a)) if b > -math.inf else a


@kernel
def _gamma(state: Any, t: int) -> float:
    gamma: float = state.rate[0]["gamma"]
    if state.mark[0]["gamma_rule"] == _ANYTIME:
        gamma = min(1.0, gamma / math.sqrt(t))
    return gamma


@kernel
def _base(state: Any) -> float:
    """C times the common weight, relative to the reference."""
    arms: float = state.rate[0]["arms"]
    return arms * math.exp(state.level[0]["base"] - state.level[0]["reference"])


@select.register(MExp3State)
def _select(scheduler: MExp3State, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    gamma = _gamma(scheduler, t)
    excess = _total(scheduler)
    base = _base(scheduler)
    uniform = gamma + (1.0 - gamma) * base / (base + excess)
    arm = scheduler.chosen
    if rng.random() < uniform:
        draw_subset(scheduler.deck, rng, arm)
        _sort_few(arm)
        position = scheduler.slots[find_set(scheduler.slots, scheduler.members, arm)]
    else:
        position = _locate(scheduler, rng.random() * excess)
        for j in range(len(arm)):
            arm[j] = scheduler.members[position, j]
    own = 0.0
    if position >= 0:
        own = math.exp(scheduler.excess[position] - scheduler.level[0]["reference"])
    chance = uniform / scheduler.rate[0]["arms"] + (1.0 - gamma) * own / (base + excess)
    scheduler.mark[0]["drawn"] = position
    scheduler.chance[0] = chance
    for j in range(len(arm)):
        chosen[j] = arm[j]


@update.register(MExp3State)
def _update(scheduler: MExp3State, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    absorb(scheduler.counts, t, assignment, outcome)
    reward = 0.0
    jumped = 0
    for j in range(len(assignment)):
        if assignment[j] < 0 or outcome[j] < 0:
            return -1  # without every member's outcome the super-arm's reward is unknown
        reward += outcome[j]
        jumped += overridden[j]
    if jumped > 0:
        if scheduler.mark[0]["aa_rule"] == _SKIP:
            return -1
        _replace_drawn(scheduler, assignment)
    gamma = _gamma(scheduler, t)
    estimate = reward / scheduler.rate[0]["scale"] / scheduler.chance[0]
    _reinforce(scheduler, gamma * estimate / scheduler.rate[0]["arms"])
    _share(scheduler, t)
    return -1


@kernel
def _replace_drawn(state: Any, assignment: Any) -> None:
    """Learn about the set that was played, with probability 1, instead of the one drawn."""
    for j in range(len(assignment)):
        state.chosen[j] = assignment[j]
    _sort_few(state.chosen)
    state.mark[0]["drawn"] = state.slots[find_set(state.slots, state.members, state.chosen)]
    state.chance[0] = 1.0


@kernel
def _reinforce(state: Any, gain: float) -> None:
    """Multiply the drawn super-arm's weight by e^gain."""
    if gain <= 0.0:
        return
    position = state.mark[0]["drawn"]
    if position < 0:
        position = state.mark[0]["played"]
        state.mark[0]["played"] = position + 1
        state.mark[0]["drawn"] = position
        state.slots[find_set(state.slots, state.members, state.chosen)] = position
        for j in range(len(state.chosen)):
            state.members[position, j] = state.chosen[j]
        state.excess[position] = -math.inf
        _append_node(state, position + 1)
    before = state.excess[position]
    # (base + excess) e^g - base  =  excess e^g + base (e^g - 1)
    after = _log_add(before + gain, state.level[0]["base"] + math.log(math.expm1(gain)))
    state.excess[position] = after
    reference = state.level[0]["reference"]
    if after > reference + _HEADROOM:
        _rebuild_tree(state)
    else:
        _add(state, position, math.exp(after - reference) - math.exp(before - reference))


@kernel
def _share(state: Any, t: int) -> None:
    """Exp3.S: every weight gains e α / C of the total."""
    share = state.rate[0]["share"]
    if share <= 0.0:
        return
    if state.mark[0]["share_rule"] == _ANYTIME:
        share /= t
    reference = state.level[0]["reference"]
    total = math.log(_base(state) + _total(state)) + reference
    gift = math.log(math.e * share / state.rate[0]["arms"]) + total
    state.level[0]["base"] = _log_add(state.level[0]["base"], gift)
    if state.level[0]["base"] > reference + _HEADROOM:
        _rebuild_tree(state)


@register("m-exp3")
@final
class MExp3(Parameters):
    """Exponential weights over channel sets, Algorithm 1 (M-Exp3), for arbitrary channels.

    Draws the super-arm I with `p_I = (1-γ) w_I / W + γ/C`, `C = C(N, M)`, receives
    `X = sum of X_k over I`, and sets `w_I <- w_I exp(γ X / (p_I C))`.

    Parameters
    ----------
    gamma : float in (0, 1], "paper", "auto" or "anytime", default "anytime"
        Exploration γ. ``paper`` is 0.5. ``auto`` is `min(1, sqrt(C ln C / ((e-1) T)))` and needs
        the horizon T; ``anytime`` uses the round t in place of T.
    reward_scale : {"M", "none"}, default "M"
        ``M`` divides the reward, which lies in [0, M], by M; ``none`` is the printed algorithm.
    share : float in [0, 1], "auto" or "anytime", default "anytime"
        The weight shared among all super-arms per round (Exp3.S), to follow a changing best
        set. ``auto`` is 1/T and needs the horizon; ``anytime`` is 1/t; 0 is as printed.
    mean_window : int >= 1, optional
        The number of most recent rounds in the historical means (31), which rank the chosen
        channels and guide `+aa`.
    discount : float in (0, 1) or None, default 0.99
        The factor per round by which historical means fade; None is the printed lifetime mean.
    aa_update : {"skip", "propensity"}, default "skip"
        What is learnt from a round in which `+aa` overrode the draw: nothing, or the reward of the
        set that was played, which had probability 1. ``propensity`` is exact with `+aa-sum` only.

    Notes
    -----
    Assumes nothing of the channels except that they do not react to the choice.

    **Deviations** (erratum E12). The preset ``paper`` has only (3), (4) and (7). (1) With constant
    γ = 0.5 half of all draws remain uniform, so regret is linear; the default γ falls as
    `1/sqrt(t)`. (2) The proof needs rewards in [0, 1]: the default divides by M. (3) A draw that
    `+aa` overrode is not importance-weighted with the probability of the set that was drawn. (4)
    Weights are kept as logarithms: as printed they overflow within a few thousand rounds. (5)
    Without sharing the algorithm competes with the best fixed set only, and means over the whole
    run rank channels by outdated outcomes: at 5 breakpoints (N=5, M=2, T=20000) sharing and fading
    cut the regret of the tuned algorithm by a third or more; on stationary channels they cost. (6)
    Where C is large the tuned γ is 1: all draws are uniform, and no guarantee holds. (7) Sharing
    takes its part of the total weight after the update, where Exp3.S takes it before: a difference
    of the order of γ.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("m-exp3", n_clients=20, n_channels=30, seed=0)
    >>> plan = coordinator.plan()  # one of 30,045,015 sets
    >>> len(set(plan.tolist()))
    20

    References
    ----------
    Auer, Cesa-Bianchi, Freund, Schapire, "The nonstochastic multiarmed bandit problem", SIAM J.
    Comput. 2002.
    """

    grows: ClassVar[bool] = False
    presets: ClassVar[Presets] = {
        "paper": {"gamma": "paper", "reward_scale": "none", "share": 0.0, "discount": None},
    }
    matchings: ClassVar[Matchings] = {"paper": "rotate"}

    gamma: Annotated[float, Field(gt=0, le=1)] | Literal["paper", "auto", "anytime"] = "anytime"
    reward_scale: Literal["M", "none"] = "M"
    share: Annotated[float, Field(ge=0, le=1)] | Literal["auto", "anytime"] = "anytime"
    mean_window: int | None = Field(default=None, ge=1)
    discount: float | None = Field(default=0.99, gt=0, lt=1)
    aa_update: Literal["skip", "propensity"] = "skip"

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> MExp3State:
        """Allocate the state, with no super-arm played yet."""
        n_arms = math.comb(n_channels, n_clients)
        if n_arms > 1e300:
            raise ParameterError(
                f"m-exp3 needs C(N, M) <= 1e300 channel sets, got N={n_channels}, M={n_clients}"
            )
        room = min(64, n_arms)
        return MExp3State(
            counts=start_counts(n_clients, n_channels, self.mean_window, self.discount),
            deck=np.arange(n_channels),
            members=np.zeros((room, n_clients), np.int64),
            excess=np.full(room, -np.inf),
            tree=np.zeros(room + 1),
            slots=np.full(256, -1, np.int64),
            level=record(base=0.0, reference=0.0),
            rate=record(
                gamma=self._rate(n_arms, horizon),
                share=self._shared(horizon),
                arms=float(n_arms),
                scale=float(n_clients) if self.reward_scale == "M" else 1.0,
            ),
            mark=record(
                drawn=-1,
                played=0,
                gamma_rule=_ANYTIME if self.gamma == "anytime" else _FIXED,
                share_rule=_ANYTIME if self.share == "anytime" else _FIXED,
                aa_rule=_SKIP if self.aa_update == "skip" else _PROPENSITY,
            ),
            chance=np.ones(1),
            chosen=np.zeros(n_clients, np.int64),
        )

    def refuses(self, aware: str) -> str | None:
        """Refuse ``propensity`` where single clients are overridden: no set has a known chance."""
        if aware == "per_client" and self.aa_update == "propensity":
            return (
                "aa_update='propensity' is exact with +aa-sum only: the probability of a set "
                "under +aa is unknown; use aa_update='skip'"
            )
        return None

    def _rate(self, n_arms: int, horizon: int | None) -> float:
        if self.gamma == "paper":
            return 0.5
        if self.gamma == "auto":
            rounds = _needed_horizon(horizon, "m-exp3 with gamma='auto'")
            return min(1.0, math.sqrt(n_arms * math.log(n_arms) / ((math.e - 1.0) * rounds)))
        if self.gamma == "anytime":
            return math.sqrt(n_arms * math.log(n_arms) / (math.e - 1.0))
        return float(self.gamma)

    def _shared(self, horizon: int | None) -> float:
        if self.share == "auto":
            return 1.0 / _needed_horizon(horizon, "m-exp3 with share='auto'")
        return 1.0 if self.share == "anytime" else float(self.share)
