"""Long-polls the ends of partitions for new records.

Spark asks a stream for new offsets again as soon as there are none: 60 times a second, if the answer is immediate. So
the driver long-polls: one Fetch to each leader, at the ends of its
partitions, which is answered with the first new record or when its time is over. What it brings is thrown away; where
the partitions end now is asked afterwards.

The connections are its own, because a broker answers one connection's requests in order: behind a Fetch
that waits, other questions would wait as well. A Fetch that was not waited for to its end stays on its way, and the
next wait takes it up.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from penstock.base.ids import Offset, TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.connection import Call
from penstock.client.errors import NETWORK_ERRORS, ClientError
from penstock.client.network import Link
from penstock.spark.reading.fetch_request import fetch_request
from penstock.wire.fetch_client import FetchResponse

FETCH_BYTES_MAX: Final = 1
"""The first batch comes whole whatever the limit; more is not wanted."""

PARTITIONS_MAX: Final = 1_000
"""Of one Fetch. With more than that something is always new."""


class Tail:
    def __init__(self, cluster: Cluster, isolation_level: int) -> None:
        self._cluster = cluster
        self._isolation_level = isolation_level
        self._flights: dict[int, tuple[Link, Call[FetchResponse], float]] = {}
        """By leader: the Fetch on its way, and when it is late."""

    def close(self) -> None:
        self._cluster.close()

    def wait(self, ends: Mapping[TopicPartition, Offset], wait_ms: int) -> None:
        """Return when there may be records beyond the ends, or when the time is over. Never fails."""
        clock = self._cluster.clock
        deadline_ms = clock.now_ms() + wait_ms
        try:
            self._dispatch(ends, wait_ms)
            while (left_ms := deadline_ms - clock.now_ms()) > 0 and self._flights:
                if self._land(left_ms):
                    return
        except ClientError:  # the next request for the offsets raises it
            self._flights.clear()
            self._cluster.close()
        # Nobody to wait at, or an answer that says nothing: time passes all the same, or this would spin.
        clock.sleep_ms(max(0.0, deadline_ms - clock.now_ms()))

    def _dispatch(self, ends: Mapping[TopicPartition, Offset], wait_ms: int) -> None:
        known = self._cluster.info.topics
        if any(each.topic not in known or self._cluster.leader(each) is None for each in ends):
            self._cluster.refresh({each.topic for each in ends}, timeout_ms=wait_ms)
        by_leader: dict[int, dict[TopicPartition, Offset]] = {}
        for partition, offset in ends.items():
            leader = self._cluster.leader(partition)
            if leader is not None and leader.leader not in self._flights:
                asked = by_leader.setdefault(leader.leader, {})
                if len(asked) < PARTITIONS_MAX:
                    asked[partition] = offset
        now_ms = self._cluster.clock.now_ms()
        for node_id, asked in by_leader.items():
            link = self._cluster.link(node_id)
            request = fetch_request(
                self._cluster,
                asked,
                wait_ms_max=wait_ms,
                bytes_max=FETCH_BYTES_MAX,
                isolation_level=self._isolation_level,
            )
            late_ms = now_ms + wait_ms + self._cluster.settings.request_timeout_ms
            self._flights[node_id] = (link, link.start(request), late_ms)

    def _land(self, wait_ms: float) -> bool:
        """Take what has come; whether any of it has records."""
        links = [link for link, _, _ in self._flights.values()]
        for link in self._cluster.network.wait(links, wait_ms):
            with suppress(*NETWORK_ERRORS):  # its call carries the error
                link.read()
        has_news = False
        now_ms = self._cluster.clock.now_ms()
        for node_id, (link, call, late_ms) in list(self._flights.items()):
            if call.is_done:
                del self._flights[node_id]
                has_news = self._has_news(call.result()) or has_news
            elif now_ms > late_ms:
                link.close()
        return has_news

    def _has_news(self, response: FetchResponse) -> bool:
        has_news = False
        for name, results in response.topics:
            for each in results:
                if each.error_code:  # moved, or gone: look again next time
                    self._cluster.info.topics.pop(str(name), None)
                has_news = has_news or bool(each.records)
        return has_news
