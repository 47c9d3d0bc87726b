"""Exactly once: workers read numbers, write them on, commit both in one transaction, and are killed, as is the broker.

In the end each number is in the output once, under `read_committed`. Kills are aimed: a man in the middle sees EndTxn
go by and kills the worker, or the broker, at that moment, and a worker is held inside of a revocation while it, or the
broker, is killed. What the broker had written when it died is looked up on its disk, so that it is known that a kill
landed between a transaction's decision and its markers.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from tests.compat.between import Between, Key, Moment
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.lives import GROUP_SETTINGS, Lives, kafka_lives, penstock_lives
from tests.compat.clients.patient import wait_until
from tests.compat.fleet import Fleet

from penstock.coordinator.transactions.schema import decode_key, decode_value
from penstock.coordinator.transactions.state import State
from penstock.records import CorruptBatch, iter_batches

SOURCE, TARGET, PARTITIONS = "numbers", "written-on", 6
GROUP = "workers"
NUMBERS_A_ROUND = 60
TRIES_MAX = 25
"""To hit a moment: that between a decision and its markers is a few milliseconds long."""

WATCH_S_MAX = 0.5
"""How long a decision is waited for that does not come."""

REVOCATION_S_MAX = 5.0
"""After so long another attempt is made; it takes a tenth of a second when it comes."""

SETTINGS = {**GROUP_SETTINGS, "group.consumer.session.timeout.ms": "1500"}


Act = Callable[[Moment, threading.Event], None]
"""What is done at a moment; it sets the event when it is done."""


class Inexact(AssertionError):
    """The output is not the input."""


class Mill:
    """The topics, the workers between them, and what is done to them."""

    def __init__(self, lives: Lives, data: Path, between: Between, fleet: Fleet, rng: random.Random) -> None:
        self.lives, self.data, self.between, self.fleet, self.rng = lives, data, between, fleet, rng
        self.driver = ConfluentDriver(between.bootstrap)
        self.source = Producer(
            {
                "bootstrap.servers": between.bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,  # it would tell of every connection that breaks
            }
        )
        self.numbers = 0
        self.ends_cut = 0
        """Transactions that a killed broker had decided to end, and had not ended."""
        self.revocations_cut = 0

    def begin(self) -> None:
        """Two workers, and a group that stands at the beginning of everything: who starts there again was misled."""
        wait_until(lambda: {SOURCE, TARGET} <= self.driver.topics())
        stand_at_the_beginning(self.driver)
        for name in ("one", "two"):
            self.fleet.start(name)

    def pour(self, count: int = NUMBERS_A_ROUND) -> None:
        """More numbers to work on. They arrive by themselves, in this life of the broker or the next."""
        for number in range(self.numbers, self.numbers + count):
            self.source.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
        self.numbers += count

    def restart_broker(self) -> None:
        self.lives.kill()
        self.lives.start()

    # -- rounds ----------------------------------------------------------------------------------------

    def kill_a_worker_in_end_txn(self) -> None:
        """Its request is on its way: it arrives or not, and nobody hears the answer."""
        arrives = self.rng.random() < 0.5
        with self.rule_once(Key.END_TXN, is_answer=False, act=self.kill_client, passes=arrives):
            self.pour()

    def kill_a_worker_before_the_answer(self) -> None:
        """The broker has ended the transaction; the worker never hears of it."""
        with self.rule_once(Key.END_TXN, is_answer=True, act=self.kill_client, passes=False):
            self.pour()

    def kill_the_broker_in_end_txn(self) -> None:
        """Until it has left a transaction that was decided and not ended."""
        for _ in range(TRIES_MAX):
            with self.rule_once(Key.END_TXN, is_answer=False, act=self.kill_broker_at_decision, passes=True):
                self.pour(20)
            cut = prepared_on_disk(self.data)
            self.lives.start()
            self.ends_cut += cut
            if cut:
                return
        raise AssertionError(f"no kill of {TRIES_MAX} fell between a decision and its end")

    def kill_a_worker_in_its_revocation(self) -> None:
        with self.revocation() as name:
            self.fleet.slots[name].kill()
            self.revocations_cut += 1

    def kill_the_broker_in_a_revocation(self) -> None:
        with self.revocation():
            self.restart_broker()
            self.revocations_cut += 1

    def kill_anybody_anywhere(self) -> None:
        with self.fleet.commits(self.rng.randrange(1, 5)):
            self.pour()
        if self.rng.random() < 0.5:
            self.restart_broker()
        else:
            self.fleet.slots[self.rng.choice(sorted(self.fleet.slots))].kill()

    ROUNDS: tuple[Callable[["Mill"], None], ...] = (
        kill_a_worker_in_end_txn,
        kill_the_broker_in_end_txn,
        kill_a_worker_in_its_revocation,
        kill_the_broker_in_a_revocation,
        kill_a_worker_before_the_answer,
        kill_anybody_anywhere,
    )

    def run(self, rounds: int) -> None:
        with self.fleet.commits(2):
            self.pour()
        for number in range(rounds):
            act = self.ROUNDS[number] if number < len(self.ROUNDS) else self.rng.choice(self.ROUNDS)
            act(self)
            with self.fleet.commits(1):
                self.pour(10)

    # -- moments ---------------------------------------------------------------------------------------

    def kill_client(self, moment: Moment, done: threading.Event) -> None:
        self.fleet.slots[moment.client].kill()
        done.set()

    def kill_broker_at_decision(self, _: Moment, done: threading.Event) -> None:
        """When the coordinator's log grows, which is when it has decided. A thread looks: the request must go on."""
        before = coordinator_bytes(self.data)

        def watch() -> None:
            deadline = time.monotonic() + WATCH_S_MAX
            while coordinator_bytes(self.data) == before and time.monotonic() < deadline:
                pass
            self.lives.kill()
            done.set()

        threading.Thread(target=watch).start()

    @contextmanager
    def rule_once(self, key: Key, *, is_answer: bool, act: Act, passes: bool) -> Iterator[None]:
        """Do something the next time that a worker says this or is told this; wait until it was done."""
        done = threading.Event()

        def rule(moment: Moment) -> bool:
            if moment.key != key or moment.is_answer != is_answer or moment.client not in self.fleet.slots:
                return True
            self.between.rule = None
            act(moment, done)
            return passes

        self.between.rule = rule
        try:
            yield
            assert done.wait(SECONDS_MAX), f"no worker came to {key.name}"
        finally:
            self.between.rule = None

    @contextmanager
    def revocation(self) -> Iterator[str]:
        """A worker joins, so that others must let go of something; the first that does is held there."""
        fleet = self.fleet

        def revoking() -> list[str]:
            return [slot.name for slot in fleet.slots.values() if slot.is_revoking]

        for _ in range(TRIES_MAX):
            fleet.wait(
                lambda: (
                    sum(len(slot.owned) for slot in fleet.slots.values()) == PARTITIONS
                    and all(slot.owned for slot in fleet.slots.values())
                ),
                "a share for each worker",
            )
            fleet.tell("hold")
            guest = fleet.start("guest")
            self.pour()
            try:
                # A worker may have been out already, and the newcomer has got what was its share.
                if fleet.comes_to(lambda: bool(revoking()), REVOCATION_S_MAX):
                    yield revoking()[0]
                    return
            finally:
                fleet.tell("go")
                guest.end()
                del fleet.slots["guest"]
        raise AssertionError(f"nobody had to let go of anything in {TRIES_MAX} attempts")

    # -- the end ---------------------------------------------------------------------------------------

    def output(self) -> list[int]:
        """Everything that a reader of committed records sees, to the end of each partition."""
        ends = {number: self.driver.watermarks(TARGET, number)[1] for number in range(PARTITIONS)}
        found: list[int] = []
        consumer = self.driver.consumer(isolation_level="read_committed", enable_partition_eof=True)
        try:
            consumer.assign([TopicPartition(TARGET, number, 0) for number in ends])
            ended: set[int] = set()
            while ended != set(ends):
                message = consumer.poll(SECONDS_MAX)
                assert message is not None, "the output cannot be read to its end"
                if message.error() is None:
                    found.append(int(message.value()))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
        finally:
            consumer.close()
        return found

    def finish(self) -> list[int]:
        """Let the workers come to the end of the input, end them, and return the output."""
        assert self.source.flush(SECONDS_MAX) == 0
        wait_until(lambda: len(set(self.output())) >= self.numbers)
        self.fleet.end()
        return self.output()


def stand_at_the_beginning(driver: ConfluentDriver) -> None:
    """Have the group begin with the first number of each partition."""
    starts = [TopicPartition(SOURCE, number, 0) for number in range(PARTITIONS)]
    consumer = driver.consumer(group_id=GROUP)
    try:
        for place in consumer.commit(offsets=starts, asynchronous=False):
            assert place.error is None, place.error
    finally:
        consumer.close()


def check(numbers: int, output: list[int]) -> None:
    counts = Counter(output)
    doubled = [number for number, count in counts.items() if count > 1]
    lost = [number for number in range(numbers) if number not in counts]
    if doubled or lost or sum(output) != sum(range(numbers)):
        raise Inexact(
            f"of {numbers} numbers {len(doubled)} are doubled ({doubled[:5]}) and {len(lost)} lost ({lost[:5]})"
        )


def coordinator_bytes(data: Path) -> int:
    return sum(os.stat(path).st_size for path in data.glob("**/__transaction_state-*/*.log"))


def prepared_on_disk(data: Path) -> int:
    """How many transactions are decided and not ended, by the log of the coordinator."""
    latest: dict[str, int] = {}
    for path in sorted(data.glob("**/__transaction_state-*/*.log")):
        try:
            for batch in iter_batches(path.read_bytes()):
                for record in batch.records():
                    name = decode_key(record.key)
                    latest[name] = (
                        State.DEAD if record.value is None else decode_value(record.value).transaction_status
                    )
        except CorruptBatch:
            pass  # the end of a file that was being written
    return sum(State(state).is_prepared for state in latest.values())


@contextmanager
def milling(
    kind: str,
    assignor: str,
    tmp_path: Path,
    seed: int,
    request: pytest.FixtureRequest,
    server: str = "penstock",
) -> Iterator[Mill]:
    rng = random.Random(seed)
    data = tmp_path / "data"
    with Between(broker_port=0) as between:
        settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{between.bootstrap}"}
        running = (
            kafka_lives(request.getfixturevalue("kafka"), data, settings)
            if server == "kafka"
            else penstock_lives(data, settings)
        )
        with running as lives:
            between.broker_port = lives.port
            wish = {
                "kind": kind,
                "assignor": assignor,
                "bootstrap": between.bootstrap,
                "group": GROUP,
                "source": SOURCE,
                "target": TARGET,
                "session_ms": 1500,
                "heartbeat_ms": 100,
            }
            with Fleet(rng, **wish) as fleet:
                mill = Mill(lives, data, between, fleet, rng)
                for topic in (SOURCE, TARGET):
                    mill.driver.create_topic(topic, PARTITIONS)
                mill.begin()
                yield mill


KINDS = [
    pytest.param("confluent", "range", id="confluent"),
    pytest.param("confluent", "consumer", id="confluent-consumer", marks=pytest.mark.long),
    pytest.param("aiokafka", "range", id="aiokafka", marks=pytest.mark.long),
]


@pytest.mark.parametrize(
    ("server", "rounds"),
    [
        ("penstock", 3),
        pytest.param("penstock", 100, marks=pytest.mark.long),
        pytest.param("kafka", 5, marks=[pytest.mark.kafka, pytest.mark.long]),
    ],
)
@pytest.mark.parametrize(("kind", "assignor"), KINDS)
def test_every_number_is_written_once_whoever_is_killed(
    tmp_path: Path, kind: str, assignor: str, server: str, rounds: int, request: pytest.FixtureRequest
) -> None:
    with milling(kind, assignor, tmp_path, rounds, request, server) as mill:
        mill.run(rounds)
        output = mill.finish()
        check(mill.numbers, output)
        assert mill.ends_cut > 0
        assert mill.revocations_cut > 0
        assert sum(slot.lives for slot in mill.fleet.slots.values()) > 2


@pytest.mark.long
def test_without_transactions_the_same_work_doubles_numbers(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What the test above would find: a worker dies after it has written and before it has committed."""
    with milling("plain", "range", tmp_path, 1, request) as mill:
        with mill.fleet.commits(2):
            mill.pour()
        with mill.rule_once(Key.OFFSET_COMMIT, is_answer=False, act=mill.kill_client, passes=False):
            mill.pour()
        with pytest.raises(Inexact, match="are doubled"):
            check(mill.numbers, mill.finish())
