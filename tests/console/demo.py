"""A cluster with something to see: topics with orders, groups that lag, long names, an open transaction, live traffic.

with Demo(directory) as demo:
    demo.http_url
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.cluster.processes import ClusterProcesses

from penstock.base.ids import TopicPartition as Place
from penstock.base.pipeline_report import COMMIT_METADATA
from penstock.client.cluster import Cluster
from penstock.client.group_offsets import commit_offsets
from penstock.client.settings import parse_servers
from penstock.spark.pipeline import load
from penstock.spark.pipeline.options import Brokers
from penstock.spark.pipeline.progress import FlowProgress
from penstock.spark.pipeline.report import Reporter

LONG_NAME = "com.example.warehouse.stock-movements.region-eu-central.enriched-with-supplier-and-price.v2"
TOPICS = {
    "orders": (6, {"retention.ms": "604800000", "segment.bytes": "1048576"}),
    "payments": (3, {"compression.type": "zstd"}),
    "customers": (3, {"cleanup.policy": "compact"}),
    "clicks": (12, {"retention.bytes": "1073741824"}),
    "shipments": (3, {}),
    LONG_NAME: (2, {}),
    "empty": (1, {}),
}
GROUPS = {
    "billing": ("orders", 0.6),
    "analytics": ("orders", 0.95),
    "warehouse-stock-level-projection": ("shipments", 0.2),
}
"""Groups, with a topic and the share of its records that they have consumed."""

PIPELINE = """
pipeline: orders
checkpoint: state
sources:
  orders: {topic: orders, value: json, schema: "id BIGINT, customer STRING, total DOUBLE"}
  customers: {topic: customers, value: json, schema: "customer STRING, city STRING", static: true}
views:
  paid: SELECT * FROM orders WHERE total > 0
  located: SELECT p.*, c.city FROM paid p JOIN customers c ON p.customer = c.customer
flows:
  archive: {reads: orders, to: {parquet: tables/orders}}
  spent: {sql: "SELECT city, sum(total) AS s FROM located GROUP BY city", mode: update, to: {topic: spent, key: city}}
  large: {sql: "SELECT * FROM paid WHERE total > 800", to: {delta: tables/large}}
"""

CITIES = ("Graz", "Lyon", "Oslo", "Porto", "Riga", "Turin")
GOODS = ("valve", "pump", "turbine", "gate", "pipe", "flange")


class Demo:
    def __init__(self, directory: Path, records: int = 20_000) -> None:
        self._records = records
        self._directory = directory
        self._cluster = ClusterProcesses(
            directory, http=True, settings={"default.replication.factor": "3", "min.insync.replicas": "2"}
        )
        self._rng = Random(7)
        self._is_over = threading.Event()
        self._traffic: list[threading.Thread] = []
        self._open: list[Any] = []

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        try:
            self._fill()
        except BaseException:
            self._cluster.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        for each in self._traffic:
            each.join()
        for each in self._open:
            each.close()
        self._cluster.close()

    @property
    def http_url(self) -> str:
        return self._cluster.nodes[1].http_url

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def _fill(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = [NewTopic(name, count, 3, config=config) for name, (count, config) in TOPICS.items()]
        for done in admin.create_topics(new).values():
            done.result(30)
        producer = self._producer()
        for topic in TOPICS:
            if topic != "empty":
                self._write(producer, topic, self._records if topic == "orders" else self._records // 8)
        producer.flush(60)
        for group, (topic, share) in GROUPS.items():
            self._consume(group, topic, share)
        self._leave_transaction_open()
        self._add_users(admin)
        for work in (self._produce_on, self._consume_on, self._report_on):
            self._traffic.append(threading.Thread(target=work))
            self._traffic[-1].start()

    def _producer(self, **more: Any) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, **more})

    def _orders(self) -> Iterator[tuple[bytes, bytes]]:
        number = 100_000
        while True:
            number += 1
            order = {
                "id": number,
                "customer": f"c-{self._rng.randrange(2000):04}",
                "city": self._rng.choice(CITIES),
                "items": [
                    {
                        "sku": f"{self._rng.choice(GOODS)}-{self._rng.randrange(90)}",
                        "count": self._rng.randrange(1, 9),
                    }
                    for _ in range(self._rng.randrange(1, 4))
                ],
                "total": round(self._rng.uniform(5, 900), 2),
                "express": self._rng.random() < 0.2,
            }
            yield order["customer"].encode(), json.dumps(order).encode()  # type: ignore[attr-defined]

    def _write(self, producer: Producer, topic: str, count: int) -> None:
        orders = self._orders()
        for _ in range(count):
            key, value = next(orders)
            headers = [("source", b"web"), ("trace", self._rng.randbytes(8).hex().encode())]
            while True:
                try:
                    producer.produce(topic, value, key, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)

    def _consume(self, group: str, topic: str, share: float) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False}
        )
        places = []
        for number in range(TOPICS[topic][0]):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), 30)
            places.append(TopicPartition(topic, number, int(end * share * self._rng.uniform(0.9, 1.0))))
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def _leave_transaction_open(self) -> None:
        producer = self._producer(
            **{"transactional.id": "settle-invoices-7", "transaction.timeout.ms": 600_000}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("payments", b'{"invoice": 41, "state": "pending"}', b"41")
        producer.flush(30)

    def _add_users(self, admin: AdminClient) -> None:
        changes = [
            UserScramCredentialUpsertion(
                name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"demo-password"
            )
            for name in ("alice", "billing-service", "warehouse")
        ]
        for done in admin.alter_user_scram_credentials(changes).values():
            done.result(30)

    def _produce_on(self) -> None:
        producer = self._producer()
        while not self._is_over.wait(0.25):
            for topic, count in (("orders", 60), ("clicks", 150), ("payments", 10)):
                self._write(producer, topic, int(count * self._rng.uniform(0.5, 1.5)))
            producer.poll(0)
        producer.flush(30)

    def _consume_on(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "clickstream",
                "client.id": "clickstream-1",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
            }
        )
        consumer.subscribe(["clicks"])
        while not self._is_over.is_set():
            consumer.consume(500, 0.5)
        consumer.close()

    def _report_on(self) -> None:
        """What `penstock pipeline run` reports, without a Spark that runs it."""
        file = self._directory / "orders.yaml"
        file.write_text(PIPELINE)
        spec = load(file)
        flows = [FlowProgress(each.name, "running") for each in spec.flows]
        places = {Place("orders", number): 2_000 for number in range(TOPICS["orders"][0])}
        with Cluster(parse_servers(self.bootstrap)) as cluster:
            commit_offsets(cluster, "orders.spent", places, metadata=COMMIT_METADATA)
        brokers = Brokers(self.bootstrap)
        with Reporter(spec, brokers, "local[4]", print) as reporter:
            batch = 0
            while not self._is_over.wait(1):
                for number, flow in enumerate(flows):
                    flow.take(self._batch(batch, number))
                reporter.update("running", flows)
                batch += 1
            reporter.update("stopped", flows)

    def _batch(self, batch: int, flow: int) -> dict[str, Any]:
        """Spark's progress report, with what is read of it."""
        position = 500 * batch
        source = {
            "numInputRows": self._rng.randrange(300, 700),
            "processedRowsPerSecond": self._rng.uniform(3_000, 4_000) + 900 * flow,
            "endOffset": {"orders": {"0": position}},
            "latestOffset": {"orders": {"0": position + self._rng.randrange(40)}},
        }
        duration_ms = int(self._rng.uniform(180, 260) + 90 * flow)
        states = [{"numRowsTotal": 1_900 + batch}] if flow == 1 else []
        return {"batchId": batch, "batchDuration": duration_ms, "sources": [source], "stateOperators": states}

    def get(self, path: str, **query: Any) -> Any:
        return httpx.get(f"{self.http_url}{path}", params=query, timeout=30).json()
