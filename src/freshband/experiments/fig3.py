"""Fig. 3: test accuracy over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Results, judge, judge_order, register
from freshband.experiments.pictures import Picture
from freshband.experiments.rules import _ruled
from freshband.experiments.training import (
    _AIRS,
    QUICK,
    Place,
    Runs,
    Trained,
    accuracy_within,
    final_accuracy,
    gain_at_equal,
    needed_rounds,
)
from freshband.experiments.verdicts import interval

__all__ = ["Fig3"]

_SCHEDULER: Final = "bayes+priority"  # our fastest learner, with the paper's matching
_LEARNERS: Final = {"piecewise": "glr-cucb:paper", "extreme": "m-exp3:paper"}
_PRINTED: Final = "learner, everything as printed"
_CORRECTED: Final = "learner, matching corrected"
_RULED: Final = "random with our rule"
_JUDGED: Final = (_PRINTED, _CORRECTED, "ours")
_PAPER: Final = {  # final accuracy of adaptive matching, in percent
    ("cifar10", "piecewise"): 55.0,
    ("cifar100", "piecewise"): 39.0,
    ("cifar10", "extreme"): 58.0,
    ("cifar100", "extreme"): 38.0,
}

_Curves = Mapping[str, NDArray[np.float64]]


@register("fig3")
@final
@dataclass(frozen=True)
class Fig3(Trained):
    """Fig. 3: test accuracy over rounds: two data sets, two kinds of channels, five policies.

    CIFAR-10 with the eight-layer CNN and CIFAR-100 with ResNet-18, Dirichlet 0.5;
    piecewise channels with N = 30, M = 20 and GLR-CUCB, extremely non-stationary ones with N = 6,
    M = 4 and M-Exp3. The learner appears with everything as printed, weights (43) included, and
    with corrected matching and equal weights. Ours is `bayes` with the best rule of `rules`. It
    differs from random scheduling in two ways, which are judged apart: the same rule under random
    scheduling shows the rule's part, and the rest is scheduling's.

    The final accuracy is the mean over the last 25 rounds. Beside it stands what a policy reaches
    with the local work, and with the uploads, that random scheduling takes in all rounds.

    **Deviations.** What the paper leaves open (E20) was chosen by the accuracy of random
    scheduling alone: see `freshband.experiments._choice`. The scale ``quick`` trains on the
    digits.
    """

    title = "Accuracy over rounds"
    question = "How accurate are models, and how fast, with scheduling and with ours?"
    part = "Fig. 3"
    order = 1
    time: ClassVar = {"quick": "minutes on a CPU", "full": "an hour and three quarters on an H200"}
    quick: ClassVar = {"places": tuple(product(["digits"], _AIRS)), **QUICK}

    def roles(self, place: Place) -> Mapping[str, Runs]:
        """Return the five policies."""
        learner = _LEARNERS[place[1]]
        return {
            "random": Runs("random"),
            _PRINTED: Runs(f"{learner}+priority:paper@paper"),
            _CORRECTED: Runs(f"{learner}+priority"),
            _RULED: Runs(_ruled("random")),
            "ours": Runs(_ruled(_SCHEDULER)),
        }

    def claims_at(self, results: Results, place: Place) -> Sequence[Claim]:
        """Judge accuracies, then what scheduling and the rule give."""
        accuracy = self.measured(results, place, "accuracy")
        spent = {name: self.measured(results, place, name) for name in ("trained", "n_delivered")}
        final = {role: final_accuracy(values) for role, values in accuracy.items()}
        where, paper = ", ".join(place), _PAPER.get(place)
        found = []
        for role in _JUDGED if paper is not None else ():
            what, why = f"{where}: {role}: final accuracy", _told(role, accuracy, spent)
            number, random = f"{paper:g} %", final["random"]
            found.append(
                judge(what, number, final[role], at_least=paper, random=random, unit="%", why=why)
            )
        pairs = [(role, "random", "higher", role) for role in (_PRINTED, _CORRECTED)]
        pairs += [("ours", _RULED, "higher", "scheduling's part of ours")]
        pairs += [(_RULED, "random", "-", "the rule's part of ours")]
        heard = {role: float(values.mean()) for role, values in spent["n_delivered"].items()}
        for better, worse, said, name in pairs:
            what = f"{where}: {name}: final accuracy beyond that of {worse}"
            same = gain_at_equal(accuracy, spent["trained"], better, worse)
            why = f"{final[worse].mean():.1f} -> {final[better].mean():.1f} %; "
            why += f"at equal local work {interval(same)} points"
            gain = final[better] - final[worse]
            found.append(judge_order(what, said, gain, unit="points", why=why))
            what = f"{where}: {name}: rounds to the final accuracy of {worse}, over its own"
            needed = needed_rounds(accuracy[better], accuracy[worse])
            why = f"{heard[worse]:.1f} against {heard[better]:.1f} uploads per round"
            said, most = ("2/3", 2 / 3) if said != "-" else ("-", 1.0)
            found.append(judge(what, said, needed, at_most=most, unit="ratio", why=why))
        return found

    def _over_rounds(self, results: Results) -> Picture:
        return self.draw_curves(results, "accuracy")

    def _over_work(self, results: Results) -> Picture:
        return self.draw_curves(results, "accuracy", along="trained")

    def _over_uploads(self, results: Results) -> Picture:
        return self.draw_curves(results, "accuracy", along="n_delivered")

    figures: ClassVar = {
        "accuracy": _over_rounds,
        "accuracy-by-work": _over_work,
        "accuracy-by-uploads": _over_uploads,
    }


def _told(role: str, accuracy: _Curves, spent: Mapping[str, _Curves]) -> str:
    """Return random's final accuracy, and what a policy reaches with random's work and uploads."""
    within = [
        accuracy_within(accuracy[role], each[role], each["random"].sum(axis=1)).mean()
        for each in spent.values()
    ]
    random = final_accuracy(accuracy["random"]).mean()
    work, uploads = within
    return (
        f"random {random:.1f} %; with random's local work {work:.1f}, its uploads {uploads:.1f} %"
    )
