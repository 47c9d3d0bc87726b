"""Decoding of keys and values with a schema to typed Arrow columns: `python -m benchmarks.typed`.

200,000 records of six fields, each after a schema id, as a task of Spark's source gets them. Rows are processor time
of one core, the best of several rounds. `fastavro` to dictionaries stands beside them, as what a UDF would do.
"""

import io
import json
import os
import time
from collections.abc import Callable
from typing import Any, Final

import fastavro
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass
from rich.console import Console
from rich.table import Table

from penstock.arrow.typed.typed_column import ColumnSpec, TypedColumn
from penstock.records.schema_framing import ID_FRAME_BYTES, write_frame, write_message_indexes
from penstock.registry.formats.protobuf_schema import parse
from penstock.registry.schema import AVRO, JSON, PROTOBUF, ResolvedSchema

COUNT: Final = 200_000
ROUNDS: Final = 5
GOAL: Final = 1.0
"""Million records a second."""
FRAME: Final = write_frame(1)

AVRO_SCHEMA: Final = ResolvedSchema(
    AVRO,
    json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "customer", "type": "string"},
                {"name": "amount", "type": "double"},
                {"name": "quantity", "type": "int"},
                {"name": "paid", "type": "boolean"},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            ],
        }
    ),
)
JSON_SCHEMA: Final = ResolvedSchema(
    JSON,
    json.dumps(
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "customer": {"type": "string"},
                "amount": {"type": "number"},
                "quantity": {"type": "integer"},
                "paid": {"type": "boolean"},
                "at": {"type": "integer"},
            },
        }
    ),
)
PROTOBUF_SCHEMA: Final = ResolvedSchema(
    PROTOBUF,
    'syntax = "proto3"; message Order { int64 id = 1; string customer = 2; double amount = 3; int32 quantity = 4;'
    " bool paid = 5; int64 at = 6; }",
)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"customer {number % 1000}",
        "amount": number / 7,
        "quantity": number % 9,
        "paid": number % 2 == 0,
        "at": 1_700_000_000_000 + number,
    }


def avro_values() -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(AVRO_SCHEMA.text))
    found = []
    for number in range(COUNT):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, order(number))
        found.append(FRAME + stream.getvalue())
    return found


def json_values() -> list[bytes]:
    return [FRAME + json.dumps(order(number)).encode() for number in range(COUNT)]


def protobuf_values() -> list[bytes]:
    made = GetMessageClass(parse(PROTOBUF_SCHEMA).file.message_types_by_name["Order"])
    first = FRAME + write_message_indexes([0])
    return [first + made(**order(number)).SerializeToString() for number in range(COUNT)]


def rate(work: Callable[[], Any]) -> float:
    """Million records a second of processor time."""
    best = 0.0
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        best = max(best, COUNT / (time.process_time() - begun) / 1e6)
    return best


def decoding(schema: ResolvedSchema, values: list[bytes], bad: int = 0) -> float:
    column = TypedColumn(ColumnSpec(schema, True), lambda _: schema)
    array = pa.array(values, pa.binary())

    def work() -> None:
        found = column.decode(array)
        assert len(found.reasons) == bad
        assert found.array.null_count == bad

    return rate(work)


def main() -> int:
    avro = avro_values()
    damaged = [each[:-1] if index % 1000 == 0 else each for index, each in enumerate(avro)]
    parsed = fastavro.parse_schema(json.loads(AVRO_SCHEMA.text))
    rows = {
        "Avro": decoding(AVRO_SCHEMA, avro),
        "JSON": decoding(JSON_SCHEMA, json_values()),
        "Protobuf": decoding(PROTOBUF_SCHEMA, protobuf_values()),
        "Avro, one in 1,000 damaged": decoding(AVRO_SCHEMA, damaged, COUNT // 1000),
        "fastavro to dictionaries": rate(
            lambda: [
                fastavro.schemaless_reader(io.BytesIO(each[ID_FRAME_BYTES:]), parsed, None) for each in avro
            ]
        ),
    }
    table = Table("decoded to columns, six fields", "M records/s a core", "goal")
    for name, found in rows.items():
        table.add_row(name, f"{found:.2f}", f"at least {GOAL:g}" if name == "Avro" else "")
    console = Console()
    console.print(table)
    console.print(f"load average {os.getloadavg()[0]:.1f}")
    return 0 if rows["Avro"] >= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
