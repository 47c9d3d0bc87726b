"""Records of `_schemas`: written as Confluent's registry writes them, read as it and Karapace wrote them."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.registry.names import DEFAULT_CONTEXT
from penstock.registry.schema import AVRO, JSON, PROTOBUF, Reference, Schema
from penstock.registry.topic_records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
    TopicRecord,
    UnreadableRecord,
    parse,
    write,
)
from penstock.registry.view import RegistryView

names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
numbers = st.integers(1, 2**31 - 1)
objects = st.none() | st.dictionaries(names, names | st.integers(-5, 5), max_size=3).map(
    lambda each: json.dumps(each, ensure_ascii=False)
)
schemas = st.builds(
    Schema,
    st.sampled_from([AVRO, JSON, PROTOBUF]),
    names,
    st.lists(st.builds(Reference, names, names, numbers), max_size=3).map(tuple),
    objects,
    objects,
)
records: st.SearchStrategy[TopicRecord] = st.one_of(
    st.builds(SchemaRecord, names, numbers, numbers, schemas, st.booleans()),
    st.tuples(names, numbers).map(lambda each: SchemaRecord(*each)),
    st.builds(DeleteSubjectRecord, names, st.none() | numbers),
    st.builds(ClearSubjectRecord, names),
    st.builds(ModeRecord, st.none() | names, st.none() | names),
    st.builds(ContextRecord, names),
    st.builds(NoopRecord, st.none() | st.dictionaries(names, numbers, max_size=3)),
)


@given(records)
def test_what_is_written_is_read(record: TopicRecord) -> None:
    assert parse(*write(record)) == record


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            SchemaRecord("test", 1, 7, Schema(AVRO, '"string"')),
            '{"keytype":"SCHEMA","subject":"test","version":1,"magic":1}',
            r'{"subject":"test","version":1,"id":7,"schema":"\"string\"","deleted":false}',
        ),
        (
            SchemaRecord("p", 2, 8, Schema(PROTOBUF, "x", (Reference("a.proto", "a", 1),)), is_deleted=True),
            '{"keytype":"SCHEMA","subject":"p","version":2,"magic":1}',
            '{"subject":"p","version":2,"id":8,"schemaType":"PROTOBUF","references":[{"name":"a.proto","subject":"a",'
            '"version":1}],"schema":"x","deleted":true}',
        ),
        (SchemaRecord("test", 1), '{"keytype":"SCHEMA","subject":"test","version":1,"magic":1}', None),
        (
            DeleteSubjectRecord("test", 2),
            '{"keytype":"DELETE_SUBJECT","subject":"test","magic":0}',
            '{"subject":"test","version":2}',
        ),
        (
            ClearSubjectRecord("test"),
            '{"keytype":"CLEAR_SUBJECT","subject":"test","magic":0}',
            '{"subject":"test"}',
        ),
        (
            ConfigRecord(None, {"compatibilityLevel": "FULL"}),
            '{"keytype":"CONFIG","subject":null,"magic":0}',
            '{"subject":null,"compatibilityLevel":"FULL"}',
        ),
        (
            ModeRecord("test", "IMPORT"),
            '{"keytype":"MODE","subject":"test","magic":0}',
            '{"subject":"test","mode":"IMPORT"}',
        ),
        (NoopRecord(), '{"keytype":"NOOP","magic":0}', None),
    ],
)
def test_keys_and_values_are_confluents(record: TopicRecord, key: str, value: str | None) -> None:
    """The order of a key's fields decides what compaction takes for the same key."""
    assert write(record) == (key.encode(), None if value is None else value.encode())


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(key: bytes | None, value: bytes | None) -> None:
    view = RegistryView()
    view.replay(key, value, 4)
    assert view.position == 5
    with suppress(UnreadableRecord):
        parse(key, value)


CONFLUENT = [
    ('{"keytype":"NOOP","magic":0}', None),
    ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FORWARD"}'),
    (
        '{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}',
        r'{"subject":"a-value","version":1,"id":1,"schema":"\"string\"","deleted":false}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"b-value","version":1,"magic":1}',
        r'{"subject":"b-value","version":1,"id":1,"md5":"x","schema":"\"string\"","deleted":false,"ts":5,"offset":3}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"b-value","version":2,"magic":1}',
        '{"subject":"b-value","version":2,"id":2,"schemaType":"JSON","references":null,"metadata":null,"ruleSet":null,'
        '"schema":"{}","schemaTags":null,"deleted":false}',
    ),
    ('{"keytype":"DELETE_SUBJECT","subject":"a-value","magic":0}', '{"subject":"a-value","version":1}'),
    ('{"keytype":"MODE","subject":"b-value","magic":0}', '{"mode":"READONLY"}'),
    (
        '{"keytype":"SCHEMA","subject":":.eu:c-value","version":1,"magic":1}',
        r'{"subject":":.eu:c-value","version":1,"id":1,"schema":"\"int\"","deleted":false}',
    ),
    ('{"keytype":"FUTURE","subject":"x","magic":9}', "{}"),
    # Karapace, before it wrote keys as Confluent's:
    (
        '{"subject":"k-value","version":1,"magic":1,"keytype":"SCHEMA"}',
        r'{"subject":"k-value","version":1,"id":9,"schema":"\"long\"","deleted":false}',
    ),
]


def taken_over() -> RegistryView:
    view = RegistryView()
    for offset, (key, value) in enumerate(CONFLUENT):
        view.replay(key.encode(), None if value is None else value.encode(), offset)
    return view


def test_a_topic_of_another_registry_is_taken_over() -> None:
    view = taken_over()
    assert list(view.list_subjects()) == [":.eu:c-value", "b-value", "k-value"]
    assert list(view.list_subjects(deleted_only=True)) == ["a-value"]
    assert view.by_id(1) == (DEFAULT_CONTEXT, Schema(AVRO, '"string"'))
    assert view.by_id(1, ":.eu:c-value") == (".eu", Schema(AVRO, '"int"'))
    assert view.config_in_scope("b-value") == {"compatibilityLevel": "FORWARD"}
    assert view.mode_in_scope("b-value") == "READONLY"
    assert view.contexts[DEFAULT_CONTEXT].next_id == 10
    assert view.unreadable == 1


def test_a_record_is_removed_with_the_key_that_it_was_written_with() -> None:
    """Otherwise compaction would keep it, and a restart would bring it back."""
    version = taken_over().version("k-value", 1)
    assert version.record_key == CONFLUENT[-1][0].encode()
