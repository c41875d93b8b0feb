"""What the server should do when few updates arrive: the mean of these, or each by its own weight.

Four clients on air that changes all the time; about two are heard in a round. The mean of what
arrived (``renorm``, the paper's rule) is compared with each update by its own weight (``fixed``),
for little and much local work on alike and unlike clients. The further a client's model walks away
on its own, the more it hurts to follow a single one.

    python examples/few_heard.py [RUNS]
"""

import sys

import numpy as np

from freshband.federated import Training
from freshband.federated.comparison import compare, measure_comparison

SCHEDULERS = ("random", "bayes+priority")


def written(values: np.ndarray) -> str:
    """Return mean and standard error in percent."""
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=1) / len(values) ** 0.5:.1f}"


def main(runs: int = 4, rounds: int = 150) -> None:
    """Print the accuracy, mean over rounds, and what ``fixed`` adds to it, run by run."""
    heads = [f"`{name}` | `@fixed` adds" for name in SCHEDULERS]
    print("| clients | local steps | " + " | ".join(heads) + " |")
    print("| --- |" + " ---: |" * (1 + 2 * len(SCHEDULERS)))
    for who, alpha in (("alike, α = 10", 10.0), ("unlike, α = 0.1", 0.1)):
        for steps in (5, 20, 80):
            settings = Training(
                channels="fig3-extreme",
                model="mlp",
                clients=4,
                rounds=rounds,
                local_steps=steps,
                client_lr=0.1,
                partition_options={"alpha": alpha},
            )
            policies = [f"{name}{rule}" for name in SCHEDULERS for rule in ("", "@fixed")]
            found = measure_comparison(compare(settings, policies, runs=runs)).mean_accuracy
            cells = [
                text
                for name in SCHEDULERS
                for plain in [found.sel(policy=name).values]
                for text in (
                    written(plain),
                    written(found.sel(policy=f"{name}@fixed").values - plain),
                )
            ]
            print(f"| {who} | {steps} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
