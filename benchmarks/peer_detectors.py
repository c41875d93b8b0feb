"""Runs in the peers' environment: time other detectors, print name and microseconds."""

import sys
import time

import numpy as np

n = int(sys.argv[1])
stream = (np.random.default_rng(n).random(n) < 0.7).astype(float)

try:
    from changepoint_online import Bernoulli, Focus

    detector = Focus(Bernoulli())
    began = time.perf_counter()
    for x in stream:
        detector.update(x)
        detector.statistic()
    print("changepoint-online", (time.perf_counter() - began) / n * 1e6)
except ImportError:
    pass

try:
    import focus_cpt

    fast = focus_cpt.Detector("univariate")
    began = time.perf_counter()
    for x in stream:
        fast.update(x)
        fast.get_statistics("bernoulli")
    print("focus-cpt", (time.perf_counter() - began) / n * 1e6)
except ImportError:
    pass
