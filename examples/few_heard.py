"""What the server should do if few updates arrive: take their mean, or keep each update's weight.

Four clients send over channels that change all the time; about two get through per round. The mean
of the updates that arrived (``renorm``, the paper's rule) is compared with giving each update its
own weight (``fixed``), for little and much local work, and for clients with similar and with
different data. The further a client's model moves during local training, the more it hurts to
follow a single client.

    python examples/few_heard.py [RUNS]

With a file that ``freshband compare --out`` wrote, it shows instead how accurate the policies are,
over all rounds and over the last 100, and how soon they reach the final accuracy of the first
policy.

    python examples/few_heard.py FILE.nc
"""

import sys

import numpy as np

from freshband.experiments.training import needed_rounds
from freshband.federated import Training
from freshband.federated.comparison import compare, load_comparison, measure_comparison
from freshband.statistics import standard_error

SCHEDULERS = ("random", "bayes+priority")


def written(values: np.ndarray) -> str:
    """Return mean and standard error in percent."""
    return f"{100 * values.mean():.1f} ± {100 * standard_error(values):.1f}"


def main(runs: int = 4, rounds: int = 150) -> None:
    """Print the mean accuracy over rounds and what ``fixed`` adds to it, paired by run."""
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


def summarise(path: str) -> None:
    """Print a table of the policies in the file of a comparison."""
    accuracy = load_comparison(path).accuracy
    first = accuracy.isel(policy=0).values
    print("| policy | accuracy in percent, mean over rounds | over the last 100 | rounds needed |")
    print("| --- | ---: | ---: | ---: |")
    for name, curves in zip(accuracy.policy.values, accuracy.values, strict=True):
        cells = [written(np.nanmean(part, axis=1)) for part in (curves, curves[:, -100:])]
        needed = np.array(needed_rounds(curves, first))
        error = standard_error(needed)
        print(f"| `{name}` | {' | '.join(cells)} | {needed.mean():.2f} ± {error:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].endswith(".nc"):
        summarise(sys.argv[1])
    else:
        main(*(int(argument) for argument in sys.argv[1:]))
