"""Batches on their way: in order, none lost, none twice, whatever breaks."""

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.spark.sinks import committed, everything

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.connection import Call
from penstock.client.identity import init_producer_id
from penstock.client.network import SocketLink, SocketNetwork
from penstock.client.settings import Address, SystemClock
from penstock.client.transactional import end_transactions
from penstock.spark.errors import WriteFailed
from penstock.spark.writing.column_producer import ColumnProducer
from penstock.spark.writing.sink_options import SinkOptions, read_sink_options
from penstock.spark.writing.transactions import open_transaction
from penstock.testing import Broker
from penstock.wire import Api
from penstock.wire.request import Request

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class CuttingNetwork(SocketNetwork):
    """Cuts the connection under some Produce requests, by their number, as soon as they have left."""

    def __init__(self, options: SinkOptions, cuts: set[int]) -> None:
        super().__init__(options.client, SystemClock())
        self.cuts = cuts
        self.produced = 0

    def connect(self, address: Address) -> SocketLink:
        link = CuttingLink(address, self._settings, self._clock)
        link.network = self
        return link


class CuttingLink(SocketLink):
    network: CuttingNetwork

    def start(self, request: Request) -> Call:  # type: ignore[type-arg]
        call = super().start(request)
        if request.api is Api.PRODUCE:
            if self.network.produced in self.network.cuts:
                self.close()
            self.network.produced += 1
        return call


def options_for(broker: Broker, **more: str) -> SinkOptions:
    named = {"kafka.bootstrap.servers": broker.bootstrap}
    return read_sink_options(named | {key.replace("__", "."): value for key, value in more.items()})


def rows(start: int, stop: int, size: int = 40) -> pa.RecordBatch:
    values = [b"%d" % each + b"." * size for each in range(start, stop)]
    return pa.record_batch(
        {"key": pa.nulls(stop - start, pa.binary()), "value": pa.array(values, pa.binary())}
    )


def send(producer: ColumnProducer, partition: TopicPartition, batch: pa.RecordBatch) -> None:
    producer.add(partition, batch)
    producer.flush()


def numbers(broker: Broker, topic: str) -> dict[int, list[int]]:
    found = everything(broker, topic)
    return {each: [int((record.value or b"").rstrip(b".")) for record in found[each]] for each in found}


@given(st.sets(st.integers(0, 25), max_size=5), st.booleans())
@example(
    {5, 7, 14, 15, 16}, True
)  # answers to one batch are lost again and again, and those to later ones come
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_arrive_in_order_and_once_through_lost_connections(
    broker: Broker, cuts: set[int], is_transactional: bool
) -> None:
    topic = f"t-{next(_numbers)}"
    broker.create_topic(topic, 2)
    options = options_for(broker, kafka__batch__size="600")
    with Cluster(options.servers, options.client, network=CuttingNetwork(options, cuts)) as cluster:
        cluster.topic(topic)
        if is_transactional:
            transaction = open_transaction(cluster, options, topic)
            producer = ColumnProducer(cluster, options, transaction.identity, transaction, epoch_bumps=True)
        else:
            transaction = None
            producer = ColumnProducer(cluster, options, init_producer_id(cluster), None, epoch_bumps=False)
        for start in range(0, 200, 50):
            for partition in range(2):
                producer.add(TopicPartition(topic, partition), rows(start, start + 50))
        producer.flush()
        assert (producer.records, producer.buffered_bytes) == (400, 0)
        if transaction is not None:
            assert not end_transactions(cluster, [transaction], commit=True, epoch_bumps=True)
            assert sum(map(len, committed(broker, topic).values())) == 400
    assert numbers(broker, topic) == {0: list(range(200)), 1: list(range(200))}


def test_batches_that_are_too_large_are_cut_and_keep_their_order(broker: Broker) -> None:
    broker.create_topic("narrow", 1, max_message_bytes=1_000)
    options = options_for(broker)
    with Cluster(options.servers, options.client) as cluster:
        cluster.topic("narrow")
        producer = ColumnProducer(cluster, options, init_producer_id(cluster), None, epoch_bumps=False)
        for start in range(0, 2000, 500):
            producer.add(TopicPartition("narrow", 0), rows(start, start + 500))
        producer.flush()
    assert numbers(broker, "narrow") == {0: list(range(2000))}


def test_a_record_that_is_too_large_is_reported_with_its_topic(broker: Broker) -> None:
    broker.create_topic("narrower", 1, max_message_bytes=1_000)
    options = options_for(broker)
    with Cluster(options.servers, options.client) as cluster:
        cluster.topic("narrower")
        producer = ColumnProducer(cluster, options, init_producer_id(cluster), None, epoch_bumps=False)
        with pytest.raises(WriteFailed, match=r"a record of \d+ bytes is too large for topic narrower"):
            send(producer, TopicPartition("narrower", 0), rows(0, 3, 2_000))


def test_a_fenced_task_is_told_what_has_happened(broker: Broker) -> None:
    broker.create_topic("fenced", 1)
    options = options_for(broker)
    with Cluster(options.servers, options.client) as cluster:
        cluster.topic("fenced")
        transaction = open_transaction(cluster, options, "fenced-id")
        producer = ColumnProducer(cluster, options, transaction.identity, transaction, epoch_bumps=True)
        send(producer, TopicPartition("fenced", 0), rows(0, 3))
        open_transaction(cluster, options, "fenced-id")
        with pytest.raises(WriteFailed, match="another run has taken over"):
            send(producer, TopicPartition("fenced", 0), rows(3, 6))
    assert committed(broker, "fenced") == {0: []}
