"""A DataFrame's rows as a topic's: by topic, in order, in the encoder's types, and what is refused."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.spark.errors import BadRows
from penstock.spark.writing.rows import split_by_topic


def test_rows_go_to_the_topic_of_their_column_in_order() -> None:
    batch = pa.record_batch(
        {"value": ["a", "b", "c", "d"], "topic": ["x", "y", "x", "y"], "partition": [0, 1, None, 3]}
    )
    found = {
        rows.topic: (rows.records.column("value").to_pylist(), rows.partitions.to_pylist())
        for rows in split_by_topic(batch.set_column(2, "partition", batch["partition"].cast("int32")), None)
    }
    assert found == {"x": ([b"a", b"c"], [0, None]), "y": ([b"b", b"d"], [1, 3])}


def test_the_option_topic_goes_before_the_column() -> None:
    batch = pa.record_batch({"value": ["a", "b"], "topic": ["x", None]})
    [rows] = split_by_topic(batch, "z")
    assert (rows.topic, rows.records.num_rows) == ("z", 2)


def test_text_becomes_bytes_and_large_offsets_small_ones() -> None:
    batch = pa.record_batch(
        {"value": pa.array(["ä", None], pa.large_string()), "key": pa.array([b"k", None])}
    )
    [rows] = split_by_topic(batch, "t")
    assert rows.records.schema.types == [pa.binary(), pa.binary()]
    assert rows.records.column("value").to_pylist() == ["ä".encode(), None]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"topic": pa.array(["t", None])}, "a row has null in column topic, expected the name of a topic"),
        (
            {
                "topic": pa.array(["t", "t"]),
                "timestamp": pa.array([datetime(1969, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
            },
            "in column timestamp, expected none before 1970",
        ),
        (
            {"topic": pa.array(["t", "t"]), "headers": pa.array([[{"key": None, "value": b""}], None])},
            "a row has a header whose key is null, expected a name for each header",
        ),
    ],
)
def test_rows_that_cannot_be_records_are_reported(columns: dict[str, pa.Array], sentence: str) -> None:
    batch = pa.record_batch({"value": pa.array(["a", "b"])} | columns)
    with pytest.raises(BadRows, match=sentence):
        list(split_by_topic(batch, None))
