"""Lemmas and theorems as functions: what the paper prints, and what is true.

| result | function | chapter |
| --- | --- | --- |
| Lemma 1 | `mean_age_of_share` | Ages |
| Lemma 2 | `expected_age`, `constant_age`; turns: `rotation_age` | Ages |
| Theorem 1 | `convergence_bound` | Theorem 1 |
| Theorem 2 | `adversarial_lower_bound` | Lower bounds |
| Theorem 3 | `m_exp3_bound`, `missed_needle_regret` | M-Exp3 |
| Theorem 4 | `piecewise_lower_bound`, `segments_lower_bound` | Lower bounds |
| Lemma 3, Lemma 4, Theorem 5 | `age_sum_bound`, `wrong_rounds`, `glr_cucb_bound` | GLR-CUCB |
| the cost law | `regret_terms`, `ahead_weight` | The cost law |
| any fleet | `weighted_age_bound` | More clients than channels |
| matching | `age_sorted`, `next_age_sum`, `two_client_optimum` | Matching |

Bounds are returned as a `Bound`: a value, and the conditions it requires, each true or false. All
arguments are arrays that broadcast. Several functions share these:

| parameter | symbol | meaning |
| --- | --- | --- |
| `n_clients`, `n_channels` | M, N | numbers of clients and channels, 1 <= M <= N |
| `rounds` | T | number of rounds, at least 1 |
| `n_segments` | `C_T`, S | number of segments of constant means, one more than breakpoints |
| `worst` | `μ_min` | least mean of any channel in any round, in (0, 1]; corrected variant only |
| `variant` | | ``"corrected"``, the default: as proved here; ``"literal"``: as in the paper |
"""

from freshband.theory.age import constant_age, expected_age, mean_age_of_share, rotation_age
from freshband.theory.bound import Bound
from freshband.theory.convergence import ConvergenceBound, convergence_bound
from freshband.theory.cost import age_cutoff, ahead_weight, any_policy_regret, regret_terms
from freshband.theory.exp3 import m_exp3_bound, missed_needle_regret, n_super_arms
from freshband.theory.fleet import weighted_age_bound
from freshband.theory.lower import (
    adversarial_lower_bound,
    piecewise_lower_bound,
    segments_lower_bound,
)
from freshband.theory.matching import Optimum, age_sorted, next_age_sum, two_client_optimum
from freshband.theory.restarts import age_sum_bound, glr_cucb_bound, smallest_gap, wrong_rounds

__all__ = [
    "Bound",
    "ConvergenceBound",
    "Optimum",
    "adversarial_lower_bound",
    "age_cutoff",
    "age_sorted",
    "age_sum_bound",
    "ahead_weight",
    "any_policy_regret",
    "constant_age",
    "convergence_bound",
    "expected_age",
    "glr_cucb_bound",
    "m_exp3_bound",
    "mean_age_of_share",
    "missed_needle_regret",
    "n_super_arms",
    "next_age_sum",
    "piecewise_lower_bound",
    "regret_terms",
    "rotation_age",
    "segments_lower_bound",
    "smallest_gap",
    "two_client_optimum",
    "weighted_age_bound",
    "wrong_rounds",
]
