"""Three real processes with three replicas of everything, two of which must be in sync; and what is done to them.

Numbers are poured in by an idempotent producer, in order for each key. Workers in a group carry them from one topic to
another in transactions (`tests.compat.worker`), and are not spared either. Meanwhile nodes are killed with -9, stopped
with SIGSTOP for longer than their session, or cleanly, and come back. In the end nothing that was acknowledged is
lost, each key's numbers are in order, and each number is in the output once.
"""

import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from tests.cluster.processes import ClusterProcesses
from tests.cluster.views import Seen
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.lives import GROUP_SETTINGS
from tests.compat.clients.patient import wait_until
from tests.compat.fleet import Fleet
from tests.compat.test_exactly_once import (
    GROUP,
    PARTITIONS,
    SOURCE,
    TARGET,
    check,
    stand_at_the_beginning,
)

KEYS = 30
SESSION_S = 1.5
NUMBERS_A_ROUND = 200
POUR_PAUSE_S = 0.02
"""Between ten numbers and the next, where they are poured for some time: what is poured has to be worked off too."""

SETTINGS = {
    **GROUP_SETTINGS,
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.consumer.session.timeout.ms": "1500",
    "broker.session.timeout.ms": str(round(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "200",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "replica.lag.time.max.ms": "1500",
}


class Storm:
    def __init__(self, cluster: ClusterProcesses, fleet: Fleet, rng: random.Random) -> None:
        self.cluster, self.fleet, self.rng = cluster, fleet, rng
        self.driver = ConfluentDriver(cluster.bootstrap)
        self.source = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                # A node that stands still keeps its connections. What waits for its answer is sent to the next leader
                # when this is over, and not before: librdkafka's default is a minute.
                "socket.timeout.ms": 2000,
                "request.timeout.ms": 1500,
                "log_level": 0,
            }
        )
        self.numbers = 0
        self.acknowledged: dict[int, tuple[int, int | None]] = {}
        """By number, its partition and offset; None where the answer was lost, and the next batch's told for both."""
        self.pauses: list[tuple[str, float]] = []
        """What was done, and for how long then some partition acknowledged nothing."""
        self._last_acks: dict[int, float] = {}
        self._longest = 0.0

    # -- numbers ---------------------------------------------------------------------------------------

    def pour(self, count: int) -> None:
        for number in range(self.numbers, self.numbers + count):
            self.source.produce(SOURCE, b"%d" % number, key=b"%d" % (number % KEYS), on_delivery=self._told)
            self.source.poll(0.001)
        self.numbers += count

    def _told(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        now, partition = time.monotonic(), message.partition()
        self._longest = max(self._longest, now - self._last_acks.get(partition, now))
        self._last_acks[partition] = now
        self.acknowledged[int(message.value())] = (message.partition(), message.offset())

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        self._last_acks = dict.fromkeys(range(PARTITIONS), time.monotonic())
        self._longest = 0.0
        yield
        wait_until(lambda: self.source.poll(0.05) is not None and not len(self.source))
        self.pauses.append((what, self._longest))

    # -- what is done to nodes -------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        node = self.cluster.nodes[number]
        with self.watched(f"kill -9 of node {number}"):
            node.kill()
            self.pour(NUMBERS_A_ROUND)
        node.start()

    def freeze(self, number: int) -> None:
        node = self.cluster.nodes[number]
        with self.watched(f"SIGSTOP of node {number}"):
            node.send(signal.SIGSTOP)
            until = time.monotonic() + 2 * SESSION_S
            while time.monotonic() < until:
                self.pour(10)
                self.source.poll(POUR_PAUSE_S)
        node.send(signal.SIGCONT)

    def stop(self, number: int) -> None:
        node = self.cluster.nodes[number]
        with self.watched(f"clean stop of node {number}"):
            assert node.stop() == 0, node.stderr
            self.pour(NUMBERS_A_ROUND)
        node.start()

    ACTIONS: tuple[Callable[["Storm", int], None], ...] = (kill, freeze, stop)

    def run(self, rounds: int) -> None:
        with self.fleet.commits(2):
            self.pour(NUMBERS_A_ROUND)
        for turn in range(rounds):
            act = self.ACTIONS[turn] if turn < len(self.ACTIONS) else self.rng.choice(self.ACTIONS)
            act(self, self.rng.choice(sorted(self.cluster.nodes)))
            if self.rng.random() < 0.5:
                self.fleet.slots[self.rng.choice(sorted(self.fleet.slots))].kill()
            with self.fleet.commits(1):
                self.pour(20)
                self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Until every replica is in sync again: the next blow must not hit the only one that has something."""
        wait_until(
            lambda: all(
                len(partition.isrs) == 3
                for topic in self.driver.described().values()
                for partition in topic.partitions.values()
            )
        )

    # -- the end ---------------------------------------------------------------------------------------

    def read(self, topic: str) -> dict[tuple[int, int], int]:
        """By partition and offset, everything that a reader of committed records sees."""
        found: dict[tuple[int, int], int] = {}
        consumer = self.driver.consumer(isolation_level="read_committed", enable_partition_eof=True)
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            ended: set[int] = set()
            while len(ended) < PARTITIONS:
                message = consumer.poll(SECONDS_MAX)
                assert message is not None, f"{topic} cannot be read to its end"
                if message.error() is None:
                    found[message.partition(), message.offset()] = int(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        finally:
            consumer.close()
        return found

    def check(self) -> None:
        assert self.source.flush(SECONDS_MAX) == 0
        assert len(self.acknowledged) == self.numbers
        written = self.read(SOURCE)
        for number, place in self.acknowledged.items():
            assert place[1] is None or written.get(place) == number, f"{number} was acknowledged at {place}"
        assert sorted(written.values()) == list(range(self.numbers)), "each once"
        by_key: dict[int, list[int]] = defaultdict(list)
        for place in sorted(written):
            by_key[written[place] % KEYS].append(written[place])
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
        self.wait_until_worked_off()
        self.fleet.end()
        check(self.numbers, list(self.read(TARGET).values()))

    def wait_until_worked_off(self) -> None:
        """However long it takes, as long as it goes on."""
        done, deadline = -1, 0.0
        while done < self.numbers:
            now = len(set(self.read(TARGET).values()))
            if now > done:
                done, deadline = now, time.monotonic() + SECONDS_MAX
            assert time.monotonic() < deadline, f"{done} of {self.numbers} are worked off, and there it stays"


@pytest.mark.parametrize(
    "rounds", [pytest.param(3, marks=pytest.mark.long), pytest.param(50, marks=pytest.mark.long)]
)
def test_nothing_acknowledged_is_lost_and_everything_is_done_once_whatever_happens_to_nodes(
    tmp_path: Path, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with ClusterProcesses(tmp_path, settings=SETTINGS) as cluster:
        wish = {
            "kind": "confluent",
            "assignor": "range",
            "bootstrap": cluster.bootstrap,
            "group": GROUP,
            "source": SOURCE,
            "target": TARGET,
            "session_ms": 1500,
            "heartbeat_ms": 100,
        }
        # Workers take their seeds when they start, which is whenever one has ended: not out of the storm's.
        with Fleet(random.Random(rounds), **wish) as fleet:
            storm = Storm(cluster, fleet, random.Random(rounds))
            for topic in (SOURCE, TARGET):
                Seen(cluster.bootstrap).create_topic(topic, PARTITIONS, replicas=3)
            wait_until(lambda: {SOURCE, TARGET} <= storm.driver.topics())
            stand_at_the_beginning(storm.driver)
            for name in ("one", "two"):
                fleet.start(name)
            try:
                storm.run(rounds)
                storm.check()
            except BaseException:
                print(cluster.complaints)
                raise
    with capsys.disabled():
        print()
        for what, pause_s in storm.pauses:
            print(f"  {what}: a partition acknowledged nothing for {pause_s * 1000:.0f} ms")
