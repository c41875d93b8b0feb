"""A gateway that does not wait: answers come late, and one in five never comes."""

import asyncio
import contextlib
import random

from freshband import Coordinator


async def send(server: Coordinator, number: int, client: int, channel: int) -> None:
    """Send an update in a round, and report its outcome once it is known."""
    delivered, took = random.random() < 0.9 - 0.15 * channel, random.uniform(0.001, 0.02)
    radio = asyncio.sleep(took if random.random() < 0.8 else 60, delivered)  # yours instead
    with contextlib.suppress(TimeoutError):  # the server goes on with what it expects
        server.observe([await asyncio.wait_for(radio, 0.05)], round=number, clients=[client])


async def main(rounds: int = 400) -> None:
    """Begin a round every 5 ms, whatever is known of the last ones."""
    server = Coordinator("bayes", n_clients=3, n_channels=5)
    async with asyncio.TaskGroup() as tasks:
        for number in range(1, rounds + 1):
            for client, channel in enumerate(server.plan().tolist()):
                tasks.create_task(send(server, number, client, channel))
            await asyncio.sleep(0.005)
    print(f"{len(server.open_rounds)} rounds are open; rates {server.channel_means.round(2)}")


if __name__ == "__main__":
    asyncio.run(main())
