"""A node with one topic, and what is done and seen there: for tests of what settings change."""

from datetime import timedelta
from typing import Any

from tests.nodes import StillNode
from tests.wire_requests import produce_body

from penstock.records import Record, RecordBatch, build_batch, iter_batches
from penstock.replica.partition import Partition
from penstock.storage import Log
from penstock.wire import Api, request_module

TOPIC = "t"

Produced = tuple[bytes | None, bytes | None, int]


class Scene:
    def __init__(self, node: StillNode) -> None:
        self.node = node

    @property
    def now_ms(self) -> int:
        return self.node.world.now_ms()

    def advance(self, ms: int) -> None:
        self.node.world.advance(ms)

    def partition(self, number: int = 0) -> Partition:
        return self.node.node.context.replicas.find(TOPIC, number)

    @property
    def log(self) -> Log:
        return self.partition().log

    # -- writing ---------------------------------------------------------------------------------------

    def send(self, data: bytes, *, acks: int = -1, partition: int = 0) -> Any:
        """Produce a batch; the partition's response."""
        client = self.node.client()
        client.send(Api.PRODUCE, 12, produce_body(12, [(TOPIC, [(partition, data)])], acks))
        return client.wait().responses[0].partition_responses[0]

    def error_of(self, data: bytes) -> int:
        return int(self.send(data).error_code)

    def produce(
        self,
        key: bytes | None = b"key",
        value: bytes | None = b"x" * 400,
        *,
        timestamp: int | None = None,
        count: int = 1,
        acks: int = -1,
        partition: int = 0,
    ) -> None:
        """So many batches of one record."""
        for _ in range(count):
            at = self.now_ms if timestamp is None else timestamp
            answer = self.send(build_batch([(key, value, at)]), acks=acks, partition=partition)
            assert answer.error_code.value == 0, answer

    # -- seeing ----------------------------------------------------------------------------------------

    def batches(self) -> list[RecordBatch]:
        found: list[RecordBatch] = []
        offset = self.log.log_start
        while offset < self.log.log_end:
            found += iter_batches(bytearray(self.log.read(offset, 1 << 20)))
            if found[-1].next_offset <= offset:
                break
            offset = found[-1].next_offset
        return found

    def records(self) -> list[Record]:
        return [record for batch in self.batches() for record in batch.records()]

    # -- settings --------------------------------------------------------------------------------------

    def alter(self, kind: int, resource_name: str, name: str, value: str) -> int:
        """Set a setting of a topic (2) or of brokers (4) at run time; the error code."""
        module = request_module(Api.INCREMENTAL_ALTER_CONFIGS, 1)
        change = module.AlterableConfig(name=name, config_operation=0, value=value)
        resource = module.AlterConfigsResource(
            resource_type=kind, resource_name=resource_name, configs=(change,)
        )
        reply = self.node.client().call(
            Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False
        )
        return int(reply.responses[0].error_code)

    def delete_topic(self) -> int:
        reply = self.node.client().call(
            Api.DELETE_TOPICS, 5, topic_names=(TOPIC,), timeout=timedelta(seconds=5)
        )
        return int(reply.responses[0].error_code)

    def metadata(self, *topics: str, create: bool = False) -> Any:
        module = request_module(Api.METADATA, 9)
        return self.node.client().call(
            Api.METADATA,
            9,
            topics=tuple(module.MetadataRequestTopic(name=each) for each in topics),
            allow_auto_topic_creation=create,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )


def fill_with_one_key(scene: Scene) -> int:
    """Write the same key over and over, let the cleaner have its turn, and count what is left."""
    scene.produce(count=8)
    scene.advance(20_000)
    return len(scene.records())
