"""A stream's position, committed to a consumer group: `penstock groups describe GROUP` shows its lag.

The checkpoint is the truth, and where the query goes on; what is committed here is for people and their tools. It is
therefore done as well as it can be: a commit that fails is logged once, is not tried again for a while, and
never stops the query. The group has no members: the position is set as `penstock groups reset-offsets` sets it.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.group_offsets import commit_offsets
from penstock.spark.reading.options import GROUP_CHARACTERS_MAX, SourceOptions

log = logging.getLogger("penstock.spark")

COMMIT_MS_MAX: Final = 3_000
"""How long one commit may hold up a query."""
PAUSE_MS: Final = 30_000
"""After one that failed."""

_DIGEST_CHARACTERS: Final = 12


def group_of(options: SourceOptions) -> str | None:
    """The group of a query, or None where it wants none.

    A Python source does not learn the name of its query nor where its checkpoint is, so a name that is not given
    is made of what is read: it stays the same from one start to the next.
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
        """Whose position it is."""
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
        """Everything below these offsets has been processed."""
        moved = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        now_ms = self._cluster.clock.now_ms()
        if not moved or now_ms < self._pause_until_ms:
            return
        try:
            commit_offsets(self._cluster, self.group, moved)
        except KafkaError as error:
            self._pause_until_ms = now_ms + PAUSE_MS
            if not self._is_failing:
                log.warning("cannot commit offsets of group %s; the query continues: %s", self.group, error)
            self._is_failing = True
            return
        self._committed.update(moved)
        self._is_failing = False
