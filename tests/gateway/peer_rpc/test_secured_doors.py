"""Users and ACLs at every door of a cluster: a client may do the same at each broker, and a gateway may read for its
clients with ClusterAction."""

import json
from collections.abc import Iterator

import pytest
from tests.nodes import StillNode
from tests.server.test_door_security import (
    BOB,
    JAAS,
    LOGINS,
    STANDARD,
    acl,
    ask,
    create_acls,
    remove_user,
    set_password,
    until,
)

from penstock.base.errors import ErrorCode
from penstock.client.line import LineClient
from penstock.gateway.peer_rpc.remote_watch import fetch_request
from penstock.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclResourceType,
    Operation,
    PatternType,
    Permission,
)
from penstock.security.authorizer import Authorizer
from penstock.testing import Cluster

ALICE = ("alice", "alice-secret")
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        **LOGINS,
        "listener.name.http.plain.sasl.jaas.config": JAAS.format(
            'user_alice="alice-secret" user_bob="bob secret%"'
        ),
        "authorizer.class.name": STANDARD,
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",  # the nodes
        "offsets.topic.num.partitions": PARTITIONS,
        "offsets.topic.replication.factor": 1,
        "default.replication.factor": 1,
        "num.partitions": PARTITIONS,
    }
    with Cluster(brokers=3, http=True, line=True, settings=settings) as cluster:
        first = cluster.brokers[0]
        create_acls(
            first,
            acl("ANONYMOUS", "CREATE", "BROKER", "kafka-cluster"),
            *(acl("alice", each, "TOPIC", "orders") for each in ("ALL", "CREATE")),
            acl("alice", "READ", "GROUP", "billing"),
        )
        for broker in cluster.brokers:  # the others follow within moments
            until(lambda broker=broker: ask(broker, "/topics/orders", as_user=ALICE).status == 404)
        yield cluster


def test_a_client_may_do_the_same_at_every_broker(cluster: Cluster) -> None:
    rows = [{"topic": "orders", "value": "aGk=", "partition": n % PARTITIONS} for n in range(30)]
    for broker in cluster.brokers:
        made = ask(broker, "/produce", method="POST", as_user=ALICE, body=rows)
        assert all("offset" in each for each in json.loads(made.data)), made.data  # type: ignore[attr-defined]
        denied = ask(broker, "/produce", method="POST", as_user=BOB, body=rows)
        assert denied.status == 403
    for broker in cluster.brokers:
        listed = ask(broker, "/topics/orders/records", as_user=ALICE)
        assert len(json.loads(listed.data)["records"]) == 90  # type: ignore[attr-defined]
        tail = ask(broker, "/topics/orders/tail?from=earliest&wait_ms=0", as_user=ALICE)
        assert tail.data.count(b"data: {") == 91  # type: ignore[attr-defined]  # with the event at its end
        found = ask(broker, "/topics/orders/search?contains=hi", as_user=ALICE)
        assert found.data.count(b'"type":"result"') == 90  # type: ignore[attr-defined]
        assert ask(broker, "/topics/orders/search?contains=hi", as_user=BOB).status == 403
        viewed = ask(broker, "/api/architecture/topics/orders", as_user=ALICE)
        assert viewed.data.count(b'"segments"') >= PARTITIONS  # type: ignore[attr-defined]
        path = "/topics/orders/partitions/{}/records?before=0"
        assert ask(broker, path.format(0), method="DELETE", as_user=ALICE).status == 200
        assert ask(broker, path.format(0), method="DELETE", as_user=BOB).status == 403
        for number in range(PARTITIONS):
            path = f"/consume?group=billing&topic=orders&partition={number}"
            consumed = ask(broker, path, as_user=ALICE)
            assert len(json.loads(consumed.data)["messages"]) == 15, consumed.data  # type: ignore[attr-defined]
            assert ask(broker, path, as_user=BOB).status == 403
    for broker in cluster.brokers:
        with (
            LineClient("127.0.0.1", broker.line_port, user="alice", password="alice-secret") as client,
            client.consume("orders", "billing", until_empty=True) as messages,
        ):
            message = next(messages)
            assert message.value == b"hi"
            message.ack()


def test_a_changed_user_counts_at_every_broker_at_once(cluster: Cluster) -> None:
    for password in ("first", "second"):
        set_password(cluster.brokers[0], "carol", password)
        for broker in cluster.brokers:
            assert ask(broker, "/topics", as_user=("carol", password)).status == 200
    remove_user(cluster.brokers[0], "carol")
    for broker in cluster.brokers:
        assert ask(broker, "/topics", as_user=("carol", "second")).status == 401


def test_a_gateway_reads_for_its_clients_with_cluster_action_and_others_do_not() -> None:
    node = StillNode(settings={"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"})
    node.create_topic("orders")
    context = node.node.context
    action = Acl(
        AclResourceType.CLUSTER,
        CLUSTER_NAME,
        PatternType.LITERAL,
        "User:broker",
        "*",
        Operation.CLUSTER_ACTION,
        Permission.ALLOW,
    )
    context.authorizer = Authorizer([action])
    key = context.image.topics["orders"].id, 0

    def code(principal: str, cluster_id: str | None) -> int:
        client = node.client()
        client.connection.session.principal = principal
        asked = fetch_request(cluster_id, {key: 0}, wait_ms=0, partition_bytes=100, bytes_max=100)  # type: ignore[arg-type]
        client.send(asked.api, 18, asked.write(18))
        node.world.advance(10)
        raw = client.raw_reply()
        assert raw is not None
        response = asked.read(memoryview(raw[2])[raw[3] :], 18)
        [(_, [result])] = response.topics
        return int(result.error_code)

    assert code("User:broker", context.cluster_id) == ErrorCode.NONE
    assert code("User:broker", None) == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "as any consumer"
    assert code("User:alice", context.cluster_id) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
