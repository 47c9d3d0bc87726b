"""Long-polls the ends of partitions for new records.

If there are no new offsets, Spark asks a stream again at once: 60 times a second, if the answer is immediate. So
the driver long-polls: it sends one Fetch to each leader, at the ends of its partitions, which returns with the first
new record or after a timeout. The records are discarded; the new ends are requested afterwards.

It has its own connections, because a broker answers the requests of a connection in order: other requests would wait
behind the Fetch. A Fetch that is still waiting stays in flight for the next wait.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from penstock.base.ids import Offset, TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.connection import Call
from penstock.client.errors import NETWORK_ERRORS, ClientError
from penstock.client.fetch_request import fetch_request
from penstock.client.network import Link
from penstock.wire.fetch_client import FetchResponse

FETCH_BYTES_MAX: Final = 1
"""The first batch is always returned completely; more is not needed."""

PARTITIONS_MAX: Final = 1_000
"""Partitions of one Fetch. With more, some partition always has new records."""


class Tail:
    def __init__(self, cluster: Cluster, isolation_level: int) -> None:
        self._cluster = cluster
        self._isolation_level = isolation_level
        self._flights: dict[int, tuple[Link, Call[FetchResponse], float]] = {}
        """By leader: the Fetch in flight, and its deadline."""

    def close(self) -> None:
        self._cluster.close()

    def wait(self, ends: Mapping[TopicPartition, Offset], wait_ms: int) -> None:
        """Return when there may be new records, or after the timeout. Never fails."""
        clock = self._cluster.clock
        deadline_ms = clock.now_ms() + wait_ms
        try:
            self._dispatch(ends, wait_ms)
            while (left_ms := deadline_ms - clock.now_ms()) > 0 and self._flights:
                if self._land(left_ms):
                    return
        except ClientError:  # the next ListOffsets request raises it
            self._flights.clear()
            self._cluster.close()
        # No leader to wait at, or an empty response: sleep, because the caller would spin.
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
        """Process the responses; return whether any has records."""
        links = [link for link, _, _ in self._flights.values()]
        for link in self._cluster.network.wait(links, wait_ms):
            with suppress(*NETWORK_ERRORS):  # its call has the error
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
                if each.error_code:  # moved or deleted: refresh metadata next time
                    self._cluster.info.topics.pop(str(name), None)
                has_news = has_news or bool(each.records)
        return has_news
