"""Compare the cheap contributions of clients with exact Shapley values.

Five clients with different data train on the digits over changing channels. Every five rounds the
contribution of each client is computed in several ways from the same history: with the paper's
formula (33), corrected and as printed, with each of its factors alone, with FedCE's formula, and as
the exact Shapley value of the next step. The script prints how well each ranks the clients as the
Shapley value does (Spearman's rank correlation), over several runs.

    python examples/contributions.py [RUNS]
"""

import sys

import numpy as np
from scipy.stats import spearmanr

from freshband.federated import Federation, Training
from freshband.federated.contribution import fedce_contributions
from freshband.federated.leaving_out import distances_to_rest
from freshband.federated.shapley import shapley_contributions
from freshband.statistics import standard_error

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
CLIENTS, ROUNDS = 5, 20

found: dict[str, list[float]] = {}
for run in range(RUNS):
    settings = Training(
        clients=CLIENTS,
        rounds=ROUNDS,
        run=run,
        model="mlp",
        contribution="paper",
        partition_options={"alpha": 0.3},
        val_fraction=0.3,
        eval_every=ROUNDS,
    )
    with Federation(settings) as federation:
        for record in federation:
            if record.round % 5:
                continue
            weights, valued = federation.state.weights, federation.server.valuation
            errors = valued.errors
            apart = distances_to_rest(valued.gradients, weights, "global_minus")
            misprinted = distances_to_rest(valued.gradients, weights, "literal")
            cheap = {
                "paper, corrected": apart * errors,
                "paper, as printed": misprinted * errors,
                "cosine alone": apart,
                "error alone": errors,
                "FedCE, this round": fedce_contributions(apart, errors, valued.heard),
            }
            exact = shapley_contributions(federation)
            for name, values in cheap.items():
                if np.ptp(values) > 0 and np.ptp(exact) > 0:
                    found.setdefault(name, []).append(spearmanr(values, exact).statistic)

print("rank correlation with the exact Shapley value")
for name, values in found.items():
    error = standard_error(values)
    print(f"  {name:18} {np.mean(values):+.2f} ± {error:.2f}  ({len(values)} rounds)")
