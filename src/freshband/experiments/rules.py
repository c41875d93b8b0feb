"""Beyond the paper: what to do about lost updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Results, judge_order, register
from freshband.experiments.pictures import Panel, Picture, Series
from freshband.experiments.training import (
    _AIRS,
    QUICK,
    Place,
    Runs,
    Trained,
    final_accuracy,
    needed_rounds,
)

__all__ = ["Rules"]

_OURS: Final = "eager+average"
_CHANGES: Final = ("fixed", "eager", "average")
_ALL: Final = tuple("+".join(some) for n in range(4) for some in combinations(_CHANGES, n))


def _ruled(policy: str, rule: str = _OURS) -> str:
    """Return a policy with a rule, by default ours."""
    return f"{policy}@{rule}" if rule else policy


def _runs(rule: str) -> Runs:
    """Return runs of random scheduling with a rule, such as "longer+average" or "recency=8"."""
    option, _, value = rule.partition("=")
    if value:
        return Runs(_ruled("random"), validation=True, option=(option, int(value)))
    kept = [part for part in rule.split("+") if part != "longer"]
    return Runs(_ruled("random", "+".join(kept)), 2 if "longer" in rule else 1, validation=True)


def _named(rule: str) -> str:
    if "=" in rule:
        return f"{_ruled('random')}, {rule},"
    runs = _runs(rule)
    return (
        f"{runs.policy}, {runs.longer} times the local steps," if runs.longer > 1 else runs.policy
    )


@register("rules")
@final
@dataclass(frozen=True)
class Rules(Trained):
    """Beyond the paper: rules for lost updates, compared under random scheduling.

    Three changes to the paper's round are tried alone and together. With ``fixed`` an update counts
    with its own weight, whichever others arrive; an ``eager`` client continues training while its
    update waits to get through; with ``average`` the server hands out a mean of its recent models.
    The best is ours. Accuracy is measured on a tenth of the training set, never on the test set, in
    runs with a seed of their own, so Figs. 3 and 4 are not biased by the choice. The two options of
    ours, ``local_rounds`` and ``recency``, are tried at half and at twice their values.

    Eager clients work almost twice as much, so the best rule is also compared with two other ways
    to spend that work: ``fedavg``, where every client trains in every round and lost updates are
    thrown away, and ``longer``, the paper's round with twice the local steps.
    """

    title = "What to do about lost updates"
    question = "Which rule for lost updates learns best, and is it worth the work it takes?"
    part = "Beyond the paper"
    order = 3
    time: ClassVar = {"quick": "minutes on a CPU", "full": "a quarter of an hour on an H200"}
    together = 7  # few runs of a small network fill no GPU
    quick: ClassVar = {
        "places": tuple(product(["digits"], _AIRS)),
        **QUICK,
        "rules": ("", "eager", "average", _OURS),
        "rivals": ("fedavg", "longer"),
        "variants": (),
    }

    places: Sequence[Place] = tuple(product(["cifar10"], _AIRS))
    rules: Sequence[str] = _ALL  # the first, "", is the paper's round
    rivals: Sequence[str] = ("fedavg", "longer", "fedavg+average", "longer+average")
    variants: Sequence[str] = ("local_rounds=2", "local_rounds=8", "recency=8", "recency=32")
    runs: Mapping[str, int] = field(default_factory=lambda: {"cifar10": 3})

    def roles(self, place: Place) -> Mapping[str, Runs]:
        """Return random scheduling with every rule and every alternative."""
        return {rule: _runs(rule) for rule in (*self.rules, *self.rivals, *self.variants)}

    def late(self, results: Results, place: Place) -> dict[str, NDArray[np.float64]]:
        """Return the final accuracy in percent, by run, of each rule and alternative."""
        found = self.measured(results, place, "accuracy")
        return {rule: final_accuracy(curves) for rule, curves in found.items()}

    def best_rule(self, results: Results, place: Place) -> str:
        """Return the rule with which random scheduling is most accurate in the end."""
        found = self.late(results, place)
        return max(self.rules, key=lambda rule: float(found[rule].mean()))

    def claims_at(self, results: Results, place: Place) -> Sequence[Claim]:
        """Compare every rule with the paper's round, and the best with the alternatives."""
        late, best = self.late(results, place), self.best_rule(results, place)
        accuracy = self.measured(results, place, "accuracy")
        trained = self.measured(results, place, "trained")
        pairs = [(rule, "") for rule in self.rules[1:]] + [(best, rival) for rival in self.rivals]
        pairs += [(_OURS, variant) for variant in self.variants]
        where, found = ", ".join(place), []
        for better, worse in pairs:
            told = worse or better  # no other claim states its cost
            work = _runs(told).longer * trained[told].mean() / trained[""].mean()
            rounds = np.mean(needed_rounds(accuracy[told], accuracy[""]))
            what = f"{where}: {_named(better)} above {_named(worse)} in the last 25 rounds"
            why = (
                f"{late[worse].mean():.1f} -> {late[better].mean():.1f} %"
                + (", best" if better == best and not worse else "")
                + f"; {told} needs {rounds:.2f} of random's rounds, with {work:.1f} times the work "
                "in each"
            )
            gain = late[better] - late[worse]
            found.append(judge_order(what, "-", gain, unit="points", why=why))
        return found

    def _picture(self, results: Results) -> Picture:
        return Picture([self._panel(results, place) for place in self.places])

    def _panel(self, results: Results, place: Place) -> Panel:
        late = self.late(results, place)
        names = [*self.rules[1:], *self.rivals, *self.variants]
        gains = np.array([late[name] - late[""] for name in names])
        rows, n_rules = np.arange(len(names)), len(self.rules) - 1
        return Panel(
            "rows",
            [
                Series("beyond the paper's round", rows[:n_rules], gains[:n_rules]),
                Series("other ways", rows[n_rules:], gains[n_rules:], colour=1),
            ],
            title=f"{', '.join(place)}: {gains.shape[1]} runs, paired, 95 % intervals",
            x_label=f"points beyond random's {late[''].mean():.1f} % in the last 25 rounds",
            ticks=list(enumerate(names)),
        )

    figures: ClassVar = {"rules-for-lost-updates": _picture}
