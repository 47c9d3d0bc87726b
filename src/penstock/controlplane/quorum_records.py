"""Converts between the Raft core's entries and the records of the metadata log and its snapshots.

A leader's entry becomes one batch: a control record, or the state machine's records. Voter sets and `kraft.version`
are in control records only, so `QuorumHistory` can be built from any log or snapshot. Directory ids are `UUID`s in the
core and 16 bytes in records.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.metadata import control_records as control
from penstock.metadata.records import AnyRecord, decode, encode
from penstock.raft.log import VotersEntry
from penstock.raft.ready import Append, Data, Entry, KRaftVersion, LeaderChange, Voters
from penstock.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.records import BatchBuilder, ControlType, RecordBatch, control_key, parse_control
from penstock.records.structs import CorruptStruct

BATCH_BYTES_MAX = 8 << 20
"""The largest proposal, Kafka's constant: a larger batch would not fit a follower's fetch."""

RECORD_OVERHEAD_MAX = 32
"""Upper bound of a record's size in a batch, without its value."""


class QuorumChange(NamedTuple):
    """A control record that changes the quorum."""

    offset: Offset
    voters: VoterSet | None = None
    kraft_version: int | None = None


class QuorumHistory:
    """Voter sets and `kraft.version`s of a log by the offset from which they hold."""

    def __init__(self) -> None:
        self._voters: list[VotersEntry] = []
        self._versions: list[tuple[Offset, int]] = []

    def add(self, fact: QuorumChange) -> None:
        if fact.voters is not None:
            self._voters.append(VotersEntry(fact.offset, fact.voters))
        if fact.kraft_version is not None:
            self._versions.append((fact.offset, fact.kraft_version))

    def add_header(self, end: Offset, kraft_version: int, voters: VoterSet | None) -> None:
        """Add the header of a snapshot that ends there."""
        if kraft_version > 0:
            self.add(QuorumChange(end - 1, voters, kraft_version))

    def truncate(self, end: Offset) -> None:
        self._voters = [entry for entry in self._voters if entry.offset < end]
        self._versions = [each for each in self._versions if each[0] < end]

    def voters_before(self, offset: Offset) -> VotersEntry | None:
        return next((entry for entry in reversed(self._voters) if entry.offset < offset), None)

    def kraft_version_before(self, offset: Offset) -> int:
        return next((level for at, level in reversed(self._versions) if at < offset), 0)


def control_batch(
    messages: Iterable[control.ControlMessage],
    base_offset: Offset,
    epoch: LeaderEpoch,
    timestamp: TimestampMs,
) -> bytes:
    builder = BatchBuilder(base_offset, control=True, leader_epoch=epoch)
    for message in messages:
        builder.append(control_key(message.TYPE), control.encode_control(message), timestamp)
    return builder.build()


def data_batch(
    values: Sequence[bytes], base_offset: Offset, epoch: LeaderEpoch, timestamp: TimestampMs
) -> bytes:
    """A batch of encoded state machine records, without keys."""
    builder = BatchBuilder(base_offset, leader_epoch=epoch)
    for value in values:
        builder.append(None, value, timestamp)
    return builder.build()


def encode_all(records: Sequence[AnyRecord]) -> tuple[bytes, ...]:
    """Encode state machine records for one batch."""
    values = tuple(encode(record) for record in records)
    size = sum(len(value) + RECORD_OVERHEAD_MAX for value in values)
    if size > BATCH_BYTES_MAX:
        raise KafkaError(
            f"{len(values)} metadata records take {size} bytes, expected at most {BATCH_BYTES_MAX}",
            ErrorCode.RECORD_LIST_TOO_LARGE,
        )
    return values


def entry_batch(append: Append) -> bytes:
    """The batch of a leader's entry."""
    entry = append.entry
    if isinstance(entry, Data):
        values = [value for value in entry.records if isinstance(value, bytes)]
        assert len(values) == len(entry.records), "the driver proposes encoded records"
        return data_batch(values, append.base_offset, append.epoch, append.timestamp)
    return control_batch([_control_message(entry)], append.base_offset, append.epoch, append.timestamp)


def entry_change(append: Append) -> QuorumChange | None:
    if isinstance(append.entry, Voters):
        return QuorumChange(append.base_offset, voters=append.entry.voters)
    if isinstance(append.entry, KRaftVersion):
        return QuorumChange(append.base_offset, kraft_version=append.entry.level)
    return None


def _control_message(entry: Entry) -> control.ControlMessage:
    if isinstance(entry, LeaderChange):
        return control.LeaderChangeMessage(
            leader_id=entry.leader_id,
            voters=tuple(control.Voter(id=key.id) for key in entry.voters),
            granting_voters=tuple(control.Voter(id=key.id) for key in entry.granting),
        )
    if isinstance(entry, KRaftVersion):
        return control.KRaftVersionRecord(kraft_version=entry.level)
    assert isinstance(entry, Voters)
    return voters_record(entry.voters)


def voters_record(voters: VoterSet) -> control.VotersRecord:
    return control.VotersRecord(
        voters=tuple(
            control.QuorumVoter(
                id=voter.key.id,
                directory_id=voter.key.directory_id.bytes,
                endpoints=tuple(
                    control.VoterEndpoint(name=each.listener, host=each.host, port=each.port)
                    for each in voter.endpoints
                ),
                kraft_version=control.KRaftVersionRange(
                    min_level=voter.kraft_versions[0], max_level=voter.kraft_versions[1]
                ),
            )
            for voter in voters
        )
    )


def voters_of(record: control.VotersRecord) -> VoterSet:
    try:
        return VoterSet.of(
            Voter(
                ReplicaKey(voter.id, UUID(bytes=voter.directory_id)),
                tuple(Endpoint(each.name, each.host, each.port) for each in voter.endpoints),
                (voter.kraft_version.min_level, voter.kraft_version.max_level),
            )
            for voter in record.voters
        )
    except ValueError as error:
        raise CorruptStruct(f"a voters record: {error}") from error


def control_messages(
    batch: RecordBatch,
) -> Iterator[tuple[Offset, ControlType, control.ControlMessage | None]]:
    """Each record of a control batch; the message is None for an unknown type."""
    for record in batch.records():
        kind = parse_control(record).type
        if kind is ControlType.UNKNOWN:
            yield record.offset, kind, None
        else:
            yield record.offset, kind, control.decode_control(kind, record.value or b"")


def quorum_changes_in(batch: RecordBatch) -> Iterator[QuorumChange]:
    """The quorum changes in a control batch."""
    for offset, _, message in control_messages(batch):
        if isinstance(message, control.VotersRecord):
            yield QuorumChange(offset, voters=voters_of(message))
        elif isinstance(message, control.KRaftVersionRecord):
            yield QuorumChange(offset, kraft_version=message.kraft_version)


def records_in(batch: RecordBatch) -> tuple[AnyRecord, ...]:
    """The state machine's records in a batch."""
    return tuple(decode(record.value or b"") for record in batch.records())
