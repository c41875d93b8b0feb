"""An uplink and a client hook for a real link: three interfaces of a gateway.

The server's part decides what "delivered" means. Here an update is delivered if it arrived before
the deadline; if an interface was down for maintenance, the outcome is unknown and does not count
against the channel. The client's part switches the interface before the update is sent. Run this
file to see both parts work without a network.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import numpy as np
from flwr.app import Context, RecordDict
from numpy.typing import NDArray

from freshband import Coordinator
from freshband.flower import channel_mod

INTERFACES = ("wlan0", "wwan0", "eth1")


class GatewayUplink:
    """Updates in time are delivered; the outcome is unknown on an interface under repair."""

    n_channels = len(INTERFACES)
    waits = True  # a round also waits for overdue updates of earlier rounds
    resends = True  # and asks their clients to send again, on the channel of this round

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.under_repair: set[int] = set()

    def acknowledge(
        self, round: int, assignment: NDArray[np.int64], arrived: NDArray[np.bool_]
    ) -> Sequence[bool | None]:
        """Return True, False or None (unknown) for each client."""
        return [
            True if here else None if channel in self.under_repair else False
            for channel, here in zip(assignment.tolist(), arrived.tolist(), strict=True)
        ]


def use_interface(channel: int, context: Context, run=subprocess.run) -> None:
    """Route the next update over the interface the scheduler chose."""
    if channel < 0:
        return  # no channel this round
    server = str(context.node_config.get("server", "192.0.2.1"))
    run(["ip", "route", "replace", server, "dev", INTERFACES[channel]], check=True)


# In client_app.py: app = ClientApp(mods=[channel_mod(on_channel=use_interface)])
# In server_app.py: build_rounds(settings, grid, model, uplink=GatewayUplink(deadline=30.0))
mod = channel_mod(on_channel=use_interface)


def main() -> None:
    """Run some rounds with random outcomes in place of the network."""
    rng = np.random.default_rng(0)
    coordinator = Coordinator("bayes", n_clients=2, n_channels=3, seed=0)
    uplink = GatewayUplink(deadline=30.0)
    heard = np.zeros(3)
    for round in range(1, 301):
        uplink.under_repair = {1} if 100 <= round < 200 else set()
        assignment = coordinator.plan()
        works = rng.random(3) < (0.9, 0.7, 0.2)
        arrived = np.array([works[k] and k not in uplink.under_repair for k in assignment])
        coordinator.observe(uplink.acknowledge(round, assignment, arrived))
        heard[assignment[arrived]] += 1
    print("updates received:", dict(zip(INTERFACES, heard.astype(int).tolist(), strict=True)))
    print("rates learned:", coordinator.channel_means.round(2).tolist())
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), {})
    use_interface(0, context, run=lambda command, check: print("would run:", *command))


if __name__ == "__main__":
    main()
