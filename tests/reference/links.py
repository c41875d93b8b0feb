"""The mixture of forecasters of links, plainly: every beginning kept, one object each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from freshband.schedulers._link_rates import _REACH, LEVEL_VARIANCE, OFFSET_VARIANCE, SLAB

Outcome = tuple[int, int, int]  # client, channel, 1 or 0
STRENGTHS = (3.0, 12.0)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def break_even(mean: float, slab: float, base: float, own: float, sd: float, pulls: float) -> float:
    """The rate λ with λ - mean = n E[(rate - λ)+], by bisection; the rate is uniform or base."""
    top = min(own + math.sqrt(3) * sd, 1.0)

    def surplus(rate: float) -> float:
        unknown = slab * max(top - rate, 0.0) ** 2 / (4 * math.sqrt(3) * sd)
        known = (1 - slab) * max(base - rate, 0.0)
        return 2 * _REACH / pulls * (unknown + known) - (rate - mean)

    low, high = mean, max(top, mean)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if surplus(middle) > 0 else (low, middle)
    return low


class Beginning:
    """What six forecasters know about M clients and N channels since a round."""

    def __init__(self, since: int, n_channels: int, offsets: Sequence[tuple[float, float]]) -> None:
        self.since = since
        self.heard: list[Outcome] = []
        self.slab: dict[tuple[int, int], float] = {}
        self.base = [[1.0, 2.0] for _ in range(n_channels)]
        self.level = [(0.0, LEVEL_VARIANCE)] * n_channels
        self.offset = list(offsets)

    def count(self, client: int | None, channel: int) -> tuple[int, int]:
        own = [x for i, k, x in self.heard if k == channel and client in (None, i)]
        return sum(own), len(own)

    def beliefs(self, client: int, channel: int) -> list[tuple[float, float, float, float, float]]:
        """By forecaster: probability that the link differs, base, mean if so, sd and pulls."""
        good, n = self.count(client, channel)
        all_good, all_n = self.count(None, channel)
        shared = (1 + all_good) / (2 + all_n)
        counted = [(1.0 + all_good, 2.0 + all_n), (1.0 + good, 2.0 + n), (1.0 + good, 2.0 + n)]
        counted += [(s * shared + good, s + n) for s in STRENGTHS]
        rows = []
        for a, b in counted:
            sd = math.sqrt(a / b * (1 - a / b) / (b + 1))
            rows.append((1.0, 0.0, a / b, sd, b))
        a, b = self.base[channel]
        rows[2] = (self.slab.get((client, channel), SLAB), a / b, *rows[2][2:])
        (level, of_level), (offset, of_offset) = self.level[channel], self.offset[client]
        variance = of_level + of_offset
        rate = _logistic((level + offset) / math.sqrt(1 + math.pi / 8 * variance))
        slope = rate * (1 - rate)
        around = min(slope**2 * variance, slope / 3)
        rows.insert(3, (1.0, 0.0, rate, math.sqrt(around), slope / around - 1))
        return rows

    def means(self, client: int, channel: int) -> list[float]:
        return [q * own + (1 - q) * b for q, b, own, _, _ in self.beliefs(client, channel)]

    def hear(self, outcome: Outcome) -> None:
        client, channel, x = outcome
        slab, base, own, _, _ = self.beliefs(client, channel)[2]
        differs = slab * (own if x else 1 - own)
        same = (1 - slab) * (base if x else 1 - base)
        slab = differs / (differs + same)
        self.slab[client, channel] = slab
        self.base[channel][0] += (1 - slab) * x
        self.base[channel][1] += 1 - slab
        (level, of_level), (offset, of_offset) = self.level[channel], self.offset[client]
        rate = _logistic(level + offset)
        noise = 1 / (rate * (1 - rate)) + of_level + of_offset  # innovation variance of the logit
        step = (x - rate) / (rate * (1 - rate)) / noise
        self.level[channel] = (level + of_level * step, of_level - of_level**2 / noise)
        self.offset[client] = (offset + of_offset * step, of_offset - of_offset**2 / noise)
        self.heard.append(outcome)


class Mixture:
    """Forecasters times hazards, each a filter over beginnings."""

    def __init__(self, m: int, n: int, hazards: Sequence[float], forget: float) -> None:
        self.size, self.hazards, self.forget = (m, n), hazards, forget
        self.beginnings = [Beginning(0, n, [(0.0, OFFSET_VARIANCE)] * m)]
        ways = 4 + len(STRENGTHS)
        self.filters = [(way, h) for way in range(ways) for h in range(len(hazards))]
        prior = [min(0.01 / hazard, 1.0) ** 2 for hazard in hazards]
        self.trust = {(way, h): prior[h] / sum(prior) / ways for way, h in self.filters}
        self.weight = {each: [1.0] for each in self.filters}

    def _learn(self, outcomes: Sequence[Outcome], when: int, forget: float) -> None:
        like = {each: [1.0] * len(self.beginnings) for each in self.filters}
        for k, beginning in enumerate(self.beginnings):
            for client, channel, x in outcomes:
                if beginning.since <= when:
                    rates = beginning.means(client, channel)
                    for way, h in self.filters:
                        like[way, h][k] *= 2 * (rates[way] if x else 1 - rates[way])
                    beginning.hear((client, channel, x))
        for each, weights in self.weight.items():
            joint = [w * p for w, p in zip(weights, like[each], strict=True)]
            self.trust[each] *= sum(joint)
            self.weight[each] = [w / sum(joint) for w in joint]
        total = sum(self.trust.values())
        for each in self.filters:
            even = forget / len(self.filters)
            self.trust[each] = (1 - forget) * self.trust[each] / total + even

    def _begin(self, since: int) -> None:
        shares = self.shares()
        total = sum(shares[3])
        offsets = []
        for client in range(self.size[0]):
            pairs = [each.offset[client] for each in self.beginnings]
            mean = sum(s * p[0] for s, p in zip(shares[3], pairs, strict=True)) / total
            variance = sum(s * p[1] for s, p in zip(shares[3], pairs, strict=True)) / total
            offsets.append((mean, variance + 0.2))
        self.beginnings.append(Beginning(since, self.size[1], offsets))
        for weights in self.weight.values():
            weights.append(0.0)

    def hear(self, t: int, outcomes: Sequence[Outcome]) -> None:
        """A round with its known outcomes, then a switch with the probability of each hazard."""
        self._learn(outcomes, t, self.forget)
        if outcomes:
            self._begin(t + 1)
        for (_, h), weights in self.weight.items():
            weights[:] = [w * (1 - self.hazards[h]) for w in weights]
            weights[-1] += self.hazards[h]

    def hear_late(self, t: int, when: int, outcome: Outcome) -> None:
        """An outcome of an earlier round."""
        self._learn([outcome], when, 1e-9)
        if self.beginnings[-1].since <= when:
            self._begin(t + 1)

    def shares(self) -> list[list[float]]:
        """The weight of each forecaster and beginning."""
        rows = [[0.0] * len(self.beginnings) for _ in range(4 + len(STRENGTHS))]
        for (way, h), weights in self.weight.items():
            for k, w in enumerate(weights):
                rows[way][k] += self.trust[way, h] * w
        return rows

    def estimate(self, client: int, channel: int) -> tuple[float, float]:
        """Mean and gain of a link."""
        shares = self.shares()
        most = max(map(max, shares))
        used = mean = gain = 0.0
        for way, row in enumerate(shares):
            for share, beginning in zip(row, self.beginnings, strict=True):
                if share > 1e-3 * most:
                    q, base, own, sd, pulls = beginning.beliefs(client, channel)[way]
                    rate = q * own + (1 - q) * base
                    used += share
                    mean += share * rate
                    gain += share * (break_even(rate, q, base, own, sd, pulls) - rate)
        return mean / used, gain / used
