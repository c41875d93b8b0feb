"""A first look: a minute from nothing to a comparison, a plot and a coordinator of your own."""

from __future__ import annotations

import numpy as np

import freshband
from freshband.reporting.curves import draw_curves, save_figure

# 1. Compare schedulers. Two clients share five channels whose success rates change five times; all
# policies meet the same channels in every run.
result = freshband.simulate(
    "piecewise",
    ["random", "glr-cucb", "bayes"],
    clients=2,
    rounds=5_000,
    runs=10,
    channel_options={"n_channels": 5, "n_breakpoints": 5},
    progress=False,
)
print(result[["regret", "mean_age"]].mean("run").to_dataframe().round(2))

# 2. Draw how much older the updates are than those of an oracle that knows the channels.
save_figure(draw_curves(result), "quickstart.png")

# 3. Embed the best of them: a coordinator plans rounds and learns from acknowledgements.
coordinator = freshband.Coordinator("bayes", n_clients=2, n_channels=5, seed=0)
rates = np.array([0.2, 0.9, 0.4, 0.8, 0.1])  # unknown to it
radio = np.random.default_rng(0)
for t in range(400):
    if t == 200:
        rates = rates[::-1]  # the channels change
    channels = coordinator.plan()
    changed = coordinator.observe(radio.random(2) < rates[channels])
    if changed is not None:
        print(f"round {t + 1}: channel {changed} has changed")
print("plan:", coordinator.plan(), "rates:", coordinator.channel_means.round(2))
