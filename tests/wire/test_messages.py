import struct
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from kio.serial import entity_reader
from tests.wire.entities import assault, latest, make

from penstock.wire import (
    KAFKA_RANGES,
    Api,
    MalformedRequest,
    MalformedResponse,
    UnsupportedVersion,
    read_request,
    read_response,
    request_module,
    write_request,
    write_response,
)
from penstock.wire.messages import request_type, response_type
from penstock.wire.outline import bytes_min

ROOT = Path(__file__).parents[2]


def some(text: str) -> Random:
    return Random(text)


@pytest.mark.parametrize("api", sorted(KAFKA_RANGES))
def test_messages_of_every_version_read_as_they_were_written(api: Api) -> None:
    rng = some(str(api))
    low, high = KAFKA_RANGES[api]
    for version in [*range(low, high + 1)] * 3:
        request, response = make(request_type(api, version), rng), make(response_type(api, version), rng)
        asked, answered = write_request(api, version, request), write_response(api, version, response)
        assert read_request(api, version, memoryview(asked)) == request
        assert read_response(api, version, memoryview(answered)) == response
        assert bytes_min(type(request)) <= len(asked)
        assert bytes_min(type(response)) <= len(answered)


@pytest.mark.parametrize("api", sorted(KAFKA_RANGES))
def test_a_damaged_request_is_refused_and_nothing_else(api: Api) -> None:
    rng = some(str(api))
    for version in {KAFKA_RANGES[api].min, latest(api)}:
        request = make(request_type(api, version), rng)
        data = write_request(api, version, request)
        parse = partial(read_request, api, version)
        assault(parse, data, rng, rounds=60, may_have_tail=True)


def test_librdkafka_asks_for_all_topics_with_three_bytes_too_many() -> None:
    """Its issue 5049: a null array of 4 bytes where 1 is due. Kafka reads what it knows and passes over the rest."""
    asked = read_request(Api.METADATA, 13, memoryview(bytes.fromhex("00000000010000")))
    assert asked.topics is None


@pytest.mark.parametrize("api", [Api.METADATA, Api.DESCRIBE_CLUSTER, Api.LIST_OFFSETS, Api.SASL_HANDSHAKE])
def test_a_damaged_response_is_refused_and_nothing_else(api: Api) -> None:
    rng = some(str(api))
    version = latest(api)
    data = write_response(api, version, make(response_type(api, version), rng))
    assault(lambda view: read_response(api, version, view), data, rng, rounds=60)


HOSTILE = """
import resource
from random import Random
from penstock.wire import KAFKA_RANGES, MalformedRequest, read_request, write_request
from penstock.wire.messages import request_type
from tests.wire.entities import make
read = {}
for api, (low, high) in KAFKA_RANGES.items():
    for version in {low, high}:
        data = write_request(api, version, make(request_type(api, version), Random(api)))
        read[api, version] = data
resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
for (api, version), data in read.items():
    for at in range(len(data)):
        for lie in (b"\\x7f\\xff\\xff\\xff", b"\\xff\\xff\\xff\\xff\\x07", b"\\xff\\xff\\xff\\x7f"):
            try:
                read_request(api, version, memoryview(data[:at] + lie + data[at:]))
            except MalformedRequest:
                pass
print("alive")
"""


def test_a_length_that_lies_does_not_take_the_process_down() -> None:
    """kio's reader makes room for what an array says it has; where there is none, the process is aborted."""
    room = 1 << 30
    script = HOSTILE.replace("ROOM", str(room))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-500:]


def test_a_receive_buffer_is_read_where_it_lies_and_let_go() -> None:
    """kio takes only views that cannot be written to; a buffer that is still held could not grow."""
    sound, garbled = bytearray(b"\0\0\0\1\0\1a"), bytearray(b"\0\0\0\1\0\2\xff\xff")
    with memoryview(sound) as view:
        assert read_request(Api.METADATA, 1, view).topics[0].name == "a"
    sound.append(0)
    with memoryview(garbled) as view, suppress(MalformedRequest):
        read_request(Api.METADATA, 1, view)
    garbled.append(0)


def test_items_are_counted_against_a_limit() -> None:
    body = struct.pack(">i", 1000) + b"\0\0" * 1000
    assert len(read_request(Api.METADATA, 1, memoryview(body)).topics) == 1000
    with pytest.raises(MalformedRequest, match="limit"):
        read_request(Api.METADATA, 1, memoryview(body), items_max=999)


def test_a_null_where_there_cannot_be_one_is_refused() -> None:
    """kio would give None, and a handler would stumble over it."""
    null = struct.pack(">i", -1)
    assert read_request(Api.METADATA, 1, memoryview(null)).topics is None
    with pytest.raises(MalformedRequest):
        read_request(Api.METADATA, 0, memoryview(null))


def test_tags_from_the_future_are_cut_out() -> None:
    """KIP-482: unknown tags are skipped; kio refuses them."""
    api, version = Api.CREATE_TOPICS, 7
    module = request_module(api, version)
    plain = write_request(
        api,
        version,
        module.CreateTopicsRequest(
            topics=tuple(
                module.CreatableTopic(
                    name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
                )
                for name in ("aa", "bb")
            )
        ),
    )
    topic = b"\3aa\0\0\0\1\0\1\1\1"
    assert topic in plain
    tagged = plain.replace(topic + b"\0", topic + b"\2\x63\2xy\x64\0")[:-1] + b"\1\x07\1z"
    with pytest.raises(KeyError):
        entity_reader(module.CreateTopicsRequest)(tagged, 0)
    assert read_request(api, version, memoryview(tagged)) == read_request(api, version, memoryview(plain))


def test_a_known_tag_is_kept_beside_an_unknown_one() -> None:
    module = request_module(Api.FETCH, 18)
    body = (
        bytes(21)
        + b"\1\1\1"
        + b"\3\0\4\3abc"[:1]
        + b"\0\4\4abc"
        + b"\x63\1z"
        + b"\1\x0d"
        + bytes(3)
        + b"\5"
        + bytes(9)
    )
    request = read_request(Api.FETCH, 18, memoryview(body))
    assert (request.cluster_id, request.replica_state) == (
        "abc",
        module.ReplicaState(replica_id=5, replica_epoch=0),
    )


def test_a_tag_that_is_longer_than_its_field_is_refused() -> None:
    body = bytes(21) + b"\1\1\1" + b"\1\0\5\4abcd"
    with pytest.raises(MalformedRequest):
        read_request(Api.FETCH, 18, memoryview(body))


@pytest.mark.parametrize(("api", "version"), [(Api.METADATA, 14), (Api.METADATA, -1), (Api.STOP_REPLICA, 0)])
def test_a_version_without_a_schema_is_refused(api: Api, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        read_request(api, version, memoryview(b""))


def test_an_entity_of_another_version_is_not_written() -> None:
    rng = Random(1)
    with pytest.raises(TypeError):
        write_request(Api.METADATA, 12, make(request_type(Api.METADATA, 11), rng))


def test_a_reply_with_an_error_code_from_the_future_is_malformed() -> None:
    with pytest.raises(MalformedResponse):
        read_response(Api.SASL_HANDSHAKE, 1, memoryview(struct.pack(">hi", 999, 0)))


STARTUP = """
import sys
import penstock.wire
assert not any(name.startswith("kio.schema") for name in sys.modules), "kio came with the import"
penstock.wire.messages.request_type(penstock.wire.Api.METADATA, 12)
assert "hypothesis" not in sys.modules
import hypothesis.strategies
"""


def test_importing_wire_loads_neither_kios_schemas_nor_hypothesis() -> None:
    done = subprocess.run([sys.executable, "-c", STARTUP], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_hypothesis_stays_visible_to_who_has_imported_it() -> None:
    script = "import hypothesis, penstock.wire; from kio.static import _phantom; assert _phantom.hypothesis"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
