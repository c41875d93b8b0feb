"""The page that shows paper and library side by side, written from result files.

python -m freshband.reporting.reproduction docs/reproduction > docs/reproduction.md
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from freshband.experiments.base import EXPERIMENTS, Scale, find_experiment, load_pieces
from freshband.experiments.choice import best_of, read_trials
from freshband.reporting.figures import FIGURES
from freshband.reporting.numbers import written_number

__all__ = ["reproduction_page"]

_TOP = """# Reproduction

One command reproduces each result of the paper; this page is written from the files these
commands made. A number is *reproduced* if it reaches the paper's and *exceeded* if it does so by
more than two standard errors; an ordering is reproduced if it holds by more than two standard
errors, paired run by run. Statements that are not the paper's *hold* or do not. The paper gives no
curve values beyond its text, and no number of runs.

`freshband reproduce all --scale quick` makes a smaller version of everything, with digits in
place of CIFAR, in minutes on any machine.
"""

_HEADS = dict.fromkeys(("rules", "parts"), "Beyond the paper")

# Why some verdicts of the full scale are what they are; what was measured stands in the tables.
_WHY = {
    "fig3": """**Why not two thirds of the rounds.** M of N = 1.5 M channels carry something in a
round, and means are U[0, 1] here. Channels taken at random deliver M/2 updates in a round; the best
M, if they were known, `Σ k / (N + 1)` over the largest M of k = 1 … N: 13.2 against 10 with M = 20,
2.57 against 2 with M = 4. So no scheduler hears more than 1.3 times what random scheduling hears,
and if each update were worth the same it would need 0.76 of the rounds, 0.78 with M = 4. With the
mean of what arrived, equation (7) repaired, an update more does not even move the model further,
only more steadily.

**So what makes ours fast** is not its scheduler but what it does about lost updates, chosen under
random scheduling: clients go on training while theirs waits, and a mean of recent models is handed
out. It costs almost twice the local work; see *Beyond the paper* for what this buys otherwise. On
CIFAR-100 so much work ends in overfitting: on the piecewise air the loss on the test set is least
at round 175, and by round 250 the others have caught up.

**Why curves on the extreme air are ragged**, and CIFAR-100 with the printed learner ends below the
paper's 38 %: in a quarter of the rounds a single client is heard, and the mean of what arrived
makes the model that client's. Where the air is bad at the end, so is the model, whoever schedules.
A mean of recent models forgives some such rounds, not many: in one of the five runs of CIFAR-10 a
single client is heard in each of the last seven rounds, and ours falls from 71 to 57 %.
""",
    "fig4": """**Why the printed M-Exp3 cuts nothing on moving air.** With γ = 0.5 half of its
choices are random, and its weights stand for what was good long ago. Matching gives the client in
need the channel that looks best, and on moving air looks are old: in one of the five trained runs a
client was not heard for over twenty rounds, which is half of the learner's variance.
""",
    "rules": """**What the gain costs.** `average` costs one more copy of the model and nothing
else. An eager client trains in rounds in which it would only wait: no round takes longer, but 1.8
to 1.9 times as much is trained in all. Spent otherwise, as much work gives less or the same:
`fedavg` is slower, and ends lower on the piecewise air; twice the local steps, with averaged
models, end 0.3 to 0.4 points above eager clients, in rounds in which clients compute twice as long.
So what `eager` gives is local work that nobody has to wait for, not a better use of lost updates.
`fixed` loses where ten of twenty are heard; where two of four are it takes from `average` what it
gives alone, and more.
""",
    "parts": """**With the rule, scheduling hardly shows in accuracy.** In the paper's round `bayes`
gives 1.3 to 1.7 points over the last 100 rounds; with eager clients and averaged models 0.1 to 0.3,
less than two standard errors, and GLR-CUCB 0.5. What remains is what Fig. 4 shows: no client's age
runs away.

**Where the rule fails.** In one of the five runs with M-Exp3 accuracy falls to 10 % at round 145
and the model begins anew: long walks can diverge. Replayed in single precision on a CPU,

```shell
freshband train --dataset cifar10 --channels fig3-extreme --clients 4 --rounds 250 \\
  --scheduler m-exp3:paper --matching priority --set local_rounds=4 --set served=average \\
  --set local_steps=20 --set batch_size=64 --set client_lr=0.05 --set eval_every=5 \\
  --set run=2 --device cpu --out replay
```

the updates of two eager clients in rounds 144 and 146 are not finite (`refused` in the file);
accuracy stays at 66 %. In bf16 only the first was refused: what arrived next was finite, and ruined
the model. `clip_norm` bounds what a single update can do; no figure uses it.
""",
}

_DEVIATIONS = """
## Deviations

1. The paper does not give channel means, breakpoints, step sizes, local steps, batch sizes,
   widths of the CNN or the shape of the "extremely non-stationary" air (erratum E20). Means are
   U[0.1, 0.9] in Fig. 2 and U[0, 1] in Figs. 3 and 4, breakpoints equally spaced: 5 in Fig. 2, 2
   in Figs. 3 and 4. The extreme air draws each channel's mean anew with probability 0.04 a round.
2. What training leaves open (local steps, batch, step size) was chosen once, by the accuracy of
   random scheduling alone, and is the same for all policies. A step size with which random
   scheduling learned nothing in some trial of a data set was not taken on either air. E is the
   largest that was tried; twice as many steps are better still, by two points on CIFAR-10 (see
   *What to do about lost updates*).
3. "C_T = 5" is read as five breakpoints (E14).
4. Regret in Fig. 2 is against the oracle that knows the means and takes turns (E5); the mean +
   age oracle is used where ours are compared.
5. Fig. 2(b) shows breakpoints and (c) channel sets, as the text says; the captions are swapped
   (E19).
6. The cumulative variance is `Σ V_t / M` (E18), the only reading that explains the level of
   random scheduling. The air of a run is the same for both data sets.
7. Aggregation is the weighted mean of what arrived, with equal weights (E7); weights by
   contribution (43) lose accuracy. In ours alone clients go on training while their update waits,
   for up to four rounds, and a mean of recent models is handed out (`@eager+average`): chosen by
   the accuracy of random scheduling alone, in runs that no figure shows.
8. Adaptive matching normalises by the present round and takes β = 0.9 (E8): the paper gives no β.
9. ResNet-18 has GroupNorm in place of BatchNorm, whose running statistics have no meaning for
   stale updates.
10. "Learner" is the algorithm as printed (`:paper`); "ours", where no other name stands beside it,
   is `bayes`, everywhere, and `bayes+priority@eager+average` where something is trained. Its one
   parameter and those of `glr-cucb:fresh` were chosen on airs of these kinds with other seeds;
   results hardly depend on them.
"""


def reproduction_page(folder: Path) -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    folder : Path
        With the files of ``freshband reproduce``; where both scales are there, the full one is
        shown. Pictures are expected in a folder of the same name beside the page.
    """
    parts = [_TOP]
    for name in EXPERIMENTS:
        for scale in (Scale.full, Scale.quick):
            if (folder / f"{name}-{scale.value}.json").exists():
                parts.append(_section(name, scale, folder))
                break
    if read_trials(folder):
        parts.append(_left_open(folder))
    parts.append(_DEVIATIONS)
    return "\n".join(parts)


def _section(name: str, scale: Scale, folder: Path) -> str:
    claims = json.loads((folder / f"{name}-{scale.value}.json").read_text(encoding="utf-8"))
    results = load_pieces(name, scale, folder)
    some = list(results.values())[-1]
    seconds = sum(float(result.attrs["seconds"]) for result in results.values())
    versions = ", ".join(f"{k} {v}" for k, v in json.loads(some.attrs["versions"]).items())
    made = [result.attrs for result in results.values()]
    lines = [
        f"## {_HEADS.get(name, f'Fig. {name[3:]}')}: {find_experiment(name).TITLE}",
        "",
        "```shell",
        f"freshband reproduce {name} --scale {scale.value} --out reproduction" + _place(made),
        "```",
        "",
        *(
            f"![{find_experiment(name).TITLE}]({folder.name}/{shown}-{scale.value}.png)"
            for shown in FIGURES[name]
        ),
        "",
        "| statement | paper | ours | verdict |",
        "| --- | --- | --- | --- |",
        *(_row(claim) for claim in claims),
        "",
        *([_WHY[name]] if scale is Scale.full and name in _WHY else []),
        f"Scale {scale.value}, seed 0, {len(results)} files, {seconds:,.0f} s of computing on "
        f"{_devices(made)}; freshband {some.attrs['freshband']}, {versions}.",
        "",
    ]
    return "\n".join(lines)


def _place(made: Iterable[Mapping[Any, Any]]) -> str:
    """Return the options that say where something was computed."""
    chosen = {one["precision"] for one in made if one.get("precision", "auto") != "auto"}
    return "".join(f" --device cuda --precision {precision}" for precision in sorted(chosen))


def _devices(made: Iterable[Mapping[Any, Any]]) -> str:
    names = set()
    for one in made:
        precision = one.get("precision", "auto")
        names.add(one.get("device", "cpu") + (f" in {precision}" if precision != "auto" else ""))
    return " and ".join(sorted(names))


def _left_open(folder: Path) -> str:
    """Show what was tried for the settings the paper leaves open."""
    trials = read_trials(folder)
    lines = [
        "## What the paper leaves open in training",
        "",
        "```shell",
        "freshband reproduce choice --data-dir data --out reproduction" + _place(trials),
        "```",
        "",
        "Local steps E, batch and step size η were chosen once, by the accuracy of random "
        "scheduling over the last 25 of 250 rounds, in a run that no figure shows. The best, in "
        "bold, is used for all policies; not considered are step sizes with which a trial of the "
        f"data set learned nothing. Computed on {_devices(trials)}.",
        "",
        "| data, air | E | batch | η | accuracy of random |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for trial in trials:
        best = best_of(trials, trial["dataset"], trial["air"])
        cells = [
            f"{trial['dataset']}, {trial['air']}",
            trial["local_steps"],
            trial["batch_size"],
            trial["client_lr"],
            f"{trial['accuracy']:.1%}",
        ]
        mark = "**" if best.items() <= trial.items() else ""
        lines.append("| " + " | ".join(f"{mark}{cell}{mark}" for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _row(claim: dict[str, Any]) -> str:
    ours = written_number(claim["ours"])
    if not math.isnan(claim["error"]):
        ours += f" ± {written_number(claim['error'])}"
    verdict = f"**{claim['verdict']}**" + (f": {claim['why']}" if claim["why"] else "")
    return f"| {claim['what']} | {claim['paper']} | {ours} {claim['unit']} | {verdict} |"


if __name__ == "__main__":
    sys.stdout.write(reproduction_page(Path(sys.argv[1])))
