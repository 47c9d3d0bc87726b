"""The audit topic of a cluster: every broker writes to it, whichever leads it."""

import json
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from tests.cluster.test_sasl import Users

from penstock.server.ports import free_ports
from penstock.testing import Broker

SECONDS_MAX = 30


def audit_of(bootstrap: str, until: set[tuple[int, str]]) -> list[dict[str, Any]]:
    """The records of the topic, once those with these nodes and events are there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditors",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": "100",
            "log_level": 0,
        }
    )
    consumer.subscribe(["audit"])
    found: list[dict[str, Any]] = []
    for _ in range(SECONDS_MAX * 2):
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            found.append(json.loads(message.value()))
        if until <= {(each["node"], each["event"]) for each in found}:
            break
    consumer.close()
    return found


def test_every_broker_writes_to_the_topic_whichever_leads_it() -> None:
    plain, sasl, other_plain, other_sasl, controller = free_ports(5)
    common = {
        "cluster.id": "a-cluster-with-audit00",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "audit.log": "denied",
        "audit.topic": "audit",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    first = {
        **common,
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},"
        f"CONTROLLER://127.0.0.1:{controller}",
    }
    second = {
        **common,
        "node.id": "2",
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://127.0.0.1:{other_plain},SASL_PLAINTEXT://127.0.0.1:{other_sasl}",
    }
    with Broker(settings=first) as one, Broker(settings=second):
        users = Users(plain, (sasl, other_sasl))
        users.set_password("carol", "planted-password")
        assert users.logs_in(sasl, "carol", "planted-password")
        assert not users.logs_in(other_sasl, "carol", "wrong")
        found = audit_of(one.bootstrap, {(1, "login"), (2, "login")})
        logins = {
            (each["node"], each["result"], each["principal"]) for each in found if each["event"] == "login"
        }
        assert logins == {(1, "allowed", "User:carol"), (2, "denied", "User:carol")}
        [change] = [each for each in found if each["event"] == "change"]
        assert (change["operation"], change["resource_name"]) == ("CreateUserCredential", "carol")
        assert "planted" not in json.dumps(found)
        assert forge(one.bootstrap) == KafkaError.TOPIC_EXCEPTION


def forge(bootstrap: str) -> int:
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        producer.produce("audit", b"{}", on_delivery=lambda error, _: errors.append(error))
        producer.flush(SECONDS_MAX)
    except KafkaException as error:
        errors.append(error.args[0])
    return errors[0].code()
