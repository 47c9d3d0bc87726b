"""The data source `penstock`: creates readers and writers.

Spark creates a source in one Python process, pickles it and uses it in others, so it holds no connection. A batch has
the rows that existed when it was planned: Spark keeps the plan of a `load()`, and plans again only for another
`load()`.

There is deliberately no `pushFilters`: Spark reuses a reader with its filters for all queries of a DataFrame, and
returns wrong rows for the next one. Options limit what is read; a schema limits what is decoded.
"""

from collections.abc import Mapping

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
from penstock.spark.reading.options import for_batch, for_stream, read_options
from penstock.spark.schema import default_schema, wanted_columns

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

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Checks the options too, so that mistakes are reported at load(), not when the query runs."""
        _check_place(self.options)
        if PATH in self.options:
            from penstock.spark.reading.scan import read_scan_options  # noqa: PLC0415  # a cluster's executors may never need it

            read_scan_options(self.options)
            return default_schema(with_headers=self.options.get("includeHeaders", "").lower() == "true")
        return default_schema(with_headers=read_options(self.options).with_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        _check_place(self.options)
        if PATH in self.options:
            from penstock.spark.reading.scan import scan_reader  # noqa: PLC0415

            return scan_reader(schema, self.options)
        from penstock.spark.reading.batch import BatchReader  # noqa: PLC0415

        return BatchReader(wanted_columns(schema), for_batch(read_options(self.options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Never raises: PySpark loses exceptions at the creation of a stream's reader."""
        from penstock.spark.reading.stream import StreamReader  # noqa: PLC0415

        try:
            _check_place(self.options)
            if PATH in self.options:
                raise BadOption(
                    "option path is for spark.read: a stream reads topics from a broker, with subscribe"
                )
            return StreamReader(wanted_columns(schema), for_stream(read_options(self.options)))
        except KafkaError as error:
            from penstock.spark.reading.refused import RefusedStream  # noqa: PLC0415

            return RefusedStream(error)

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
