"""A transactional producer on a still node, driven by hand: each call is one request, and says what came of it.

node = StillNode()
node.create_topic("orders", 3)
producer = Txn(node, "mine")
producer.init()
producer.send("orders", 0, b"a")
producer.end(commit=True)
read_committed(node, "orders", 0)        [b"a"]

`Txn(..., speaks=1)` is a client of `transaction.version` 1: it adds partitions itself, and its epoch stays.
"""

from datetime import timedelta
from typing import Any

from tests.nodes import StillClient, StillNode
from tests.wire_requests import fetch_body, produce_body

from penstock.base.errors import ErrorCode
from penstock.records import build_batch, iter_batches, parse_control
from penstock.wire import Api, read_response, request_module

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


class Txn:
    def __init__(
        self, node: StillNode, transactional_id: str, *, speaks: int = 2, timeout_ms: int = 60_000
    ) -> None:
        self.node = node
        self.transactional_id = transactional_id
        self.speaks = speaks
        self.timeout_ms = timeout_ms
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.connect()

    def connect(self) -> None:
        """Begin anew on a connection, as after a restart of the node, and find the coordinator."""
        self.client: StillClient = self.node.client()
        find_coordinator(self.client, self.transactional_id, 1)

    @property
    def _me(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def call(self, api: Api, version: int, **fields: Any) -> Any:
        return self.client.call(api, version, **fields)

    def init(self, version: int = 5, *, goes_on: bool = False, once: bool = False) -> ErrorCode:
        """Until it is done, unless `once`."""
        former = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if goes_on else {}
        while True:
            reply = self.call(
                Api.INIT_PRODUCER_ID,
                version,
                transactional_id=self.transactional_id,
                transaction_timeout=timedelta(milliseconds=self.timeout_ms),
                **former,
            )
            code = code_of(reply)
            if code is ErrorCode.NONE:
                self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
                self.sequences = {}
            if once or code not in (CONCURRENT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return code
            self.node.world.advance(20)

    def add(self, *partitions: tuple[str, int], version: int = 3, verify_only: bool = False) -> ErrorCode:
        """AddPartitionsToTxn; the code of the first partition."""
        module = request_module(Api.ADD_PARTITIONS_TO_TXN, version)
        topics = tuple(
            module.AddPartitionsToTxnTopic(name=topic, partitions=(number,)) for topic, number in partitions
        )
        if version < 4:
            reply = self.call(
                Api.ADD_PARTITIONS_TO_TXN,
                version,
                **{f"v3_and_below_{key}": value for key, value in self._me.items()},
                v3_and_below_topics=topics,
            )
            [first, *_] = reply.results_by_topic_v3_and_below
        else:
            one = module.AddPartitionsToTxnTransaction(**self._me, verify_only=verify_only, topics=topics)
            reply = self.call(Api.ADD_PARTITIONS_TO_TXN, version, transactions=(one,))
            assert code_of(reply) is ErrorCode.NONE
            [first, *_] = reply.results_by_transaction[0].topic_results
        return ErrorCode(first.results_by_partition[0].partition_error_code.value)

    def produce(self, topic: str, partition: int, *values: bytes, version: int | None = None) -> None:
        """Have a batch on its way; `sent` says what came of it."""
        at = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = at + len(values)
        self.client.send(
            Api.PRODUCE, self._produce_version(version), self._body(topic, partition, at, values)
        )

    def _produce_version(self, version: int | None) -> int:
        return version if version is not None else 12 if self.speaks >= 2 else 11

    def _body(self, topic: str, partition: int, sequence: int, values: tuple[bytes, ...]) -> bytes:
        batch = transactional_batch(self.node, self.producer_id, self.epoch, sequence, *values)
        return produce_body(12, [(topic, [(partition, batch)])], transactional_id=self.transactional_id)

    def sent(self) -> ErrorCode:
        [topic] = self.client.wait().responses
        return ErrorCode(topic.partition_responses[0].error_code.value)

    def send(self, topic: str, partition: int, *values: bytes, version: int | None = None) -> ErrorCode:
        if self.speaks < 2:
            code = self.add((topic, partition))
            while code is CONCURRENT:
                self.node.world.advance(20)
                code = self.add((topic, partition))
            if code is not ErrorCode.NONE:
                return code
        self.produce(topic, partition, *values, version=version)
        return self.sent()

    def commit_offsets(
        self,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        version: int | None = None,
        **fields: Any,
    ) -> ErrorCode:
        """Both requests of a client that speaks version 1."""
        find_coordinator(self.client, group, 0)
        if self.speaks < 2:
            code = self.add_offsets(group)
            if code is not ErrorCode.NONE:
                return code
        return self.txn_offset_commit(
            group, topic, partition, offset, version=version or (5 if self.speaks >= 2 else 4), **fields
        )

    def add_offsets(self, group: str, version: int = 4) -> ErrorCode:
        return code_of(self.call(Api.ADD_OFFSETS_TO_TXN, version, **self._me, group_id=group))

    def txn_offset_commit(
        self, group: str, topic: str, partition: int, offset: int, *, version: int = 5, **fields: Any
    ) -> ErrorCode:
        module = request_module(Api.TXN_OFFSET_COMMIT, version)
        one = module.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        topics = (module.TxnOffsetCommitRequestTopic(name=topic, partitions=(one,)),)
        reply = self.call(Api.TXN_OFFSET_COMMIT, version, **self._me, group_id=group, topics=topics, **fields)
        return ErrorCode(reply.topics[0].partitions[0].error_code.value)

    def ask_end(self, *, commit: bool, version: int | None = None) -> None:
        version = version if version is not None else 5 if self.speaks >= 2 else 4
        self.client.ask(Api.END_TXN, version, **self._me, committed=commit)

    def ended(self) -> ErrorCode:
        reply = self.client.wait()
        code = code_of(reply)
        if code is ErrorCode.NONE and getattr(reply, "producer_epoch", -1) >= 0:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self.sequences = {}
        return code

    def end(self, *, commit: bool, version: int | None = None) -> ErrorCode:
        while True:
            self.ask_end(commit=commit, version=version)
            code = self.ended()
            if code not in (CONCURRENT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return code
            self.node.world.advance(20)

    def state(self) -> str:
        return str(describe(self.node, self.transactional_id).transaction_state)


def code_of(reply: Any) -> ErrorCode:
    return ErrorCode(reply.error_code.value)


def find_coordinator(client: StillClient, key: str, key_type: int) -> None:
    """Which has the topic created, and is answered once it is loaded."""
    for _ in range(100):
        reply = client.call(Api.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=(key,))
        if reply.coordinators[0].error_code.value == 0:
            client.node.world.advance(50)
            return
        client.node.world.advance(50)
    raise AssertionError(f"nobody coordinates {key}: {reply}")


def transactional_batch(
    node: StillNode, producer_id: int, epoch: int, sequence: int, *values: bytes
) -> bytes:
    return build_batch(
        [(None, value, node.world.now_ms()) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def describe(node: StillNode, transactional_id: str) -> Any:
    """kio takes no time before 1970, and -1 is how it is told that no transaction is open: here it is 0."""
    client = node.client()
    client.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(transactional_id,))
    node.world.advance(1)
    raw = client.raw_reply()
    assert raw is not None
    api, version, frame, at = raw
    body = frame[at:].replace(b"\xff" * 8, bytes(8))
    [state] = read_response(api, version, memoryview(body)).transaction_states
    return state


def read_committed(
    node: StillNode, topic: str, partition: int, *, partition_bytes: int = 1 << 20
) -> list[bytes]:
    """What a consumer with `isolation.level=read_committed` is given, as clients work it out."""
    client = node.client()
    offset, found = 0, []
    while True:
        body = fetch_body(
            12, [(topic, [(partition, offset)])], isolation_level=1, partition_bytes=partition_bytes
        )
        client.send(Api.FETCH, 12, body)
        [answered] = client.wait().responses[0].partitions
        assert answered.error_code.value == 0, answered
        batches = list(iter_batches(bytearray(answered.records or b"")))
        if not batches:
            assert offset == answered.last_stable_offset
            return found
        found += committed_values(batches, answered.aborted_transactions or (), offset)
        offset = batches[-1].next_offset


def committed_values(batches: list[Any], aborted_transactions: Any, offset: int) -> list[bytes]:
    """Kafka's client: a transaction is skipped from its first offset on, until its abort marker."""
    waiting = sorted((each.first_offset, each.producer_id) for each in aborted_transactions)
    assert all(first < batches[-1].next_offset for first, _ in waiting), "nothing beyond what is returned"
    skipped: set[int] = set()
    found = []
    for batch in batches:
        while waiting and waiting[0][0] <= batch.last_offset:
            skipped.add(waiting.pop(0)[1])
        if batch.is_control:
            if parse_control(next(iter(batch.records()))).type == 0:
                skipped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in skipped):
            found += [bytes(record.value) for record in batch.records() if record.offset >= offset]
    return found
