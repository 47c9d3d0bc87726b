"""A producer that measures for how long each partition acknowledges nothing.

It uses Penstock's Kafka client (`penstock.client`) on its own thread: idempotent, acks=all, one record per partition
every 100 ms. Its timeouts are short, so that it measures the cluster's pauses and not its own: it drops a connection
to a silent broker after `SILENCE_MS`.

Its records are events of the history, like those of all other clients.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.producer import Delivery, Producer, ProducerSettings
from penstock.client.settings import ClientSettings, parse_servers
from penstock.sim.checkers.history import Acked, Batch, Event, ProducedRecord, Sent, Survives

NAME = "probe"
EVERY_S = 0.1
SILENCE_MS = 1_000
WAITING_MAX = 50
"""Maximum number of unacknowledged records per partition."""
GAP_S_MIN = 0.3
"""A shorter time without an acknowledgement does not count as a pause."""

ANY_PROCESS = 0
"""It is unknown which process acknowledged a record."""


class Gap(NamedTuple):
    """A time in which a partition acknowledged nothing, though records waited."""

    start_s: float
    end_s: float


class Probe:
    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: Sequence[int],
        record: Callable[[Event], None],
        failed: Callable[[str], None],
    ) -> None:
        """`record` and `failed` are called on the probe's thread."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._record = record
        self._failed = failed
        self._waiting: dict[int, deque[tuple[Batch, float]]] = {each: deque() for each in partitions}
        """Unacknowledged batches by partition, with the time of sending."""
        self._last_ack_s: dict[int, float] = {}
        self._made = dict.fromkeys(partitions, 0)
        self._batch_count = 0
        self._gaps: list[Gap] = []
        self._lock = threading.Lock()
        self._is_making = True
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="chaos-probe", daemon=True)

    # -- called on the campaign's thread ---------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Send no new records; pending ones are still delivered."""
        self._is_making = False

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not any(self._waiting.values())

    def end(self) -> None:
        self._is_over = True
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    @property
    def acked_counts(self) -> dict[int, int]:
        """Acknowledged records by partition."""
        with self._lock:
            return {each: self._made[each] - len(self._waiting[each]) for each in self._made}

    def longest_pause_s(self, since_s: float) -> float:
        """Return the longest pause of any partition, of those that ended after `since_s`."""
        now_s = time.monotonic()
        with self._lock:
            gaps = [each for each in self._gaps if each.end_s >= since_s]
            gaps += [
                Gap(self._waits_since(partition), now_s)
                for partition in self._made
                if self._waiting[partition]
            ]
        return max((each.end_s - each.start_s for each in gaps), default=0.0)

    # -- on its own thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        settings = ClientSettings(
            client_id=NAME,
            connect_timeout_ms=SILENCE_MS,
            request_timeout_ms=SILENCE_MS,
            api_timeout_ms=600_000,
            retry_backoff_ms=50,
            retry_backoff_ms_max=200,
        )
        produces = ProducerSettings(linger_ms=0, delivery_timeout_ms=1_200_000, create_topics=False)
        try:
            with Cluster(parse_servers(self._bootstrap), settings, retries_bootstrap=True) as cluster:
                producer = Producer(cluster, produces, self._delivered)
                while not self._is_over:
                    next_s = time.monotonic() + EVERY_S
                    if self._is_making:
                        self._make(producer)
                    while not self._is_over and (left_s := next_s - time.monotonic()) > 0:
                        producer.work(left_s * 1000)
        except ClientError as error:
            if not self._is_over:
                self._failed(f"its producer gave up: {error}")
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}")

    def _make(self, producer: Producer) -> None:
        for partition, waiting in self._waiting.items():
            if len(waiting) >= WAITING_MAX:
                continue
            number = self._made[partition]
            value = f"{NAME}/{partition}/{number}".encode()
            self._batch_count += 1
            batch = Batch(
                NAME,
                self._batch_count,
                TopicPartition(self._topic, partition),
                -1,
                [ProducedRecord(None, value, number)],
            )
            batch.identities.append(
                (0, 0, number)
            )  # any single identity: each record must be in the log once
            batch.sends = 1
            with self._lock:
                self._made[partition] += 1
                waiting.append((batch, time.monotonic()))
            self._record(Sent(batch))
            producer.send(self._topic, None, value, partition=partition)

    def _delivered(self, delivery: Delivery) -> None:
        partition, now_s = delivery.partition.partition, time.monotonic()
        with self._lock:
            start_s = self._waits_since(partition)
            waiting = self._waiting[partition]
            batches = [waiting.popleft()[0] for _ in range(delivery.records)]
            self._last_ack_s[partition] = now_s
            if now_s - start_s >= GAP_S_MIN:
                self._gaps.append(Gap(start_s, now_s))
        for delta, batch in enumerate(batches):
            offset = -1 if delivery.base_offset < 0 else delivery.base_offset + delta
            self._record(Acked(batch, offset, Survives.POWER_CUT, ANY_PROCESS))

    def _waits_since(self, partition: int) -> float:
        """Return since when the partition has acknowledged nothing while records waited."""
        return max(self._waiting[partition][0][1], self._last_ack_s.get(partition, 0.0))
