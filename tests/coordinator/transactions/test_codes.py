"""Which codes clients of each age are told."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.transactions import codes
from penstock.wire import Api


@pytest.mark.parametrize(
    ("api", "since"),
    [
        (Api.INIT_PRODUCER_ID, 4),
        (Api.ADD_PARTITIONS_TO_TXN, 2),
        (Api.ADD_OFFSETS_TO_TXN, 2),
        (Api.END_TXN, 2),
    ],
)
def test_older_clients_know_a_fenced_producer_by_its_epoch(api: Api, since: int) -> None:
    """KIP-588."""
    for version in range(since):
        told = codes.for_client(ErrorCode.PRODUCER_FENCED, api, version)
        assert told is ErrorCode.INVALID_PRODUCER_EPOCH
    assert codes.for_client(ErrorCode.PRODUCER_FENCED, api, since) is ErrorCode.PRODUCER_FENCED
    assert codes.for_client(ErrorCode.INVALID_TXN_STATE, api, 0) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.NONE, 9, ErrorCode.NONE),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_producer_whose_partition_is_not_in_the_transaction(
    code: ErrorCode, version: int, told: ErrorCode
) -> None:
    """KIP-890, KIP-1050: older producers must take it for something that they try again, or give up for."""
    assert codes.for_write(code, Api.PRODUCE, version) is told


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 3, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, 3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_commit_of_offsets_that_is_not_in_the_transaction(
    code: ErrorCode, version: int, told: ErrorCode
) -> None:
    assert codes.for_write(code, Api.TXN_OFFSET_COMMIT, version) is told


def test_from_which_version_a_write_adds_its_partition() -> None:
    """KIP-890 part 2."""
    assert [each for each in range(14) if codes.adds_partitions(Api.PRODUCE, each)] == [12, 13]
    assert [each for each in range(6) if codes.adds_partitions(Api.TXN_OFFSET_COMMIT, each)] == [5]


def test_a_log_that_cannot_be_written_is_a_coordinator_that_cannot_be_asked() -> None:
    told = {
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS: ErrorCode.INVALID_REQUIRED_ACKS,
    }
    assert {each: codes.for_failed_write(each) for each in told} == told
