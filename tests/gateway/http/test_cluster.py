"""The cluster over HTTP."""

from confluent_kafka.admin import AdminClient
from tests.gateway.http.rest import client_of

from penstock.testing import Broker


def test_cluster_is_the_one_that_kafka_clients_see() -> None:
    with Broker(http=True) as broker, client_of(broker) as http:
        broker.create_topic("orders", 2)
        shown = http.get("/cluster").json()
        seen = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10)
        assert shown["cluster_id"] == seen.cluster_id
        [node] = shown["brokers"]
        assert node["id"] == shown["node_id"] == shown["controller"] == seen.controller_id
        assert not node["fenced"]
        assert [each["port"] for each in node["endpoints"]] == [broker.port]
        assert (shown["topics"], shown["partitions"]) == (1, 2)
