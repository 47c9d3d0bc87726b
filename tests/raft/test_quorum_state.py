"""The quorum-state file, byte for byte as Kafka 4.3 writes it."""

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.raft.bench import voter_set

from penstock.raft.election import ElectionState
from penstock.raft.quorum_state import BadQuorumState, decode, encode
from penstock.raft.voters import ReplicaKey

GOLDEN = Path(__file__).parents[1] / "golden/kafka/logs/__cluster_metadata-0/quorum-state"

DIRECTORY = UUID(bytes=bytes.fromhex("2445d8e9aab3418fb7d8fe534adcda16"))
"""JEXY6aqzQY-32P5TStzaFg in Kafka's spelling."""


def test_kafkas_own_file_is_read_and_written_alike() -> None:
    """Of a single node with configured voters: version 0."""
    content = GOLDEN.read_bytes()
    state = decode(content)
    assert state == ElectionState(epoch=2, leader_id=1, voted=None)
    assert encode(state, version=0, voters=voter_set(1)) == content


@pytest.mark.parametrize(
    ("state", "content"),
    [
        (
            ElectionState(5, -1, ReplicaKey(2, DIRECTORY)),
            b'{"leaderId":-1,"leaderEpoch":5,"votedId":2,"votedDirectoryId":"JEXY6aqzQY-32P5TStzaFg","data_version":1}',
        ),
        (
            ElectionState(7, 3),
            b'{"leaderId":3,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        ),
    ],
)
def test_version_1_is_what_kafkas_converter_prints(state: ElectionState, content: bytes) -> None:
    """The texts are those of QuorumStateDataJsonConverter in kafka-raft 4.3.1."""
    assert encode(state) == content
    assert decode(content) == state


@given(
    st.builds(
        ElectionState,
        epoch=st.integers(0, 2**31 - 1),
        leader_id=st.integers(-1, 2**31 - 1),
        voted=st.none() | st.builds(ReplicaKey, st.integers(0, 2**31 - 1), st.uuids()),
    )
)
def test_what_is_written_is_read(state: ElectionState) -> None:
    assert decode(encode(state)) == state
    forgets = state.voted and ReplicaKey(state.voted.id)
    assert decode(encode(state, version=0, voters=voter_set(1, 2))) == state._replace(voted=forgets)


def test_null_voters_are_read() -> None:
    """KIP-595's schema lets `currentVoters` be null."""
    content = (
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":0,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":null,"data_version":0}'
    )
    assert decode(content) == ElectionState()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a JSON object"),
        (b"\xff\xfe", "expected a JSON object"),
        (b"[]", "expected a JSON object"),
        (b"{}", "has data_version None, expected an integer"),
        (b'{"data_version":2}', "has data_version 2, expected 0 or 1"),
        (b'{"data_version":true}', "has data_version True, expected an integer"),
        (b'{"data_version":0,"leaderEpoch":"x"}', "has leaderEpoch 'x', expected an integer"),
        (b'{"data_version":0,"leaderEpoch":-1}', "has leaderEpoch -1, expected 0 or more"),
        (
            b'{"data_version":1,"leaderEpoch":1,"votedId":2,"leaderId":1,"votedDirectoryId":"AA"}',
            "has votedDirectoryId 'AA', expected 16 bytes in base64",
        ),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(content: bytes, message: str) -> None:
    with pytest.raises(BadQuorumState, match=message) as caught:
        decode(content, "logs/quorum-state")
    assert str(caught.value).startswith("logs/quorum-state ")


def test_every_prefix_of_a_file_is_refused() -> None:
    content = encode(ElectionState(5, -1, ReplicaKey(2, DIRECTORY)))
    for length in range(len(content)):
        with pytest.raises(BadQuorumState):
            decode(content[:length])


def test_an_unknown_version_is_not_written() -> None:
    with pytest.raises(ValueError, match="expected 0 or 1"):
        encode(ElectionState(), version=2)
