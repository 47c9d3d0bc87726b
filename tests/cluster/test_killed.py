"""Brokers that were killed come back with all they had; one that may have lost something waits for them."""

import logging
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from tests.cluster.views import Seen
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.patient import wait_until

from penstock.testing import Cluster

SETTINGS = {"min.insync.replicas": 2, "offsets.topic.replication.factor": 3}


def test_who_was_killed_leads_and_who_may_have_lost_something_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of two replicas loses power, fewer than min.insync.replicas, and the other is killed: nothing that was
    acknowledged is gone."""
    with Cluster(brokers=3, data=tmp_path, settings=SETTINGS) as cluster:
        seen = Seen(cluster.bootstrap)
        topic = NewTopic("orders", num_partitions=1, replica_assignment=[[2, 3]])
        seen.driver.admin.create_topics([topic])["orders"].result(SECONDS_MAX)
        offsets = seen.send("orders", [b"precious"] * 50, acks="all")
        wait_until(lambda: seen.isr("orders") == {2, 3})
        with caplog.at_level(logging.WARNING):
            cluster.brokers[1].kill()
            wait_until(lambda: seen.leader("orders") == 3)
            cluster.brokers[2].kill()
            lose_power(tmp_path / "node-2")
            cluster.brokers[1].start()
            leaders: list[int] = []

            def is_led_by(number: int) -> bool:
                leaders.append(seen.leader("orders"))
                return leaders[-1] == number

            wait_until(lambda: is_led_by(-1))
            cluster.brokers[2].start()
            wait_until(lambda: is_led_by(3))
            assert 2 not in leaders
        assert [each for each in caplog.messages if "unclean election" in each] == []
        wait_until(lambda: seen.isr("orders") == {2, 3})
        assert seen.send("orders", [b"more"], acks="all") == [offsets[-1] + 1]


def lose_power(node: Path) -> None:
    """The machine starts anew, and of what was not synced nothing is left."""
    (node / "meta" / "boot").unlink()
    for log in (node / "logs" / "orders-0").glob("*.log"):
        log.write_bytes(b"")
