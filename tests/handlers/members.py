"""A node with groups on it, in a world that stands still, and members that speak to it in any version.

scene = Groups()
one, two = scene.member(), scene.member(version=0)
gather(one, two)             joined, and told what they got
"""

import struct
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.handlers.cluster import make_request
from tests.nodes import StillClient, StillNode

from penstock.wire import Api, write_request

SETTINGS = {"group.initial.rebalance.delay.ms": "50", "offsets.topic.num.partitions": "3"}
"""Long enough for all members of a test to join, and short enough not to reach any other deadline."""

LATEST = {
    Api.JOIN_GROUP: 9,
    Api.SYNC_GROUP: 5,
    Api.HEARTBEAT: 4,
    Api.LEAVE_GROUP: 5,
    Api.OFFSET_COMMIT: 9,
    Api.OFFSET_FETCH: 9,
}


def subscription(*topics: str) -> bytes:
    """What a consumer puts into its protocol's metadata, version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def dealt(*partitions: int) -> bytes:
    """What a leader puts into an assignment, version 0: these partitions of topic `t`."""
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    return (
        struct.pack(">hih", 0, 1, 1)
        + b"t"
        + struct.pack(">i", len(partitions))
        + numbers
        + struct.pack(">i", -1)
    )


class Groups:
    """The node, with a topic `t` of four partitions."""

    def __init__(self, settings: dict[str, str] | None = None, *, find: str | None = "g") -> None:
        self.node = StillNode(settings=SETTINGS | (settings or {}))
        self.node.create_topic("t", 4)
        self.client = self.node.client()
        if find is not None:
            assert self.find(find).error_code.value == 0

    def reconnect(self) -> None:
        """After the node has come back, and its coordinators have read their partitions."""
        self.client = self.node.client()
        self.advance(10)

    def advance(self, ms: int) -> None:
        self.node.world.advance(ms)

    def topic_id(self, name: str = "t") -> UUID:
        return UUID(bytes=self.node.node.context.image.topics[name].id)

    def call(self, api: Api, version: int, **values: Any) -> Any:
        return call(self.client, api, version, **values)

    def find(self, key: str, kind: int = 0) -> Any:
        reply = self.call(Api.FIND_COORDINATOR, 6, key_type=kind, coordinator_keys=[key])
        return reply.coordinators[0]

    def member(self, group: str = "g", **said: Any) -> "Member":
        return Member(self, group, **said)

    def commit(self, group: str = "g", offset: int = 5, **said: Any) -> int:
        """By nobody in particular; the error of the one partition, which is t-0 unless said."""
        [topic] = commit(self.client, group, offset, **said).topics
        return int(topic.partitions[0].error_code.value)

    def committed(self, group: str = "g", topic: str = "t", partition: int = 0, **said: Any) -> int:
        """The offset of a partition; -1 where there is none."""
        wanted = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}], **said}
        [answered] = self.call(Api.OFFSET_FETCH, 9, groups=[wanted]).groups
        assert answered.error_code.value == 0, answered
        [row] = answered.topics[0].partitions
        assert row.error_code.value == 0, row
        return int(row.committed_offset)

    def states(self) -> dict[str, str]:
        reply = self.call(Api.LIST_GROUPS, 5)
        assert reply.error_code.value == 0, reply
        return {each.group_id: each.group_state for each in reply.groups}

    def describe(self, group: str = "g", version: int = 6) -> Any:
        [described] = self.call(Api.DESCRIBE_GROUPS, version, groups=[group]).groups
        return described


class Member:
    """A consumer of the classic protocol. The leader deals partitions out in turn."""

    def __init__(
        self,
        scene: Groups,
        group: str = "g",
        *,
        version: int = 9,
        topics: Iterable[str] = ("t",),
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 20_000,
    ) -> None:
        self.scene, self.group, self.version = scene, group, version
        self.topics, self.instance = tuple(topics), instance
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.client: StillClient = scene.node.client()
        self.id = ""
        self.generation = -1
        self.leads = False
        self.others: list[str] = []
        self.assignment = b""

    def reconnect(self) -> None:
        self.client = self.scene.node.client()

    def _version(self, api: Api) -> int:
        return min(self.version, LATEST[api])

    def _ask(self, api: Api, **values: Any) -> None:
        ask(self.client, api, self._version(api), group_id=self.group, **values)

    def join(self) -> None:
        """Ask to join; once more with the id where one is given first."""
        self._join()
        if self.version >= 4 and not self.id and self.instance is None:
            reply = self.client.wait()
            assert reply.error_code.value == 79, reply
            self.id = reply.member_id
            self._join()

    def _join(self) -> None:
        self._ask(
            Api.JOIN_GROUP,
            session_timeout=timedelta(milliseconds=self.session_ms),
            rebalance_timeout=timedelta(milliseconds=self.rebalance_ms),
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": subscription(*self.topics)}],
        )

    def joined(self) -> int:
        """Wait for the generation; the error."""
        reply = self.client.wait(60_000)
        code = int(reply.error_code.value)
        if code == 0:
            self.id, self.generation = reply.member_id, reply.generation_id
            self.leads = reply.leader == reply.member_id
            self.others = [each.member_id for each in reply.members]
        return code

    def sync(self) -> None:
        self._ask(
            Api.SYNC_GROUP,
            member_id=self.id,
            generation_id=self.generation,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                {"member_id": each, "assignment": dealt(*range(place, 4, len(self.others)))}
                for place, each in enumerate(self.others)
            ],
        )

    def synced(self) -> int:
        reply = self.client.wait(60_000)
        self.assignment = bytes(reply.assignment)
        return int(reply.error_code.value)

    def heartbeat(self) -> int:
        self._ask(
            Api.HEARTBEAT,
            member_id=self.id,
            generation_id=self.generation,
            group_instance_id=self.instance,
        )
        return int(self.client.wait().error_code.value)

    def leave(self) -> int:
        identity = {"member_id": self.id, "group_instance_id": self.instance}
        self._ask(Api.LEAVE_GROUP, member_id=self.id, members=[identity])
        reply = self.client.wait()
        code = reply.error_code
        if not code.value and self.version >= 3:
            code = reply.members[0].error_code
        return int(code.value)

    def commit(self, offset: int, **said: Any) -> int:
        identity = {"generation": self.generation, "member_id": self.id, "instance": self.instance}
        fields = {**identity, "version": 9, **said}
        [topic] = commit(self.client, self.group, offset, **fields).topics
        return int(topic.partitions[0].error_code.value)


def gather(*members: Member) -> None:
    """All of them join, and are told what they got."""
    for each in members:
        each.join()
    assert [each.joined() for each in members] == [0] * len(members)
    for each in members:
        each.sync()
    assert [each.synced() for each in members] == [0] * len(members)


def ask(client: StillClient, api: Api, version: int, **values: Any) -> None:
    client.send(api, version, write_request(api, version, make_request(api, version, **values)))


def call(client: StillClient, api: Api, version: int, **values: Any) -> Any:
    ask(client, api, version, **values)
    return client.wait(60_000)


def commit(
    client: StillClient,
    group: str,
    offset: int,
    *,
    topic: str | UUID | None = "t",
    partition: int = 0,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    metadata: str | None = None,
    version: int = 9,
    retention_ms: int = -1,
) -> Any:
    named = {"name": topic} if version < 10 else {"topic_id": topic}
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    return call(
        client,
        Api.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time=timedelta(milliseconds=retention_ms),
        topics=[{**named, "partitions": [row]}],
    )
