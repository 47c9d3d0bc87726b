"""A node is cut off from the others for longer than its session, with clients on both sides of the cut.

The majority elects other leaders and goes on. On the other side the old leader does not know, and cannot: it takes
records from whoever asks for no more than its own word, and acknowledges nothing to whoever asks for all in sync. When
the cable is whole again, what it took alone is cut from its log, and the producer that waited gets its records in.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from tests.cluster.test_chaos import SESSION_S, SETTINGS
from tests.cluster.views import QUICK, Seen, assert_equal_replicas
from tests.cluster.walled import WalledCluster
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.patient import wait_until

from penstock.chaos.namespaces import Network
from penstock.client.cluster import Cluster
from penstock.client.quorum import describe_quorum
from penstock.client.settings import Address

TOPIC, PARTITIONS = "orders", 3


@pytest.fixture
def network() -> Iterator[Network]:
    refusal = Network.refusal()
    if refusal is not None:
        pytest.skip(f"no cable can be cut here: {refusal}")
    with Network(3) as made:
        yield made


class Side:
    """A producer on one side of the cut, and what it was told."""

    def __init__(
        self, network: Network, namespace: str, name: str, bootstrap: str, **settings: object
    ) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        said = {each.replace("_", "."): value for each, value in settings.items()}
        with network.inside(namespace):
            self.producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    **QUICK,
                    "socket.timeout.ms": 2000,
                    "request.timeout.ms": 1500,
                    "enable.idempotence": True,
                    **said,
                }
            )

    def pour(self, count: int, *partitions: int) -> None:
        for _ in range(count):
            value = b"%s %d" % (self.name.encode(), self.sent)
            for partition in partitions:
                self.producer.produce(
                    TOPIC, value + b" %d" % partition, partition=partition, on_delivery=self._told
                )
            self.sent += 1
            self.producer.poll(0.005)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.value()] = (message.partition(), message.offset())

    def finish(self) -> None:
        assert self.producer.flush(SECONDS_MAX) == 0


def read_all(seen: Seen) -> dict[tuple[int, int], bytes]:
    consumer = seen.driver.consumer(enable_partition_eof=True)
    found, ended = {}, 0
    try:
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while ended < PARTITIONS:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            if message.error() is None:
                found[message.partition(), message.offset()] = message.value()
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended += 1
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("whom", ["the active controller", pytest.param("another", marks=pytest.mark.long)])
def test_a_node_that_is_cut_off_acknowledges_nothing_and_comes_back_without_a_trace(
    network: Network, tmp_path: Path, whom: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with WalledCluster(network, tmp_path, SETTINGS) as cluster, network.inside(network.hub):
        try:
            pause_s = _cut_and_heal(network, cluster, tmp_path, whom)
        except BaseException:
            print(cluster.complaints)
            raise
    with capsys.disabled():
        print(f"\n  a cut cable of {whom}: the others acknowledged nothing for {pause_s * 1000:.0f} ms")


def _cut_and_heal(network: Network, cluster: WalledCluster, data: Path, whom: str) -> float:
    seen = Seen(cluster.bootstrap)
    seen.create_topic(TOPIC, PARTITIONS, replicas=3)
    wait_until(lambda: {each.leader for each in seen.partitions(TOPIC).values()} == {1, 2, 3})
    active = active_controller(cluster)
    lonely = active if whom == "the active controller" else active % 3 + 1
    led = next(number for number, each in seen.partitions(TOPIC).items() if each.leader == lonely)
    here = Side(network, network.hub, "majority", cluster.bootstrap)
    there = Side(network, network.namespace(lonely), "cut off", cluster.nodes[lonely].bootstrap)
    careless = Side(
        network,
        network.namespace(lonely),
        "careless",
        cluster.nodes[lonely].bootstrap,
        acks=1,
        enable_idempotence=False,
    )
    for side in (here, there, careless):
        side.pour(20, led)
        side.finish()

    network.cut(lonely)
    began = time.monotonic()
    here.pour(1, led)
    there.pour(50, led)
    wait_until(lambda: careless.pour(1, led) or len(careless.acknowledged) >= 30)
    before = dict(there.acknowledged)
    here.finish()
    pause_s = time.monotonic() - began
    while time.monotonic() < began + 2 * SESSION_S:
        here.pour(10, *range(PARTITIONS))
        there.producer.poll(0)
    here.finish()
    majority = Seen(",".join(node.bootstrap for each, node in cluster.nodes.items() if each != lonely))
    wait_until(lambda: majority.isr(TOPIC, led) == {1, 2, 3} - {lonely})
    assert majority.leader(TOPIC, led) not in (-1, lonely)
    assert there.acknowledged == before, "nothing is acknowledged by one that is alone"
    assert len(before) == 20

    network.heal(lonely)
    there.finish()
    wait_until(seen.is_whole)
    here.pour(5, *range(PARTITIONS))
    here.finish()
    written = read_all(seen)
    for side in (here, there):
        for value, place in side.acknowledged.items():
            assert written.get(place) == value, f"{value!r} was acknowledged at {place}"
    assert len(there.acknowledged) == 70
    values = list(written.values())
    assert len(values) == len(set(values)), "each once"
    assert set(careless.acknowledged) - set(values), "what the cut-off node took alone is gone"
    cluster.stop()
    assert_equal_replicas([node.data for node in cluster.nodes.values()], TOPIC, range(PARTITIONS))
    return pause_s


def active_controller(cluster: WalledCluster) -> int:
    """By what the nodes say of themselves."""
    with Cluster([Address(*_split(node.bootstrap)) for node in cluster.nodes.values()]) as client:
        return describe_quorum(client).leader_id


def _split(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.partition(":")
    return host, int(port)
