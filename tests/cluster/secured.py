"""Clusters of real processes whose nodes use TLS and log-ins, each with a `server.properties` that a test rewrites."""

import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import trustme
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.cluster.processes import NodeProcesses
from tests.processes import HOST, Process
from tests.server.tls_nodes import issue, write_ca, write_store

from penstock.server.ports import hold_port
from penstock.testing import Broker

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"

PASSWORDS = {"broker": "planted-broker", "controller": "planted-controller", "alice": "planted-alice"}
CLUSTER_ID = "secured-cluster-00000A"
NUMBERS = (1, 2, 3)
LISTENERS = ("PLAINTEXT", "SECURE", "CONTROLLER", "CSECURE")


class ConfiguredNode(Process):
    """A node that its settings file describes."""

    def __init__(self, directory: Path, number: int, **more: Any) -> None:
        self.file = directory / f"node-{number}.properties"
        super().__init__("--config", str(self.file), data=directory / f"node-{number}", port=1, **more)

    def configure(self, settings: Mapping[str, str]) -> None:
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _listen_flags(self) -> list[str]:
        return []

    def start(self) -> "ConfiguredNode":
        self.launch()
        line = self.read_line()
        assert line.startswith("penstock ready "), f"{line!r}; it said:\n{self.stderr}"
        return self


class ThreadNode:
    """The same on a thread of the test: it starts and stops within a fraction of the time."""

    is_running = False
    stderr = ""
    """As a process has them: nothing is left to do for whoever ends it, and its lines are in the test's log."""

    def __init__(self, directory: Path, number: int) -> None:
        self._data = directory / f"node-{number}"
        self._settings: dict[str, str] = {}
        self._broker: Broker | None = None

    def configure(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)

    def start(self) -> "ThreadNode":
        self._broker = Broker(data=self._data, settings=self._settings)
        self._broker.start()
        return self

    def stop(self) -> int:
        self.close()
        return 0

    def close(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None


class SecuredProcesses(NodeProcesses):
    """Nodes 1 to 3, brokers and controllers all of them, with certificates of one authority."""

    nodes: dict[int, ConfiguredNode]

    def __init__(
        self, directory: Path, environment: Mapping[str, str] | None = None, *, on_threads: bool = False
    ) -> None:
        self.directory = directory
        self.ca = trustme.CA()
        self.ca_file = write_ca(directory / "ca.pem", self.ca)
        for number in NUMBERS:
            write_store(self.key_store(number), issue(self.ca, common_name=f"node-{number}"))
        self._held = [hold_port() for _ in range(len(NUMBERS) * len(LISTENERS))]
        ports = iter(each.getsockname()[1] for each in self._held)
        self.ports = {name: {number: next(ports) for number in NUMBERS} for name in LISTENERS}
        self.nodes = {
            number: cast("ConfiguredNode", ThreadNode(directory, number))
            if on_threads
            else ConfiguredNode(directory, number, environment=environment)
            for number in NUMBERS
        }
        for number in NUMBERS:
            self.nodes[number].configure(self.settings(number))

    def key_store(self, number: int) -> Path:
        return self.directory / f"node-{number}.pem"

    def bootstrap_at(self, listener: str) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports[listener].values())

    def close(self) -> None:
        super().close()
        for each in self._held:
            each.close()

    # -- settings ----------------------------------------------------------------------------------------

    def settings(self, number: int) -> dict[str, str]:
        """A node whose listeners all have TLS and log-ins: SCRAM between brokers, PLAIN between controllers."""
        return {
            **self.secured(number, ("SECURE", "CSECURE")),
            "inter.broker.listener.name": "SECURE",
            "controller.listener.names": "CSECURE",
            "controller.quorum.voters": self.voters("CSECURE"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:broker;User:controller;User:alice",
        }

    def plain(self, number: int) -> dict[str, str]:
        """A node without security."""
        return {
            **self._common(number, ("PLAINTEXT", "CONTROLLER")),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self.voters("CONTROLLER"),
        }

    def voters(self, listener: str) -> str:
        return ",".join(f"{number}@{HOST}:{port}" for number, port in self.ports[listener].items())

    def _common(self, number: int, listeners: tuple[str, ...]) -> dict[str, str]:
        return {
            "node.id": str(number),
            "cluster.id": CLUSTER_ID,
            "listeners": ",".join(f"{name}://{HOST}:{self.ports[name][number]}" for name in listeners),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
        }

    def secured(self, number: int, listeners: tuple[str, ...]) -> dict[str, str]:
        broker, controller, alice = PASSWORDS["broker"], PASSWORDS["controller"], PASSWORDS["alice"]
        return {
            **self._common(number, listeners),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SECURE:SASL_SSL,CSECURE:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_store(number)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca_file,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.secure.scram-sha-256.sasl.jaas.config": f'{SCRAM_MODULE} username="broker" '
            f'password="{broker}";',
            "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_alice="{alice}";',
            "listener.name.csecure.plain.sasl.jaas.config": f'{PLAIN_MODULE} username="controller" '
            f'password="{controller}" user_controller="{controller}";',
        }

    def client(self, user: str = "alice") -> dict[str, str]:
        """Settings of librdkafka for a user of PLAIN."""
        return {
            "bootstrap.servers": self.bootstrap_at("SECURE"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca_file,
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }


class Sequence:
    """A producer with acks=all that writes numbers without a break, on a thread."""

    def __init__(self, client: Mapping[str, str], topic: str, name: str) -> None:
        self.name = name
        self.acknowledged: set[int] = set()
        self.failed: list[KafkaError] = []
        self.longest_pause_s = 0.0
        self._last_s: float | None = None
        self._topic = topic
        self._producer = Producer({**client, "acks": "all", "linger.ms": 0, "enable.idempotence": True})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ending.wait(0.01):
            if len(self.acknowledged) + len(self.failed) > number - 1000:
                self._producer.produce(
                    self._topic, f"{self.name}:{number}", on_delivery=partial(self._done, number)
                )
                number += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def _done(self, number: int, error: KafkaError | None, _: Message) -> None:
        if error is None:
            now_s = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now_s - (self._last_s or now_s))
            self._last_s = now_s
            self.acknowledged.add(number)
        else:
            self.failed.append(error)

    def end(self) -> None:
        self._ending.set()
        self._thread.join(90)
        assert not self._thread.is_alive()


def read_all(client: Mapping[str, str], topic: str) -> list[str]:
    """All values of a topic."""
    consumer = Consumer({**client, "group.id": "check", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        ends = {
            each: consumer.get_watermark_offsets(TopicPartition(topic, each), 30)[1] for each in partitions
        }
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found: list[str] = []
        while len(found) < sum(ends.values()):
            message: Message | None = consumer.poll(30)
            assert message is not None, f"only {len(found)} of {sum(ends.values())} records"
            found.append((message.value() or b"").decode())
        return found
    finally:
        consumer.close()
