"""Options of the source: read, and refused in one sentence that names option, value and expectation."""

import json
from typing import Any

import pytest

from penstock.base.ids import TopicPartition
from penstock.client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from penstock.client.settings import Address
from penstock.spark.errors import BadOption
from penstock.spark.reading.group import group_of
from penstock.spark.reading.offset_json import offsets_of, write_offsets
from penstock.spark.reading.options import (
    LimitKind,
    NoMatch,
    SourceOptions,
    SubscriptionKind,
    for_batch,
    for_stream,
    read_options,
)

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
TOPIC = {**SERVERS, "subscribe": "orders"}


def options(**given: Any) -> SourceOptions:
    return read_options(TOPIC | {name.replace("__", "."): str(value) for name, value in given.items()})


def test_defaults_are_those_of_sparks_source() -> None:
    found = read_options(TOPIC)
    assert found.servers == (Address("a", 1), Address("b", 2))
    assert found.subscription == (SubscriptionKind.TOPICS, ("orders",), "", ())
    assert (found.start, found.stop) == (None, None)
    assert found.fails_on_data_loss
    assert not found.with_headers
    assert found.isolation_level == READ_UNCOMMITTED
    assert (found.rows_max, found.rows_min, found.tasks_min, found.task_rows_max) == (None, None, None, None)
    assert found.no_match is NoMatch.ERROR
    assert found.trigger_delay_ms_max == 900_000


def test_names_are_taken_in_any_case() -> None:
    """Spark hands them over in lower case."""
    found = read_options(
        {
            "KAFKA.bootstrap.SERVERS": "h",
            "SUBSCRIBEpattern": "a.*",
            "maxoffsetspertrigger": "7",
            "FailOnDataLoss": "False",
        }
    )
    assert found.subscription.pattern == "a.*"
    assert found.rows_max == 7
    assert not found.fails_on_data_loss


def test_client_settings_are_taken() -> None:
    found = options(
        kafka__request__timeout__ms=5,
        kafka__default__api__timeout__ms=6,
        kafka__client__id="me",
        kafka__fetch__max__bytes=70_000,
        kafka__max__partition__fetch__bytes=60_000,
        kafka__isolation__level="read_committed",
        kafka__group__id="g",
        kafka__max__poll__records=500,
        kafkaConsumer__pollTimeoutMs=1234,
    )
    assert (found.client.request_timeout_ms, found.client.api_timeout_ms) == (5, 6)
    assert found.client.client_id == "me"
    assert found.fetch_bytes_max == 60_000
    assert found.isolation_level == READ_COMMITTED
    assert group_of(found) == "g"
    assert found.failing_ms_max == 1234


def test_offsets_and_times() -> None:
    found = options(startingOffsets='{"orders":{"0":-2,"1":5}}', endingOffsets=" Latest ")
    assert found.start is not None
    assert found.stop is not None
    assert found.start.values == {TopicPartition("orders", 0): -2, TopicPartition("orders", 1): 5}
    assert (found.start.edge, found.stop.edge) == (LimitKind.OFFSETS, LimitKind.LATEST)


def test_a_time_for_all_goes_before_times_by_partition_before_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders":{"0":3}}'}
    by_partition = read_options(TOPIC | given).start
    for_all = read_options(TOPIC | given | {"startingTimestamp": "9"}).start
    assert by_partition is not None
    assert for_all is not None
    assert (by_partition.edge, for_all.edge, for_all.time_ms) == (LimitKind.TIMES, LimitKind.TIME, 9)


@pytest.mark.parametrize(
    ("text", "expected"), [("250", 250), ("10s", 10_000), ("2 m", 120_000), ("1h", 3_600_000)]
)
def test_times_as_spark_writes_them(text: str, expected: int) -> None:
    assert options(maxTriggerDelay=text).trigger_delay_ms_max == expected


def test_who_asks_for_plain_connections_gets_them() -> None:
    """What is there now needs no saying, but jobs say it."""
    assert read_options({**TOPIC, "kafka.security.protocol": "PLAINTEXT"}) == read_options(TOPIC)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a:b"}, "kafka.bootstrap.servers: 'a:b' is no server"),
        (SERVERS, "no topic is named, expected one of the options subscribe, subscribePattern, assign"),
        ({**TOPIC, "assign": "{}"}, "options subscribe and assign are given, expected only one"),
        ({**SERVERS, "subscribe": " , "}, "option subscribe is ',', expected topic names"),
        ({**SERVERS, "subscribePattern": ""}, "option subscribePattern is empty"),
        ({**SERVERS, "subscribePattern": "("}, "'\\(', which is not a regular expression"),
        ({**SERVERS, "assign": "orders"}, "option assign is 'orders', expected"),
        ({**SERVERS, "assign": "{}"}, "option assign names no partition"),
        ({**SERVERS, "assign": '{"a": 1}'}, "option assign has 1 for topic a, expected a list"),
        (
            {**SERVERS, "assign": '{"a": ["0"]}'},
            "option assign has '0' for topic a, expected a partition's number",
        ),
        (
            {**TOPIC, "startingOffsets": "soon"},
            "option startingOffsets is 'soon', expected earliest, latest or",
        ),
        ({**TOPIC, "startingOffsets": "[1]"}, r"option startingOffsets is \[1\], expected for example"),
        ({**TOPIC, "startingOffsets": '{"a":{"x":1}}'}, "a partition 'x' of topic a"),
        (
            {**TOPIC, "startingOffsets": '{"a":{"0":-3}}'},
            "has -3 for a-0, expected a whole number of at least -2",
        ),
        ({**TOPIC, "startingOffsets": '{"a":{"0":true}}'}, "has True for a-0, expected a whole number"),
        ({**TOPIC, "startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "has -1 for a-0"),
        (
            {**TOPIC, "startingTimestamp": "noon"},
            "option startingTimestamp is 'noon', expected a time in milliseconds since 1970",
        ),
        ({**TOPIC, "startingOffsetsByTimestampStrategy": "x"}, "expected error or latest"),
        (
            {**TOPIC, "maxOffsetsPerTrigger": "0"},
            "option maxOffsetsPerTrigger is '0', expected a whole number from 1",
        ),
        ({**TOPIC, "minPartitions": "-1"}, "option minPartitions is '-1', expected a whole number from 1"),
        ({**TOPIC, "maxRecordsPerPartition": "1e3"}, "option maxRecordsPerPartition is '1e3'"),
        ({**TOPIC, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is 5, expected at most .*, 4"),
        ({**TOPIC, "maxTriggerDelay": "soon"}, "option maxTriggerDelay is 'soon', expected a time such as"),
        ({**TOPIC, "failOnDataLoss": "maybe"}, "option failOnDataLoss is 'maybe', expected true or false"),
        ({**TOPIC, "isolation.level": "some"}, "is 'some', expected read_uncommitted or read_committed"),
        (
            {**TOPIC, "isolation.level": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            "isolation.level and kafka.isolation.level differ",
        ),
        ({**TOPIC, "group": "g" * 250}, "option group has 250 characters"),
        ({**TOPIC, "startingOffset": "earliest"}, "no option startingOffset, did you mean startingOffsets"),
        ({**TOPIC, "kafka.fetch.max.byte": "1"}, "did you mean kafka.fetch.max.bytes"),
        ({**TOPIC, "zzzz": "1"}, "there is no option zzzz$"),
        (
            {**TOPIC, "kafka.auto.offset.reset": "latest"},
            "not supported: use startingOffsets instead",
        ),
        ({**TOPIC, "kafka.key.deserializer": "x"}, "keys are bytes"),
        ({**TOPIC, "kafka.enable.auto.commit": "true"}, "the query commits its position itself"),
        (
            {**TOPIC, "kafka.security.protocol": "TLS"},
            "option kafka.security.protocol is 'TLS', expected one of",
        ),
        (
            {**TOPIC, "kafka.security.protocol": "SASL_SSL"},
            "sasl.mechanism is 'GSSAPI', its default, expected one of",
        ),
        (
            {**TOPIC, "kafka.sasl.password": "planted"},
            "option kafka.sasl.password is set, but security.protocol is",
        ),
        ({**TOPIC, "kafka.ssl.provider": "X"}, "option kafka.ssl.provider is not supported: remove it"),
        (
            {**TOPIC, "clientConfig": "/nowhere.properties"},
            "cannot read /nowhere.properties",
        ),
        (
            {
                **TOPIC,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.username": "alice",
                "kafka.sasl.password": "${env:PENSTOCK_TEST_NOWHERE}",
            },
            "option kafka.sasl.password needs the environment variable PENSTOCK_TEST_NOWHERE, which is not set",
        ),
    ],
)
def test_what_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        read_options(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is latest, expected earliest or offsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest, expected latest or offsets"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, r"startingOffsets has -1 \(latest\) for a-0"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, r"endingOffsets has -2 \(earliest\) for a-0"),
    ],
)
def test_what_a_batch_cannot_use(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        for_batch(read_options(TOPIC | given))
    assert "starting" not in message or for_stream(read_options(TOPIC | given))


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"a":{"0":5}}')
    with pytest.raises(BadOption, match=f"option {name} is not for streams"):
        for_stream(read_options(TOPIC | {name: value}))


# -- names of groups --------------------------------------------------------------------------------------


def test_a_group_is_named_after_what_is_read() -> None:
    assert group_of(options()) == "spark-orders"
    assert group_of(read_options({**SERVERS, "subscribe": "b, a"})) == "spark-b,a"
    assert group_of(read_options({**SERVERS, "assign": '{"a":[1,0],"b":[3]}'})) == "spark-a,b"
    assert group_of(options(groupIdPrefix="team")) == "team-orders"
    assert group_of(options(group="mine", groupIdPrefix="team")) == "mine"


def test_an_empty_group_switches_it_off() -> None:
    assert group_of(options(group="")) is None


def test_a_long_name_is_cut_and_still_its_own() -> None:
    names = [group_of(read_options({**SERVERS, "subscribe": "t" * 300 + end})) for end in "ab"]
    assert all(name is not None and len(name) == 249 for name in names)
    assert names[0] != names[1]


# -- offsets as JSON --------------------------------------------------------------------------------------


def test_offsets_are_written_in_one_order_and_read_back() -> None:
    """Spark compares them as text; another order would be another offset."""
    given = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(write_offsets(given)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert json.dumps(write_offsets(dict(reversed(given.items())))) == json.dumps(write_offsets(given))
    assert offsets_of(write_offsets(given), "x") == given


def test_a_checkpoint_that_was_tampered_with() -> None:
    with pytest.raises(BadOption, match="the start of a batch has -5 for a-0"):
        offsets_of({"a": {"0": -5}}, "the start of a batch")
