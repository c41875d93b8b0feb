"""What a coordinator knows after any sequence of calls is what plain Python knows."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from freshband import Coordinator, coordinator
from freshband.errors import ParameterError, SequenceError
from tests.reference.fleet import Knowledge, Transmission, clipped

OUTCOMES = st.sampled_from([True, False, None])


class Fleet(RuleBasedStateMachine):
    """A coordinator and the reference, which hear the same."""

    policy: ClassVar[str] = "cucb"
    links: ClassVar[str] = "shared"
    compiled: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        if not self.compiled:
            for name in ("plan", "observe"):
                entry = getattr(coordinator, name)
                self.patch.setattr(coordinator, name, getattr(entry, "py_func", entry))

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(
        clients=st.integers(1, 4),
        channels=st.integers(1, 4),
        cap=st.none() | st.integers(1, 3),
        weights=st.lists(st.sampled_from([1.0, 0.5, 7.0]), min_size=4, max_size=4),
        max_delay=st.sampled_from([0, 1, 3, 100]),
        silence=st.sampled_from(["random", "loss"]),
        proof=st.sampled_from(["outcome", "delivery", "none"]),
    )
    def start(
        self,
        clients: int,
        channels: int,
        cap: int | None,
        weights: list[float],
        max_delay: int,
        silence: Any,
        proof: Any,
    ) -> None:
        self.coordinator = Coordinator(
            self.policy,
            clients,
            channels,
            weights=weights[:clients],
            max_transmissions=cap,
            max_delay=max_delay,
            silence=silence,
            proof_of_life=proof,
            links=self.links,  # type: ignore[arg-type]
            client_ids=[f"c{number}" for number in range(clients)],
        )
        self.cap = min(channels, cap or channels)
        self.known = Knowledge(clients, max_delay, self.coordinator.fleet_options.proves_life)
        self.members = dict.fromkeys(range(clients), True)
        self.left: dict[int, int] = {}
        self.planned = 0
        self.named = clients

    @property
    def pending(self) -> bool:
        return self.planned > self.known.closed

    def of(self, when: int) -> list[Transmission]:
        return [each for each in self.known.sent if each.when == when]

    # ------------------------------------------------------------------------------------ rounds

    @rule(present=st.none() | st.integers(0, 255), available=st.none() | st.integers(0, 255))
    def plan(self, present: int | None, available: int | None) -> None:
        this, known, t = self.coordinator, self.known, self.planned + 1
        if self.pending:
            known.close(self.planned, {})
        oldest = t - 1 - known.max_delay
        if this.fleet_options.silence == "loss" and oldest > 0:
            known.hear(oldest, {each.client: 0 for each in known.open(oldest)})
        here = _bits(present, this.n_clients)
        usable = _bits(available, this.n_channels)
        if here is not None:
            for client in range(this.n_clients):
                if here[client] and self.members[client]:
                    known.alive[client], known.heard[client] = 1.0, t - 1
        plan = this.plan(present=here, available=usable)
        self.planned = t
        senders = np.flatnonzero(plan >= 0)
        assert len(set(plan[senders].tolist())) == len(senders) <= self.cap
        may_send = [self.members[i] and (here is None or here[i]) for i in range(this.n_clients)]
        offered = [usable is None or usable[k] for k in range(this.n_channels)]
        assert len(senders) == min(sum(may_send), sum(offered), self.cap)
        assert all(may_send[client] and offered[plan[client]] for client in senders)
        entries = this._fleet.sent.of(t)
        for client, channel, chance in entries[["client", "channel", "chance"]].tolist():
            assert plan[client] == channel
            if self.links == "shared":
                assert chance == clipped(this.channel_means[channel])
            known.sent.append(Transmission(client, t, chance))

    @precondition(lambda self: self.planned > 0)
    @rule(
        back=st.integers(0, 4),
        outcomes=st.lists(OUTCOMES, min_size=12, max_size=12),
        teaches=st.none() | st.lists(st.booleans(), min_size=12, max_size=12),
        by_client=st.booleans(),
        named=st.booleans(),
    )
    def observe(
        self, back: int, outcomes: list[Any], teaches: Any, by_client: bool, named: bool
    ) -> None:
        """Observe some round in part or whole; known outcomes may be told again, but no others."""
        this, when = self.coordinator, max(1, self.planned - back)
        told = {each.client: each.outcome for each in self.of(when) if each.outcome is not None}
        news = outcomes[: this.n_clients]
        for client, outcome in told.items():
            news[client] = None if news[client] is None else outcome == 1
        options: dict[str, Any] = {}
        if named or when < self.planned:
            options["round"] = when
        if teaches is not None:
            options["teaches"] = teaches[: this.n_clients]
        given: Any = news
        if by_client:
            order = list(range(this.n_clients))[::-1]
            options["clients"] = np.array(order)
            given = [news[client] for client in order]
            if teaches is not None:
                options["teaches"] = [options["teaches"][client] for client in order]
        over = when < self.planned - self.known.max_delay
        closes = self.pending and when == self.planned
        if over or not (closes or named or when < self.planned or self.known.open(when)):
            with pytest.raises(SequenceError):
                this.observe(given, **options)
            return
        this.observe(given, **options)
        heard = {
            each.client: 2
            if teaches is not None and not news[each.client] and not teaches[each.client]
            else int(news[each.client])
            for each in self.known.open(when)
            if news[each.client] is not None
        }
        if closes:
            self.known.close(when, heard)
        else:
            self.known.hear(when, heard)

    @rule(rounds=st.integers(2, 9), outcome=OUTCOMES)
    def go_on(self, rounds: int, outcome: bool | None) -> None:
        """Hear the same for several rounds, or nothing."""
        for _ in range(rounds):
            self.plan(None, None)
            if outcome is not None:
                self.observe(0, [outcome] * 12, None, False, False)

    @rule(ahead=st.integers(1, 3))
    def observe_the_future(self, ahead: int) -> None:
        everybody = [True] * self.coordinator.n_clients
        with pytest.raises(SequenceError, match="is not planned yet"):
            self.coordinator.observe(everybody, round=self.planned + ahead)

    @precondition(lambda self: any(each.outcome is not None for each in self.known.sent))
    @rule(which=st.integers(0, 1000))
    def contradict(self, which: int) -> None:
        """An outcome that is known cannot change, and nothing else in the call is learnt."""
        known = [each for each in self.known.sent if each.outcome is not None]
        wrong = known[-1 - which % min(len(known), 5)]
        if wrong.when < self.planned - self.known.max_delay:
            return
        news: list[bool | None] = [None] * self.coordinator.n_clients
        for each in self.known.open(wrong.when):
            news[each.client] = True
        news[wrong.client] = wrong.outcome != 1
        before = self.coordinator.to_bytes()
        with pytest.raises(ParameterError, match=f"in round {wrong.when} is known: it was"):
            self.coordinator.observe(news, round=wrong.when)
        assert self.coordinator.to_bytes() == before

    # ----------------------------------------------------------------------------------- members

    @precondition(lambda self: len(self.members) < 7)
    @rule()
    def join(self) -> None:
        free = [i for i in self.left if self.left[i] < self.known.closed - self.known.max_delay]
        number = self.coordinator.join(f"c{self.named}", weight=2.0)
        assert number == (min(free) if free else len(self.members))
        self.named += 1
        self.members[number] = True
        self.left.pop(number, None)
        self.known.join(number)

    @precondition(lambda self: sum(self.members.values()) > 0)
    @rule(which=st.integers(0, 100))
    def leave(self, which: int) -> None:
        here = [client for client, member in self.members.items() if member]
        client = here[which % len(here)]
        self.coordinator.leave(self.coordinator.client_ids[client])  # type: ignore[arg-type]
        self.members[client] = False
        self.left[client] = self.planned

    @rule(pickled=st.booleans())
    def restart(self, pickled: bool) -> None:
        before = self.coordinator.to_bytes()
        if pickled:
            self.coordinator = pickle.loads(pickle.dumps(self.coordinator))
        else:
            self.coordinator = Coordinator.from_bytes(before)
        assert self.coordinator.to_bytes() == before

    # --------------------------------------------------------------------------------- knowledge

    @invariant()
    def agrees(self) -> None:
        this, known = self.coordinator, self.known
        here = [client for client, member in self.members.items() if member]
        expected = [known.age(client) for client in here]
        np.testing.assert_allclose(this.ages[here], expected, rtol=1e-9)
        assert np.isnan(np.delete(this.ages, here)).all()
        np.testing.assert_allclose(this.alive[here], np.array(known.alive)[here], rtol=1e-6)
        assert this.round == known.closed
        assert (this.pending is not None) == self.pending
        kept = range(max(1, self.planned - known.max_delay), self.planned + 1)
        assert this.open_rounds == [when for when in kept if known.open(when)]


def _bits(number: int | None, count: int) -> list[bool] | None:
    return None if number is None else [bool(number >> place & 1) for place in range(count)]


class PlainFleet(Fleet):
    compiled = False


class OwnLinks(Fleet):
    policy, links, compiled = "bayes", "differ", False


@pytest.mark.parametrize("fleet", [Fleet, PlainFleet, OwnLinks])
def test_any_sequence_of_calls_gives_the_same_knowledge(fleet: type[Fleet]) -> None:
    examples = 60 if fleet.policy == "cucb" else 10
    run_state_machine_as_test(
        fleet, settings=settings(max_examples=examples, stateful_step_count=20, deadline=None)
    )
