"""What the coordinator decides, in the logs of partitions: readers, fences, and markers that come twice."""

import pytest
from tests.coordinator.transactions.driver import ID, NOW_MS, TIMEOUT_MS, V1, Driver
from tests.storage.world import EVERYTHING, make_batch, open_small

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.coordinator.transactions.requests import InitProducerId, Markers, ProducerEpoch
from penstock.records import end_txn_marker
from penstock.storage import Log, Origin
from penstock.vfs import MemoryDisk

NAMES = [TopicPartition("orders", number) for number in range(2)]


class Logs:
    def __init__(self) -> None:
        directory = open_small(MemoryDisk(), LogSettings())
        self.of: dict[TopicPartition, Log] = {name: directory.create(name, now_ms=NOW_MS) for name in NAMES}

    def produce(self, producer: ProducerEpoch, sequence: int = 0) -> None:
        for log in self.of.values():
            data = make_batch(2, producer=(*producer, sequence), transactional=True)
            log.append(data, leader_epoch=0, now_ms=NOW_MS)

    def mark(self, markers: Markers) -> None:
        data = end_txn_marker(*markers.producer, markers.commit, markers.coordinator_epoch, NOW_MS)
        for name in sorted(markers.partitions):
            self.of[name].append(bytearray(data), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)

    def stable(self) -> set[bool]:
        """Whether readers of committed data may see all of each log."""
        return {log.last_stable == log.log_end for log in self.of.values()}

    def aborted(self) -> set[tuple[int, int]]:
        """Producer and first offset of what such readers skip, over all logs."""
        return {
            (each.producer_id, each.first_offset)
            for log in self.of.values()
            for each in log.aborted(0, EVERYTHING)
        }


def begun(version: int = 2) -> tuple[Driver, Logs, ProducerEpoch]:
    driver, logs = Driver(), Logs()
    producer = driver.init()
    assert driver.add(producer, *NAMES, version=version) is ErrorCode.NONE
    logs.produce(producer)
    assert logs.stable() == {False}
    return driver, logs, producer


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_lets_readers_on_and_an_abort_tells_them_what_to_skip(commit: bool, version: int) -> None:
    driver, logs, producer = begun(version)
    driver.end(producer, commit=commit, version=version)
    for markers in driver.write_markers():
        logs.mark(markers)
    assert logs.stable() == {True}
    assert logs.aborted() == (set() if commit else {(producer.producer_id, 0)})


def test_the_next_transaction_of_version_2_begins_at_sequence_0_and_the_last_one_is_fenced() -> None:
    """KIP-890 part 2: what is late from the transaction before cannot join the next."""
    driver, logs, producer = begun()
    reply = driver.end(producer)
    for markers in driver.write_markers():
        logs.mark(markers)
    with pytest.raises(KafkaError) as caught:
        logs.produce(producer, 2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    logs.produce(ProducerEpoch(reply.producer_id, reply.epoch), 0)


def test_a_fencing_abort_shuts_the_old_producer_out_of_every_partition() -> None:
    driver, logs, producer = begun(V1)
    driver.ask(InitProducerId(ID, TIMEOUT_MS))
    for markers in driver.write_markers():
        logs.mark(markers)
    with pytest.raises(KafkaError) as caught:
        logs.produce(producer, 2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    logs.produce(driver.init(), 0)


def test_markers_written_again_after_a_reload_do_no_harm() -> None:
    driver, logs, producer = begun()
    driver.end(producer, commit=False)
    logs.mark(driver.coordinator.take_markers()[0])
    driver.reload()
    logs.mark(driver.write_markers()[0])
    assert logs.stable() == {True}
    assert logs.aborted() == {(producer.producer_id, 0)}


def test_a_deposed_coordinators_markers_are_fenced() -> None:
    """Or they would end the next transaction, which before KIP-890 has the same producer and epoch."""
    driver, logs, producer = begun(V1)
    driver.end(producer, version=V1)
    (late,) = driver.coordinator.take_markers()
    driver.reload()
    logs.mark(driver.write_markers()[0])
    driver.add(producer, *NAMES, version=V1)
    logs.produce(producer, 2)
    with pytest.raises(KafkaError) as caught:
        logs.mark(late)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert logs.stable() == {False}


def test_no_client_may_write_a_marker() -> None:
    _, logs, producer = begun()
    data = bytearray(end_txn_marker(*producer, True, 0, NOW_MS))
    with pytest.raises(KafkaError) as caught:
        logs.of[NAMES[0]].append(data, leader_epoch=0, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
