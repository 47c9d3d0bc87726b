"""The data source `penstock`: creates readers and writers.

Spark creates a source in one Python process, pickles it and uses it in others, so it holds no connection. A batch has
the rows that existed when it was planned: Spark keeps the plan of a `load()`, and plans again only for another
`load()`.

There is deliberately no `pushFilters`: Spark reuses a reader with its filters for all queries of a DataFrame, and
returns wrong rows for the next one. Options limit what is read; a schema limits what is decoded.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.base.errors import KafkaError
from penstock.spark.errors import BadOption
from penstock.spark.reading.option_names import has_formats
from penstock.spark.reading.options import Subscription, for_batch, for_stream, read_options
from penstock.spark.schema import default_schema, wanted_columns

if TYPE_CHECKING:
    from penstock.spark.reading.typed_rows import TypedRows, TypedSource

NAME = "penstock"
PATH = "path"
PATHS = "paths"
"""Option in which Spark passes a list given to load()."""
PROVIDER = "provider"
"""Present in the options when Spark requests the columns of a new catalog table. A query of that table passes no
options to a Python source."""

_NO_TABLE = (
    "a topic cannot be a catalog table, because Spark does not pass the options of such a table to a Python source: "
    "use CREATE TEMPORARY VIEW ... USING penstock OPTIONS (...)"
)


class DefaultSource(DataSource):
    """Topics of Penstock or Apache Kafka, as rows; or with `path`, segment files without a broker."""

    _pinned: "TypedSource | None" = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Checks the options too, so that mistakes are reported at load(), not when the query runs."""
        _check_place(self.options)
        if PATH in self.options:
            from penstock.spark.reading.scan import read_scan_options  # noqa: PLC0415  # a cluster's executors may never need it

            wanted = read_scan_options(self.options).subscription
            plain = default_schema(with_headers=self.options.get("includeHeaders", "").lower() == "true")
        else:
            found = read_options(self.options)
            wanted, plain = found.subscription, default_schema(with_headers=found.with_headers)
        typed = self._typed(wanted)
        return plain if typed is None else typed.schema(plain)

    def reader(self, schema: StructType) -> DataSourceReader:
        _check_place(self.options)
        if PATH in self.options:
            from penstock.spark.reading.scan import read_scan_options, scan_reader  # noqa: PLC0415

            wanted = read_scan_options(self.options).subscription
            return scan_reader(schema, self.options, self._rows(schema, wanted))
        from penstock.spark.reading.batch import BatchReader  # noqa: PLC0415

        options = for_batch(read_options(self.options))
        rows = self._rows(schema, options.subscription)
        return BatchReader(wanted_columns(schema) if rows is None else rows.columns, options, rows)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Never raises: PySpark loses exceptions at the creation of a stream's reader."""
        from penstock.spark.reading.stream import StreamReader  # noqa: PLC0415

        try:
            _check_place(self.options)
            if PATH in self.options:
                raise BadOption(
                    "option path is for spark.read: a stream reads topics from a broker, with subscribe"
                )
            options = for_stream(read_options(self.options))
            rows = self._rows(schema, options.subscription)
            return StreamReader(wanted_columns(schema) if rows is None else rows.columns, options, rows)
        except KafkaError as error:
            from penstock.spark.reading.refused import RefusedStream  # noqa: PLC0415

            return RefusedStream(error)

    def _typed(self, wanted: Subscription | None) -> "TypedSource | None":
        """The schemas of keys and values. Spark pickles this source after `schema()`, so they stay as they are."""
        if self._pinned is None and has_formats(self.options):
            from penstock.spark.reading.typed_rows import pin, read_typed_options  # noqa: PLC0415  # imports decoders

            topics = () if wanted is None else wanted.topics or {each.topic for each in wanted.partitions}
            options = read_typed_options(self.options, sorted(topics))
            self._pinned = None if options is None else pin(options)
        return self._pinned

    def _rows(self, schema: StructType, wanted: Subscription | None) -> "TypedRows | None":
        typed = self._typed(wanted)
        if typed is None:
            return None
        from penstock.spark.reading.typed_rows import TypedRows  # noqa: PLC0415

        return TypedRows(typed, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _check_place(self.options)
        from penstock.spark.writing.sink import writer  # noqa: PLC0415

        return writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from penstock.spark.writing.sink import stream_writer  # noqa: PLC0415

        return stream_writer(schema, self.options, overwrite)


def _check_place(options: Mapping[str, str]) -> None:
    """Raise BadOption for uses that Spark accepts but does not pass on to a Python source."""
    if PATHS in options:
        raise BadOption("load() is given several paths, expected one directory: read each, and union them")
    if not options:
        raise BadOption(
            f"no option is given, expected kafka.bootstrap.servers or path, and topics; {_NO_TABLE}"
        )
    if PROVIDER in options:
        raise BadOption(_NO_TABLE)
