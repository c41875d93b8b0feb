"""Success rates of switching channels as two schedulers estimate them, and the true ones.

python examples/bayes_filter.py [PICTURE]    draws the picture of "Noticing change"
"""

import sys

import numpy as np
from matplotlib.figure import Figure

from freshband import Coordinator
from freshband.channels import open_air

ROUNDS, CHANNELS, CLIENTS, SHOWN = 250, 6, 4, 3
POLICIES = {"bayes": "#009E73", "glr-cucb:fresh": "#D55E00"}


def main(picture: str) -> None:
    """Run both schedulers on the same channel states and draw their estimates for each channel."""
    block = open_air("fig3-extreme", rounds=ROUNDS, seed=1).block(ROUNDS)
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    panels = figure.subplots(SHOWN, 1, sharex=True, sharey=True)
    rounds = np.arange(1, ROUNDS + 1)
    for channel, axes in enumerate(panels):
        axes.step(rounds, block.means[:, channel], color="0.3", linewidth=1.2, label="truth")
        axes.set_ylabel(f"channel {channel}")
        axes.set_ylim(0, 1)
        axes.spines[["top", "right"]].set_visible(False)
    for policy, colour in POLICIES.items():
        coordinator = Coordinator(policy, n_clients=CLIENTS, n_channels=CHANNELS, seed=0)
        believed = np.zeros((ROUNDS, CHANNELS))
        for t, states in enumerate(block.states):
            believed[t] = coordinator.channel_means
            coordinator.observe(states[coordinator.plan()])
        off = np.sqrt(np.mean((believed - block.means) ** 2))
        print(f"{policy}: {off:.3f} off the true means, root mean square")
        for channel, axes in enumerate(panels):
            axes.plot(rounds, believed[:, channel], color=colour, linewidth=1.4, label=policy)
    panels[-1].set_xlabel("round")
    panels[0].set_title("mean success rate, six channels of which four are used", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(picture, dpi=200)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "bayes-filter.png")
