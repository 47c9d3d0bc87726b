"""Random histories: whatever crashes and whenever, a transaction is one thing on all of its partitions."""

from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.coordinator.transactions.world import DAY_MS, TIMEOUT_MS, Client, World

from penstock.base.ids import TopicPartition

LAST_EPOCH = 2**15 - 2
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
CLIENTS = st.integers(0, 4)
FAILED_ONCE = (1016, 1050, 2013, 2022, 3003)
"""A producer was fenced by one that spoke version 1, and took its successor's end for its own."""


class Transactions(RuleBasedStateMachine):
    @initialize(level=st.sampled_from([1, 2, 2]), epochs_left=st.sampled_from([None, 0, 1, 3]))
    def begin(self, level: int, epochs_left: int | None) -> None:
        self.world = World(level, 0 if epochs_left is None else LAST_EPOCH - epochs_left)

    @rule(client=CLIENTS, goes_on=st.booleans())
    def init(self, client: int, goes_on: bool) -> None:
        self.world.init(self.world.clients[client], goes_on)

    @rule(client=CLIENTS, partition=st.sampled_from(PARTITIONS))
    def produce(self, client: int, partition: TopicPartition) -> None:
        self.world.produce(self.world.clients[client], partition)

    @rule(client=CLIENTS, commit=st.booleans())
    def end(self, client: int, commit: bool) -> None:
        self.world.end(self.world.clients[client], commit)

    @rule(client=CLIENTS)
    def kill(self, client: int) -> None:
        self.world.clients[client].stop()

    @rule(hears=st.booleans())
    def commit(self, hears: bool) -> None:
        self.world.commit(hears)

    @rule()
    def commit_all(self) -> None:
        while self.world.pending:
            self.world.commit()

    @rule()
    def fail(self) -> None:
        self.world.fail()

    @rule(number=st.integers(0, 3), names=st.frozensets(st.sampled_from(PARTITIONS)), says_so=st.booleans())
    def mark(self, number: int, names: frozenset[TopicPartition], says_so: bool) -> None:
        self.world.mark(number, names, says_so)

    @rule(number=st.integers(0, 9))
    def report_again(self, number: int) -> None:
        self.world.report_again(number)

    @rule(number=st.integers(0, 9))
    def mark_stale(self, number: int) -> None:
        self.world.mark_stale(number)

    @rule(wait_ms=st.sampled_from([0, 1, TIMEOUT_MS // 2, TIMEOUT_MS + 1, 7 * DAY_MS]))
    def tick(self, wait_ms: int) -> None:
        self.world.tick(wait_ms)

    @rule(written=st.integers(0, 3))
    def crash(self, written: int) -> None:
        self.world.crash(written)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
            self.world.check_reload()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()


TestTransactions = Transactions.TestCase


def play(seed: int, steps: int) -> World:
    """A longer life than Hypothesis would lead: mostly things go well, so that more of them happen."""
    rng = Random(seed)
    level, rivalry = rng.choice([1, 2, 2]), rng.choice([0.01, 0.1, 0.3])
    world = World(level, rng.choice([0, LAST_EPOCH - rng.randrange(4)]))

    stalled: set[Client] = set()

    def stall_or_wake() -> None:
        client = rng.choice(world.clients)
        if client not in stalled:
            stalled.add(client)
            return
        stalled.remove(client)
        if rng.random() < 0.5:
            world.end(client, rng.random() < 0.5)

    def anyone() -> Client:
        awake = [each for each in world.clients if each not in stalled] or world.clients
        busy = [each for each in awake if each.producer is not None]
        return rng.choice(busy if busy and rng.random() < 0.9 else awake)

    def work() -> None:
        client = anyone()
        rivals = [each for each in world.clients if each.transactional_id == client.transactional_id]
        is_owned = any(each.producer is not None and each not in stalled for each in rivals)
        if client.producer is None and rng.random() < (rivalry if is_owned else 0.3):
            world.init(client, rng.random() < 0.5)
        world.produce(client, rng.choice(PARTITIONS))

    often = [
        work,
        lambda: world.end(anyone(), rng.random() < 0.7),
        lambda: world.commit(rng.random() < 0.9),
        lambda: world.mark(
            rng.randrange(3), frozenset(rng.sample(PARTITIONS, rng.randint(1, 3))), rng.random() < 0.8
        ),
    ]
    rare = [
        *[stall_or_wake] * 4,
        world.fail,
        lambda: world.report_again(rng.randrange(20)),
        lambda: world.mark_stale(rng.randrange(5)),
        lambda: world.tick(rng.choice([0, 1, TIMEOUT_MS // 2, TIMEOUT_MS + 1])),
        lambda: world.crash(rng.randrange(4)),
        lambda: rng.choice(world.clients).stop(),
        lambda: world.tick(rng.choice([1, 7 * DAY_MS])),
    ]
    for _ in range(steps):
        rng.choice(often if rng.random() < 0.9 else rare)()
        world.check()
    world.check_reload()
    world.settle()
    return world


@pytest.mark.parametrize("seed", [*range(8), *FAILED_ONCE])
def test_a_long_life_comes_to_a_good_end(seed: int) -> None:
    world = play(seed, 4000)
    assert len(world.told) > 40, "hardly anything happened"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_long_lives_come_to_a_good_end(seed: int) -> None:
    play(seed, 4000)
