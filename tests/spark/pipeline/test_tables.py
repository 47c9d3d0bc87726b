"""Delta tables: a batch is in once, whatever happens around its commit."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType

from penstock.spark.pipeline.spec import DeltaSink
from penstock.spark.pipeline.tables import BadTable, DeltaWriter, arrow_schema, merge, opened

SCHEMA = StructType([StructField("id", LongType(), False), StructField("kind", StringType())])


def rows(*pairs: tuple[int, str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"id": each, "kind": kind} for each, kind in pairs], arrow_schema(SCHEMA)
    )


def table_of(path: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(path).to_pyarrow_table().select(["id", "kind"]).to_pylist()
    return sorted((each["id"], each["kind"]) for each in found)


def writer(
    path: Path, *, overwrite: bool = False, partition_by: tuple[str, ...] = (), flow: str = "f"
) -> DeltaWriter:
    return DeltaWriter(str(path), flow, partition_by, SCHEMA, overwrite)


def test_rows_are_seen_when_their_batch_is_committed(tmp_path: Path) -> None:
    one = writer(tmp_path / "t").write(iter([rows((1, "a"), (2, "b"))]))
    two = writer(tmp_path / "t").write(iter([rows((3, "c"))]))
    none = writer(tmp_path / "t").write(iter([]))
    assert not DeltaTable.is_deltatable(str(tmp_path / "t"))

    writer(tmp_path / "t").commit([one, two, none, None], 0)

    assert table_of(tmp_path / "t") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_batch_that_comes_again_is_left_out_with_its_files(tmp_path: Path) -> None:
    writer(tmp_path / "t").commit([writer(tmp_path / "t").write(iter([rows((1, "a"))]))], 0)

    again = writer(tmp_path / "t").write(iter([rows((1, "a"))]))
    writer(tmp_path / "t").commit([again], 0)
    other = writer(tmp_path / "t", flow="g").write(iter([rows((9, "z"))]))
    writer(tmp_path / "t", flow="g").commit([other], 0)

    assert table_of(tmp_path / "t") == [(1, "a"), (9, "z")], "another flow's batch 0 is another batch"
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 2


def test_an_aborted_batch_leaves_nothing(tmp_path: Path) -> None:
    done = writer(tmp_path / "t").write(iter([rows((1, "a"))]))

    writer(tmp_path / "t").abort([done, None], 0)

    assert list((tmp_path / "t").iterdir()) == []


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield rows((1, "a"))
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        writer(tmp_path / "t").write(failing())

    assert list((tmp_path / "t").iterdir()) == []


def test_complete_results_replace_the_table(tmp_path: Path) -> None:
    for batch, kind in enumerate("ab"):
        one = writer(tmp_path / "t", overwrite=True).write(iter([rows((1, kind))]))
        writer(tmp_path / "t", overwrite=True).commit([one], batch)

    assert table_of(tmp_path / "t") == [(1, "b")]


def test_a_table_is_partitioned_by_columns_null_included(tmp_path: Path) -> None:
    parted = writer(tmp_path / "t", partition_by=("kind",))
    done = parted.write(iter([rows((1, "a"), (2, "b")), rows((3, "a"), (4, None), (5, "x/y=%"))]))
    writer(tmp_path / "t", partition_by=("kind",)).commit([done], 0)

    found = {each["id"]: each["kind"] for each in DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()}
    assert found == {1: "a", 2: "b", 3: "a", 4: None, 5: "x/y=%"}
    assert len(done.files) == 4


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    opened(path, arrow_schema(SCHEMA), [])

    other = arrow_schema(StructType([StructField("id", StringType()), StructField("kind", StringType())]))
    with pytest.raises(
        BadTable, match="has column id as long, the flow writes it as string; expected the same columns"
    ):
        opened(path, other, [])
    more = arrow_schema(StructType([*SCHEMA.fields, StructField("at", DateType())]))
    with pytest.raises(
        BadTable, match="has no column at, which the flow writes; expected the same columns: "
    ):
        opened(path, more, [])
    fewer = arrow_schema(StructType(SCHEMA.fields[:1]))
    with pytest.raises(
        BadTable, match=r"has column kind, which the flow does not write; .*remove the table to"
    ):
        opened(path, fewer, [])
    with pytest.raises(BadTable, match="is partitioned by nothing, the flow by kind"):
        opened(path, arrow_schema(SCHEMA), ["kind"])


def test_a_table_cannot_be_partitioned_by_times(tmp_path: Path) -> None:
    schema = StructType([StructField("at", TimestampType()), StructField("day", DateType())])
    batch = pa.RecordBatch.from_pylist([{"at": 0, "day": None}], arrow_schema(schema))

    with pytest.raises(BadTable, match="partitioned by text, integers, dates or booleans, found timestamp"):
        DeltaWriter(str(tmp_path / "t"), "f", ("at",), schema, False).write(iter([batch]))


class Batch:
    """What merge needs of a DataFrame."""

    schema = SCHEMA

    def __init__(self, *pairs: tuple[int, str | None]) -> None:
        self._rows = pa.Table.from_batches([rows(*pairs)], arrow_schema(SCHEMA))

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's name
        return self._rows


def test_an_upsert_replaces_by_its_key_and_happens_once(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path / "t"), (), ("id",))
    merge(sink, "f", Batch((1, "a"), (2, "b")), 0)  # type: ignore[arg-type]
    merge(sink, "f", Batch((2, "c"), (3, None)), 1)  # type: ignore[arg-type]
    merge(sink, "f", Batch((2, "b"), (4, "again")), 0)  # type: ignore[arg-type]
    merge(sink, "f", Batch(), 2)  # type: ignore[arg-type]

    found = {each["id"]: each["kind"] for each in DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()}
    assert found == {1: "a", 2: "c", 3: None}


def test_an_upsert_takes_null_for_a_key_like_any_other(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path / "t"), (), ("kind",))

    merge(sink, "f", Batch((1, None)), 0)  # type: ignore[arg-type]
    merge(sink, "f", Batch((2, None)), 1)  # type: ignore[arg-type]

    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist() == [{"id": 2, "kind": None}]


def test_an_upsert_goes_by_several_columns_of_any_type(tmp_path: Path) -> None:
    kinds = StructType(
        [StructField("at", TimestampType()), StructField('a "day"', DateType()), StructField("n", LongType())]
    )

    class Timed(Batch):
        schema = kinds

        def __init__(self, number: int) -> None:
            row = {"at": datetime(2026, 3, 1, tzinfo=UTC), 'a "day"': date(2026, 3, 1), "n": number}
            self._rows = pa.Table.from_pylist([row], arrow_schema(kinds))

    sink = DeltaSink(str(tmp_path / "t"), (), ("at", 'a "day"'))
    for number in range(2):
        merge(sink, "f", Timed(number), number)  # type: ignore[arg-type]

    assert DeltaTable(tmp_path / "t").to_pyarrow_table().column("n").to_pylist() == [1]


def test_two_rows_of_one_key_in_one_batch_are_refused(tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path / "t"), (), ("id",))

    with pytest.raises(BadTable, match="1 rows of one batch have the same id as another"):
        merge(sink, "f", Batch((1, "a"), (1, "b")), 0)  # type: ignore[arg-type]
    assert not (tmp_path / "t").exists(), "a table with these columns would be in the way of the next try"
