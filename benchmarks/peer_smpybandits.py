"""Runs in SMPyBandits' environment: one run of its GLR-UCB, prints the seconds."""

import sys
import time
import warnings

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402  # after the filter
from SMPyBandits.Policies import UCB  # noqa: E402
from SMPyBandits.Policies.GLR_UCB import (  # noqa: E402
    BernoulliGLR_IndexPolicy,
    GLR_IndexPolicy,
)

rounds, exact = int(sys.argv[1]), sys.argv[2] == "exact"
seed, segments = int(sys.argv[3]), int(sys.argv[4])
options = {"lazy_detect_change_only_x_steps": 1, "lazy_try_value_s_only_x_steps": 1}
rng = np.random.default_rng(seed)
means = rng.uniform(0.1, 0.9, (segments, 5)).repeat(-(-rounds // segments), axis=0)[:rounds]
air = rng.random((rounds, 5)) < means
kind = GLR_IndexPolicy if sys.argv[2] == "plain" else BernoulliGLR_IndexPolicy
policy = kind(5, horizon=rounds, policy=UCB, **(options if exact else {}))
policy.startGame()
began = time.perf_counter()
for row in air:
    arm = policy.choice()
    policy.getReward(arm, float(row[arm]))
print("seconds", time.perf_counter() - began)
