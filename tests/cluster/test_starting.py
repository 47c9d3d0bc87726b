"""What a client may count on from the moment that a broker says it is ready."""

from tests.handlers.cluster import make_request
from tests.server.raw import RawClient

from penstock.testing import Cluster
from penstock.wire import Api


def test_a_broker_that_is_ready_names_itself() -> None:
    """librdkafka asks once, and where it is told of no brokers at all it does not ask again for long."""
    for _ in range(3):
        with Cluster(brokers=2, controllers=1) as cluster:
            for number, broker in cluster.nodes.items():
                if broker not in cluster.brokers:
                    continue
                with RawClient(broker.port) as client:
                    reply = client.ask(Api.METADATA, 12, make_request(Api.METADATA, 12, topics=None))
                assert number in {each.node_id for each in reply.brokers}
