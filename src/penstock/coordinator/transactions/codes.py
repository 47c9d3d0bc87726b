"""Translates the coordinator's error codes for older clients.

The coordinator answers every client like a new one. Older clients know fewer codes, or treat some differently; these
tables are Kafka's.
"""

from typing import Final

from penstock.base.errors import ErrorCode
from penstock.wire import Api

FENCED_SINCE: Final[dict[Api, int]] = {
    Api.INIT_PRODUCER_ID: 4,
    Api.ADD_PARTITIONS_TO_TXN: 2,
    Api.ADD_OFFSETS_TO_TXN: 2,
    Api.END_TXN: 2,
}
"""The version from which a client knows PRODUCER_FENCED (KIP-588). Before, it is INVALID_PRODUCER_EPOCH."""

_PRODUCE_KNOWS_ABORTABLE = 11
_PRODUCE_ADDS = 12
_OFFSET_COMMIT_KNOWS_ABORTABLE = 4
_OFFSET_COMMIT_ADDS = 5

_RETRIABLE: Final = frozenset({
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


def for_client(code: ErrorCode, api: Api, version: int) -> ErrorCode:
    """The code in a reply of one of the transaction APIs."""
    if code is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE[api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def adds_partitions(api: Api, version: int) -> bool:
    """Whether a Produce or TxnOffsetCommit of this version adds its partition to the transaction (KIP-890 part 2)."""
    return version >= (_PRODUCE_ADDS if api is Api.PRODUCE else _OFFSET_COMMIT_ADDS)


def for_write(code: ErrorCode, api: Api, version: int) -> ErrorCode:
    """The code for a Produce or TxnOffsetCommit whose partition could not be verified or added."""
    is_produce = api is Api.PRODUCE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    knows_abortable = _PRODUCE_KNOWS_ABORTABLE if is_produce else _OFFSET_COMMIT_KNOWS_ABORTABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if not is_produce:
        # Older clients treat NETWORK_EXCEPTION as final; COORDINATOR_LOAD_IN_PROGRESS makes them retry.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code is ErrorCode.NETWORK_EXCEPTION else code
    # Older producers do not retry these codes; they retry NOT_ENOUGH_REPLICAS, without a metadata request.
    if code in _RETRIABLE or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds_partitions(api, version)
    ):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


def for_failed_write(code: ErrorCode) -> ErrorCode:
    """The code for a request whose records could not be written to the coordinator's partition."""
    match code:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    return code
