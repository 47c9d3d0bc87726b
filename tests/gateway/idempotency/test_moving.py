"""Keys of partitions whose leaders move: what a log no longer says does not count."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.gateway.producing_world import Desk

from penstock.base.errors import ErrorCode
from penstock.gateway.idempotency import digest_of
from penstock.gateway.idempotency.keys import MARK
from penstock.gateway.idempotency.log_reading import has_key
from penstock.gateway.idempotency.topic_files import Manifest, sound_end
from penstock.gateway.shared.producer import RecordPosition
from penstock.metadata.controller.requests import RegisterBroker
from penstock.metadata.records import Endpoint
from penstock.metadata.versions import SUPPORTED
from penstock.storage.epochs import EpochStart, LeaderEpochs


def with_epochs(log_end: int, *starts: tuple[int, int]) -> Any:
    epochs = LeaderEpochs([EpochStart(*each) for each in starts])
    return SimpleNamespace(number=0, log=SimpleNamespace(log_end=log_end, epochs=epochs))


@pytest.mark.parametrize(
    ("partition", "end"),
    [
        (with_epochs(120, (3, 0)), 90),
        (with_epochs(120, (3, 0), (5, 95)), 90),
        (with_epochs(120, (3, 0), (5, 60)), 60),
        (with_epochs(120, (2, 0), (5, 40)), 40),
        (with_epochs(70, (3, 0)), 70),
        (with_epochs(120, (5, 0)), 0),
        (with_epochs(0), 0),
    ],
    ids=["as it was", "led anew", "cut", "cut below", "shorter", "another log", "empty"],
)
def test_files_cover_a_log_up_to_where_it_became_another(partition: Any, end: int) -> None:
    assert sound_end(Manifest("orders", {"0": 90}, epochs={"0": 3}), partition) == end


def test_a_manifest_without_epochs_is_one_of_a_node_alone() -> None:
    assert sound_end(Manifest("orders", {"0": 90}), with_epochs(120, (7, 0))) == 90
    assert sound_end(Manifest("orders"), with_epochs(120, (7, 0))) == 0


def test_the_record_itself_says_whether_it_came_with_a_key() -> None:
    desk = Desk()
    desk.produce(partition=0)
    desk.produce(partition=0, idempotency_key="mine")
    log = desk.partition().log
    assert has_key(log, 1, digest_of(b"mine"))
    assert not has_key(log, 1, digest_of(b"another"))
    assert not has_key(log, 0, digest_of(b"mine"))


def test_what_is_saved_says_in_which_epoch() -> None:
    desk = Desk()
    desk.produce(partition=0, idempotency_key="mine")
    desk.save_keys()
    manifest = desk.keys().files.manifest
    assert manifest.covered["0"] == 1
    assert manifest.epochs == {"0": desk.partition().leader_epoch}


def test_nothing_beyond_the_high_watermark_is_saved_as_covered() -> None:
    """Another leader may write it anew."""
    desk = Desk()
    desk.produce(partition=0, idempotency_key="one")
    desk.produce(partition=0, idempotency_key="two")
    desk.partition().high_watermark = 1
    desk.save_keys()
    assert desk.keys().files.covered(0) == 1


def test_a_partition_that_is_led_anew_is_read_before_a_key_is_new() -> None:
    desk = Desk()
    placed = desk.produce(partition=0, idempotency_key="mine")
    desk.partition().leader_epoch += 1  # ahead of the image, as it is for a moment
    error = desk.error(desk.begin(partition=0, idempotency_key="unknown"))
    assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert desk.produce(partition=0, idempotency_key="mine") == placed == RecordPosition(0, 0)


def test_other_brokers_are_told_of_a_topics_first_key() -> None:
    desk = Desk()
    desk.produce(partition=0)
    joining = RegisterBroker(
        broker_id=2,
        cluster_id=desk.node.node.context.cluster_id,
        incarnation_id=b"n" * 16,
        endpoints=(Endpoint(name="PLAINTEXT", host="localhost", port=1, security_protocol=0),),
        features=SUPPORTED,
        log_dirs=(b"d" * 16,),
        rack=None,
        previous_epoch=-1,
    )
    desk.outcome(desk.node.node.context.controller.submit(joining))
    context = desk.node.node.context
    assert len(context.image.brokers) == 2
    topic = context.image.topics["orders"]
    assert not desk.producing.keys.may_have(topic)
    assert desk.produce(partition=0, idempotency_key="mine") == RecordPosition(0, 1)
    [marked] = [each for resource, each in context.image.configs.items() if resource.name == "orders"]
    assert marked[MARK] == "true"
    assert desk.keys().files.covered(0) == 1, "what was there before the first key is not read"
