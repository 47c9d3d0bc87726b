"""The small files, Kafka's and ours: written as Kafka writes them, refused when they cannot be right."""

import pytest

from penstock.base.ids import TopicPartition, uuid_from_text, uuid_text
from penstock.storage.checkpoints import (
    Checkpoint,
    MetaProperties,
    RecoveryPoint,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_offsets,
    encode_partition_metadata,
)
from penstock.storage.errors import BadCheckpoint

OFFSETS = {TopicPartition("b-c", 2): 5, TopicPartition("a", 0): 17}


def test_an_offset_checkpoint_is_kafkas() -> None:
    data = encode_offsets(OFFSETS)
    assert data == b"0\n2\na 0 17\nb-c 2 5\n"
    assert decode_offsets(data, "x") == OFFSETS


def test_an_offset_checkpoint_without_entries() -> None:
    assert encode_offsets({}) == b"0\n0\n"
    assert decode_offsets(b"0\n0\n", "x") == {}
    assert decode_offsets(b"", "x") == {}, "Kafka makes the file before it has anything to say"


def test_every_prefix_of_an_offset_checkpoint_is_noticed() -> None:
    data = encode_offsets(OFFSETS)
    for cut in range(1, len(data)):
        with pytest.raises(BadCheckpoint):
            decode_offsets(data[:cut], "x")


@pytest.mark.parametrize(
    "data", [b"1\n0\n", b"0\n1\na 0\n", b"0\n1\na x 5\n", b"0\n1\na 0 x\n", b"\x80\n", b"0\n-1\n"]
)
def test_an_offset_checkpoint_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="the-path"):
        decode_offsets(data, "the-path")


def test_meta_properties_are_those_of_kraft() -> None:
    properties = MetaProperties("Q0xVU1RFUg", 3, "RElSRUNUT1JZ")
    assert MetaProperties.decode(properties.encode(), "x") == properties
    assert b"version=1\n" in properties.encode()
    kafkas = b"#\n#Mon Jan 01\nnode.id=3\nversion=1\ndirectory.id=RElSRUNUT1JZ\ncluster.id=Q0xVU1RFUg\n"
    assert MetaProperties.decode(kafkas, "x") == properties


def test_meta_properties_of_zookeepers_time_name_a_broker_id() -> None:
    assert MetaProperties.decode(b"version=0\nbroker.id=4\ncluster.id=x\n", "x").node_id == 4


@pytest.mark.parametrize("data", [b"", b"node.id=one\n", b"\xff\xff"])
def test_meta_properties_without_a_node_are_refused(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="the-path"):
        MetaProperties.decode(data, "the-path")


def test_partition_metadata_has_the_topics_id() -> None:
    topic_id = bytes(range(16))
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert decode_partition_metadata(data, "x") == topic_id


@pytest.mark.parametrize(
    "data",
    [b"", b"version: 0\n", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\ntopic_id: AA"],
)
def test_partition_metadata_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="the-path"):
        decode_partition_metadata(data, "the-path")


def test_ids_are_printed_as_kafka_prints_them() -> None:
    assert uuid_text(bytes([0xFF] * 16)) == "_____________________w"
    assert uuid_from_text("_____________________w") == bytes([0xFF] * 16)
    with pytest.raises(ValueError, match="not an id"):
        uuid_from_text("***")


def test_the_clean_shutdown_file_is_json_as_kafka_reads_it() -> None:
    assert encode_clean_shutdown(5) == b'{"version":0,"brokerEpoch":5}'


def test_our_checkpoint_comes_back() -> None:
    checkpoint = Checkpoint(clean=True, recovery_points={"a-0": RecoveryPoint(5, 0, 300)}, kafka_files=(1, 2))
    assert Checkpoint.decode(checkpoint.encode(), "x") == checkpoint


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 2}',
        b'{"recovery_points": {"a-0": {}}}',
        b'{"version": "\xff"}',
        b"\x00\xff",
    ],
)
def test_a_checkpoint_of_ours_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="the-path"):
        Checkpoint.decode(data, "the-path")
