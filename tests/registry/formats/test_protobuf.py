"""Protobuf: texts and descriptors are the same schema; Confluent's rules of compatibility."""

from base64 import b64encode
from contextlib import suppress

import pytest
from google.protobuf import descriptor_pb2, struct_pb2, type_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.registry.errors import RegistryError
from penstock.registry.formats.protobuf_compatibility import differences
from penstock.registry.formats.protobuf_schema import ProtobufSchema, parse
from penstock.registry.schema import PROTOBUF, ResolvedSchema


def proto(text: str, **references: str) -> ProtobufSchema:
    if not text.startswith("syntax"):
        text = f'syntax = "proto3"; {text}'
    return parse(ResolvedSchema(PROTOBUF, text, tuple(references.items())))


def kinds(reader: str, writer: str) -> list[str]:
    return [each.kind for each in differences(proto(reader), proto(writer))]


EVERYTHING = """syntax = "proto2";
package a.b;
import "google/protobuf/timestamp.proto";
option java_package = "q";
option optimize_for = SPEED;
message M {
  required int32 a = 1 [default = 5, deprecated = true];
  optional string text = 2 [default = "x\\"y\\\\z", json_name = "T"];
  map<string, .a.b.M> m = 3;
  oneof o { string s = 4; N n = 5; }
  reserved 6, 8 to 9, 1000 to max;
  reserved "foo";
  extensions 100 to 199;
  optional google.protobuf.Timestamp at = 10;
  optional group Result = 11 { optional bytes raw = 1 [default = "\\001"]; }
  enum E { option allow_alias = true; A = 0; B = -1 [deprecated = true]; C = -1; reserved 4 to 6; }
  message N { repeated E es = 1 [packed = true]; optional a.b.M.N self = 2; }
}
extend M { optional double d = 100; }
service S { rpc F (M) returns (stream M.N) { option deprecated = true; } }
"""


def test_a_file_its_text_and_its_descriptor_are_the_same() -> None:
    first = proto(EVERYTHING)
    assert first.canonical == EVERYTHING
    again = proto(first.identity)
    assert again.identity == first.identity
    assert again.descriptor == first.descriptor
    serialized = parse(ResolvedSchema(PROTOBUF, first.serialized))
    assert serialized.identity == first.identity
    assert serialized.canonical.startswith('syntax = "proto2";')


@pytest.mark.parametrize("module", [struct_pb2, type_pb2, descriptor_pb2])
def test_files_of_protobuf_itself_are_written_and_parsed_again(module: object) -> None:
    data = module.DESCRIPTOR.serialized_pb  # type: ignore[attr-defined]
    first = parse(ResolvedSchema(PROTOBUF, b64encode(data).decode()))
    again = proto(first.canonical)
    assert again.identity == first.identity


def test_comments_and_order_make_no_other_schema_when_normalized() -> None:
    one = proto("// hi\nmessage A { int32 b = 2; int32 a = 1; } message B {}")
    two = proto("message B { } message A { int32 a = 1; /* x */ int32 b = 2; }")
    assert one.identity != two.identity
    assert one.normalized == two.normalized


def test_names_that_hide_others_keep_their_dot() -> None:
    text = 'syntax = "proto3"; package p; message A { message A { .p.A outer = 1; A inner = 2; } }'
    schema = proto(text)
    again = proto(schema.identity)
    fields = again.descriptor.message_type[0].nested_type[0].field
    assert [each.type_name for each in fields] == [".p.A", ".p.A.A"]


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("message A { int32 a = 1; string b = 2; }", "message A { int32 a = 1; }", []),
        ("message A { }", "message A { int32 a = 1; }", []),
        ("message A { int64 renamed = 1; }", "message A { uint32 a = 1; }", []),
        ("message A { string a = 1; }", "message A { bytes a = 1; }", []),
        ("message A { sint32 a = 1; }", "message A { int32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("message A { repeated int32 a = 1; }", "message A { int32 a = 1; }", ["FIELD_NUMERIC_LABEL_CHANGED"]),
        ("message A { repeated string a = 1; }", "message A { string a = 1; }", []),
        ("message A { A a = 1; }", "message A { int32 a = 1; }", ["FIELD_KIND_CHANGED"]),
        ("message B { }", "message A { }", ["MESSAGE_REMOVED"]),
        ("message A { B x = 1; } message B {} message C {}", "message A { C x = 1; } message B {} message C {}",
         ["FIELD_NAMED_TYPE_CHANGED"]),
        ("message A { map<string, string> m = 1; }", "message A { map<string, int32> m = 1; }",
         ["FIELD_SCALAR_KIND_CHANGED"]),
        ("message A { oneof o { int32 a = 1; int32 b = 2; } }", "message A { int32 a = 1; int32 b = 2; }",
         ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"]),
        ("message A { oneof o { int32 a = 1; } }", "message A { int32 a = 1; }", []),
        ("message A { oneof o { int32 a = 1; int32 b = 2; } }", "message A { int32 a = 1; oneof o { int32 b = 2; } }",
         ["FIELD_MOVED_TO_EXISTING_ONEOF"]),
        ("message A { oneof o { int32 a = 1; } }", "message A { oneof o { int32 a = 1; int32 b = 2; } }",
         ["ONEOF_FIELD_REMOVED"]),
        ("message A { optional int32 a = 1; }", "message A { int32 a = 1; }", []),
        ("package x; message A { B b = 1; } message B {}", "package y; message A { B b = 1; } message B {}", []),
        ("message A { E e = 1; } enum E { X = 0; }", "message A { int32 e = 1; }", []),
        ('syntax = "proto2"; message A { required int32 a = 1; }', "message A { }", ["REQUIRED_FIELD_ADDED"]),
    ],
)  # fmt: skip
def test_rules(reader: str, writer: str, expected: list[str]) -> None:
    assert kinds(reader, writer) == expected


def test_imports_are_references_or_known_files() -> None:
    uses = (
        'import "x.proto"; import "google/protobuf/any.proto"; import "confluent/type/decimal.proto"; '
        "message A { x.B b = 1; google.protobuf.Any any = 2; confluent.type.Decimal price = 3; }"
    )
    inner = 'syntax = "proto3"; package x; message B { int32 a = 1; }'
    assert differences(proto(uses, **{"x.proto": inner}), proto(uses, **{"x.proto": inner})) == []
    with pytest.raises(RegistryError, match=r"the import x\.proto is neither a reference"):
        proto(uses)
    with pytest.raises(RegistryError, match="imports itself"):
        proto('import "x.proto"; message A {}', **{"x.proto": 'syntax="proto3"; import "x.proto";'})


@pytest.mark.parametrize(
    "text",
    ["x", 'syntax = "proto4";', "message { }", "message A { B b = 1; }", "message A { int32 a = 0; }",
     "message A { int32 a = 1; int32 b = 1; }", "message A {" * 200, "message A { int32 a = 1 }",
     "message A { reserved 9 to 3; }", "enum E { }", "x" * 300_000],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RegistryError, match="Invalid schema of type PROTOBUF: ") as error:
        proto(text)
    assert error.value.error_code in (42201, 42209)
    assert len(str(error.value)) < 500


NAMES = st.sampled_from(["a", "b", "c_d"])
TYPES = st.sampled_from(
    ["int32", "string", "bytes", "double", "bool", "A", "E", "A.N", "map<string, E>", "map<int32, A>"]
)
FIELDS = st.lists(
    st.tuples(NAMES, st.integers(1, 6), TYPES, st.sampled_from(["", "repeated ", "optional "])), max_size=4
)


@given(FIELDS)
@settings(deadline=None)
def test_what_is_parsed_is_written_and_parsed_again(fields: list[tuple[str, int, str, str]]) -> None:
    lines = [
        f"{'' if kind.startswith('map') else label}{kind} {name} = {number};"
        for name, number, kind, label in fields
    ]
    text = f"message A {{ {' '.join(lines)} message N {{}} }} enum E {{ Z = 0; }}"
    with suppress(RegistryError):  # two fields with a name or a number
        first = proto(text)
        assert proto(first.identity).identity == first.identity
        assert parse(ResolvedSchema(PROTOBUF, first.serialized)).identity == first.identity
        assert differences(first, first) == []


@given(st.text(st.sampled_from('message{}=;0123 "ABint32<>[]/*')))
@settings(deadline=None, max_examples=50)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(RegistryError):
        proto(text)
