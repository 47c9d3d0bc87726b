"""Topics of a cluster of three, asked at any node: sizes over all replicas, lags, and logs led elsewhere."""

from collections.abc import Iterator

import pytest
from tests.gateway.peer_rpc.doors import ask, doors, good, produce

from penstock.testing import Cluster

pytestmark = pytest.mark.xdist_group("topics-anywhere")

RECORDS = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with doors() as started:
        broker = started.brokers[0]
        good(broker, "POST", "/topics", {"name": "orders", "partitions": 6})
        good(broker, "POST", "/topics", {"name": "single", "partitions": 3, "replication_factor": 1})
        for number in range(RECORDS):
            produce(broker, "orders", f"value {number}", partition=number % 6, seconds_max=30)
            produce(broker, "single", f"value {number}", partition=number % 3, seconds_max=30)
        yield started


def test_every_node_lists_the_same_sizes(cluster: Cluster) -> None:
    lists = [good(each, "GET", "/topics?details=true") for each in cluster.brokers]
    for each in lists:
        assert each["unanswered"] == []
        orders, single = each["topics"]
        assert (orders["messages"], single["messages"]) == (RECORDS, RECORDS)
        assert orders["under_replicated"] == 0
        described = good(cluster.brokers[1], "GET", "/topics/orders?details=true")["partitions"]
        held = [state["size_bytes"] for row in described for state in row["replica_states"]]
        assert orders["size_bytes"] == sum(held)
        assert len(held) == 18
    assert len({each["topics"][0]["size_bytes"] for each in lists}) == 1


def test_replicas_have_their_lag_from_the_leader(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        for row in good(broker, "GET", "/topics/orders?details=true")["partitions"]:
            assert row["end"] == 5
            states = {each["broker"]: each for each in row["replica_states"]}
            assert list(states) == row["replicas"]
            assert [each for each in states if states[each]["is_leader"]] == [row["leader"]]
            assert all(each["in_sync"] for each in states.values())
            # A follower's next fetch tells the leader what it has.
            assert all(each["lag"] is None or 0 <= each["lag"] <= 5 for each in states.values())


def test_a_log_led_elsewhere_is_inspected_at_its_leader(cluster: Cluster) -> None:
    for number in range(3):
        at = f"/api/architecture/topics/single/partitions/{number}"
        for path in ("batches?offset=0", "indexes?offset=0", "lookup?offset=4", "lookup?time=1"):
            answers = [good(each, "GET", f"{at}/{path}") for each in cluster.brokers]
            assert answers[0] == answers[1] == answers[2]
        assert sum(each["records"] for each in answers_batches(cluster, at)) == RECORDS // 3
        for broker in cluster.brokers:
            refused = ask(broker, "GET", f"{at}/lookup?offset=99")
            assert (refused.status, refused.json["error"]["code"]) == (409, "offset_out_of_range")
            assert f"single-{number} has offsets 0 to 10, not 99" in refused.json["error"]["message"]


def answers_batches(cluster: Cluster, at: str) -> list[dict[str, int]]:
    return list(good(cluster.brokers[0], "GET", f"{at}/batches?offset=0&limit=1000")["batches"])


@pytest.mark.parametrize(
    "path",
    [
        "topics/orders/partitions/0/batches",
        "topics/orders/partitions/0/batches?offset=-1",
        "topics/orders/partitions/0/batches?offset=0&limit=0",
        "topics/orders/partitions/x/batches?offset=0",
        "topics/orders/partitions/0/lookup?time=soon",
        "topics/orders?partitions=0",
    ],
)
def test_bad_questions_are_refused(cluster: Cluster, path: str) -> None:
    assert ask(cluster.brokers[0], "GET", f"/api/architecture/{path}").status == 400


def test_what_does_not_exist_is_not_inspected(cluster: Cluster) -> None:
    for path in ("nothing/partitions/0", "orders/partitions/6"):
        assert (
            ask(cluster.brokers[0], "GET", f"/api/architecture/topics/{path}/lookup?offset=0").status == 404
        )


def test_a_broker_that_is_down_is_named_and_nothing_of_it_is_zero(cluster: Cluster) -> None:
    """Last: the broker stays down."""
    gone, gone_id = cluster.brokers[2], 3
    gone.stop()
    while True:
        answer = good(cluster.brokers[0], "GET", "/topics?details=true")
        orders, single = answer["topics"]
        if answer["unanswered"] and orders["under_replicated"] == 6:
            break
    assert answer["unanswered"] == [gone_id]
    assert orders["size_bytes"] is None
    assert (single["size_bytes"], single["messages"], single["bytes_in_per_second"]) == (None, None, None)
    assert single["offline"] == 1
    described = good(cluster.brokers[0], "GET", "/topics/orders?details=true")
    assert described["unanswered"] == [gone_id]
    for row in described["partitions"]:
        [lost] = [each for each in row["replica_states"] if each["broker"] == gone_id]
        assert (lost["size_bytes"], lost["in_sync"]) == (None, False)
