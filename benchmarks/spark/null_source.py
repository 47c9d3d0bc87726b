"""The yardstick: a Python data source that does nothing but hand the same Arrow batch to Spark over and over.

What it reaches is what Spark makes of any Python source: no source that makes its rows can be faster. Its batch
comes from a file, with the columns and the rows that Penstock's source would have decoded.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.schema import default_schema


class NullSource(DataSource):
    """Options: `batch`, a file with one Arrow batch; `rows`, how many in all; `tasks`."""

    @classmethod
    def name(cls) -> str:
        return "null"

    def schema(self) -> StructType:
        return default_schema(with_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return NullReader(Path(self.options["batch"]), int(self.options["rows"]), int(self.options["tasks"]))


class NullReader(DataSourceReader):
    def __init__(self, batch: Path, rows: int, tasks: int) -> None:
        self._batch = batch
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        edges = [self._rows * each // self._tasks for each in range(self._tasks + 1)]
        return [InputPartition(stop - start) for start, stop in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_file(self._batch) as file:
            batch = file.get_batch(0)
        left = partition.value
        while left > 0:
            yield batch[:left]
            left -= batch.num_rows
