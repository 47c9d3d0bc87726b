"""Commits a stream's position to a consumer group: `penstock groups describe GROUP` shows its lag.

A query resumes from its checkpoint; the commit is only for monitoring. A failed commit is logged once, not retried for
a while, and never stops the query. The group has no members: offsets are committed as by
`penstock groups reset-offsets`.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.base.pipeline_report import COMMIT_METADATA
from penstock.client.cluster import Cluster
from penstock.client.group_offsets import commit_offsets
from penstock.spark.reading.options import GROUP_CHARACTERS_MAX, SourceOptions

log = logging.getLogger("penstock.spark")

COMMIT_MS_MAX: Final = 3_000
"""How long a commit may delay a query."""
PAUSE_MS: Final = 30_000
"""Pause after a failed commit."""

_DIGEST_CHARACTERS: Final = 12


def group_of(options: SourceOptions) -> str | None:
    """The group of a query, or None for no commits.

    A Python source knows neither the name nor the checkpoint of its query, so the default name is derived from
    the subscription: it is the same at every start.
    """
    if options.group is not None:
        return options.group or None
    name = f"{options.group_prefix}-{options.subscription}"
    if len(name) > GROUP_CHARACTERS_MAX:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        name = f"{name[: GROUP_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]}-{digest}"
    return name


class Position:
    def __init__(self, group: str, options: SourceOptions, cluster: Cluster | None = None) -> None:
        self.group = group
        """Name of the consumer group."""
        client = options.client
        quick = replace(
            client,
            connect_timeout_ms=min(client.connect_timeout_ms, COMMIT_MS_MAX),
            request_timeout_ms=min(client.request_timeout_ms, COMMIT_MS_MAX),
            api_timeout_ms=min(client.api_timeout_ms, COMMIT_MS_MAX),
        )
        self._cluster = cluster or Cluster(options.servers, quick)
        self._committed: dict[TopicPartition, Offset] = {}
        self._pause_until_ms = 0.0
        self._is_failing = False

    def close(self) -> None:
        self._cluster.close()

    def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit these offsets: all records below them have been processed."""
        moved = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        now_ms = self._cluster.clock.now_ms()
        if not moved or now_ms < self._pause_until_ms:
            return
        try:
            commit_offsets(self._cluster, self.group, moved, metadata=COMMIT_METADATA)
        except KafkaError as error:
            self._pause_until_ms = now_ms + PAUSE_MS
            if not self._is_failing:
                log.warning("cannot commit offsets of group %s; the query continues: %s", self.group, error)
            self._is_failing = True
            return
        self._committed.update(moved)
        self._is_failing = False
