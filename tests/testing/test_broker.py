"""The in-process broker with the node that ships."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.base.errors import KafkaError
from penstock.client.admin import list_topics
from penstock.client.cluster import Cluster
from penstock.client.settings import Address
from penstock.testing import Broker, BrokerFailed


def topics(broker: Broker) -> dict[str, int]:
    with Cluster([Address("127.0.0.1", broker.port)]) as cluster:
        return {each.name: len(each.partitions) for each in list_topics(cluster)}


def test_a_topic_that_was_made_can_be_used() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3, retention_ms=1000, cleanup_policy=["compact", "delete"])
        assert topics(broker) == {"orders": 3}


def test_what_the_broker_refuses_is_raised() -> None:
    with Broker() as broker:
        with pytest.raises(KafkaError, match=r"no\.such\.thing"):
            broker.create_topic("orders", no_such_thing=1)
        broker.create_topic("orders")
        with pytest.raises(KafkaError, match="orders"):
            broker.create_topic("orders")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_topics_are_there_after_a_stop_and_after_a_crash(how: str) -> None:
    others = set(threading.enumerate())
    with Broker() as broker:
        port = broker.port
        broker.create_topic("orders")
        getattr(broker, how)()
        broker.restart()
        assert broker.port == port
        assert topics(broker) == {"orders": 1}
    left = [each.name for each in set(threading.enumerate()) - others]
    assert not [name for name in left if name.startswith("penstock-")]


@pytest.mark.long
def test_nodes_of_one_process_load_what_they_speak_one_after_the_other() -> None:
    """CPython sees a deadlock where two threads import a module and the package that imports it, as kio's do."""
    program = (
        "import sys, threading\n"
        "import penstock.testing.broker\n"
        "from penstock.wire import KAFKA_RANGES\n"
        "from penstock.wire.messages import request_module, response_module\n"
        "sys.setswitchinterval(1e-6)\n"
        "failures = []\n"
        "def load(module):\n"
        "    for api in KAFKA_RANGES:\n"
        "        gate.wait()\n"
        "        try:\n"
        "            module(api, KAFKA_RANGES[api].max)\n"
        "        except Exception as error:\n"
        "            failures.append(error)\n"
        "gate = threading.Barrier(2)\n"
        "sides = request_module, response_module\n"
        "threads = [threading.Thread(target=load, args=(each,)) for each in sides]\n"
        "[each.start() for each in threads]\n"
        "[each.join() for each in threads]\n"
        "print(failures)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_directory_is_one_brokers(tmp_path: Path) -> None:
    with Broker(data=tmp_path), pytest.raises(BrokerFailed, match="in use"):
        Broker(data=tmp_path).start()
    with Broker(data=tmp_path):
        pass
