"""What a server knows of its clients, computed anew from the whole history after every call."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

DEATH, RETURN, HALF = 1e-3, 0.1, 0.5


@dataclass
class Transmission:
    """One update on its way: who, when, with what chance, and what became of it."""

    client: int
    when: int
    chance: float
    outcome: int | None = None  # 0 lost, 1 delivered, 2 lost for a reason that says nothing
    doubted: bool = False  # a loss that may be the silence of a dead client


@dataclass
class Knowledge:
    """Expected ages and lives of clients that send what they are told to.

    Ages need no memory: the last delivery of a client is expected anew from its transmissions, in
    the order of rounds, from the round in which it joined.
    """

    n_clients: int
    max_delay: int
    proof: str = "outcome"
    sent: list[Transmission] = field(default_factory=list)
    closed: int = 0

    def __post_init__(self) -> None:
        self.joined = [0] * self.n_clients
        self.alive = [1.0] * self.n_clients
        self.heard = [0] * self.n_clients
        self.delays = [[2.0, 1.0]] + [[1.0, 0.02] for _ in range(self.max_delay)]

    def age(self, client: int) -> float:
        """The expected age at the end of the last closed round."""
        last = float(self.joined[client])
        mine = [each for each in self.sent if each.client == client]
        for each in sorted(mine, key=lambda each: each.when):
            if self.joined[client] < each.when <= self.closed:
                unknown = each.outcome is None or each.doubted
                rate = each.chance if unknown else float(each.outcome == 1)
                last = rate * each.when + (1.0 - rate) * last
        return self.closed - last + 1.0

    def open(self, when: int) -> list[Transmission]:
        """The transmissions of a round whose outcome is unknown."""
        return [each for each in self.sent if each.when == when and each.outcome is None]

    def join(self, client: int) -> None:
        """Let a client join, or another one take its number."""
        if client == self.n_clients:
            self.n_clients += 1
            for column in (self.joined, self.alive, self.heard):
                column.append(0)
        self.joined[client] = self.heard[client] = self.closed
        self.alive[client] = 1.0

    def close(self, when: int, outcomes: dict[int, int]) -> None:
        """End a round with what is known of it by now, by client."""
        assert when == self.closed + 1
        self.closed = when
        for each in self.open(when):
            each.outcome = outcomes.get(each.client)
            self._judge(each)
        self._wait()

    def hear(self, when: int, outcomes: dict[int, int]) -> None:
        """Learn outcomes of a round that is over."""
        for each in self.open(when):
            if each.client in outcomes:
                each.outcome = outcomes[each.client]
                self._judge(each)

    def _doubt(self, client: int) -> None:
        if self.alive[client] == 1.0:
            self.alive[client] = (1.0 - DEATH) ** (self.closed - self.heard[client])

    def _weigh(self, client: int, chance: float) -> None:
        lives = self.alive[client] * chance
        self.alive[client] = max(lives / (lives + (1.0 - self.alive[client])), 1e-150)

    def _judge(self, each: Transmission) -> None:
        client, lag = each.client, self.closed - each.when
        if self.proof == "none" or each.outcome == 2:
            return
        if lag == 0:
            self.delays[0][0] += self.alive[client]
        if each.outcome is None:
            self._doubt(client)
            return
        self.delays[lag][1] += 1.0
        if self.delays[lag][0] > 1000.0:
            self.delays[lag] = [count / 2 for count in self.delays[lag]]
        if each.outcome == 1 or self.proof == "outcome":
            self.alive[client] = 1.0
            self.heard[client] = max(self.heard[client], each.when)
        elif each.when > self.heard[client]:
            self._doubt(client)
            self._weigh(client, 1.0 - each.chance)
            each.doubted = self.alive[client] < HALF

    def _wait(self) -> None:
        """Clients may die or return in the round, and those that owe an answer are doubted."""
        if self.proof == "none":
            return
        for client in range(self.n_clients):
            if self.alive[client] < 1.0:
                back = RETURN / max(self.closed - self.heard[client], 1)
                dead = 1.0 - self.alive[client]
                self.alive[client] = self.alive[client] * (1.0 - DEATH) + dead * back
        rows = self.max_delay + 1
        waiting = range(max(1, self.closed - self.max_delay), self.closed)
        for when in sorted(waiting, key=lambda when: when % rows):
            lag = self.closed - when
            for each in self.open(when):
                asked, answered = self.delays[lag - 1]
                if each.when > self.heard[each.client]:
                    self._weigh(each.client, max(1.0 - answered / asked, 0.001))
                self.delays[lag][0] += self.alive[each.client]


def clipped(chance: float) -> float:
    """No estimate is trusted to be closer than 0.05 to 0 or 1."""
    return float(np.clip(chance, 0.05, 0.95))
