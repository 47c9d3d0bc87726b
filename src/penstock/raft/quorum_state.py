"""The `quorum-state` file: the election state as Kafka writes it, one JSON object without a line end.

    version 0  {"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,
                "currentVoters":[{"voterId":1}],"data_version":0}
    version 1  {"leaderId":-1,"leaderEpoch":5,"votedId":2,"votedDirectoryId":"<base64>","data_version":1}

Version 0 goes with `kraft.version` 0, where voters are configured and have no directories; version 1 with
`kraft.version` 1, where they are in the log.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from json import JSONDecodeError, dumps, loads
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.raft.election import ElectionState
from penstock.raft.voters import NO_DIRECTORY, ReplicaKey, VoterSet

_NOBODY = -1


class BadQuorumState(KafkaError):
    code = ErrorCode.KAFKA_STORAGE_ERROR


def encode(state: ElectionState, version: int = 1, voters: VoterSet | None = None) -> bytes:
    """Encode the file. Version 0 contains the voters, but not the directory of the vote."""
    voted = state.voted or ReplicaKey(_NOBODY)
    fields: dict[str, object]
    if version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter.key.id} for voter in voters or VoterSet()],
        }
    elif version == 1:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "votedDirectoryId": urlsafe_b64encode(voted.directory_id.bytes).rstrip(b"=").decode(),
        }
    else:
        raise ValueError(f"quorum-state version is {version}, expected 0 or 1")
    return dumps({**fields, "data_version": version}, separators=(",", ":")).encode()


def decode(content: bytes, name: str = "quorum-state") -> ElectionState:
    """Decode a file of either version; `name` is used in errors."""
    try:
        fields = loads(content)
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise BadQuorumState(f"{name} is {content[:80]!r}, expected a JSON object") from error
    if not isinstance(fields, dict):
        raise BadQuorumState(f"{name} is {content[:80]!r}, expected a JSON object")
    version = _integer(fields, "data_version", name)
    if version not in (0, 1):
        raise BadQuorumState(f"{name} has data_version {version}, expected 0 or 1")
    epoch = _integer(fields, "leaderEpoch", name)
    if epoch < 0:
        raise BadQuorumState(f"{name} has leaderEpoch {epoch}, expected 0 or more")
    voted_id = _integer(fields, "votedId", name)
    directory_id = _directory(fields, name) if version == 1 else NO_DIRECTORY
    return ElectionState(
        epoch=epoch,
        leader_id=_integer(fields, "leaderId", name),
        voted=None if voted_id == _NOBODY else ReplicaKey(voted_id, directory_id),
    )


def _integer(fields: dict[str, object], key: str, name: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadQuorumState(f"{name} has {key} {value!r}, expected an integer")
    return value


def _directory(fields: dict[str, object], name: str) -> UUID:
    text = fields.get("votedDirectoryId")
    try:
        return UUID(bytes=urlsafe_b64decode(f"{text}=="))
    except ValueError as error:
        raise BadQuorumState(f"{name} has votedDirectoryId {text!r}, expected 16 bytes in base64") from error
