"""A stream reader for invalid options, which raises their error at its first use.

PySpark creates a stream's reader inside a block that uses the reader again at its end. If creating it failed, an error
about the missing reader would hide the original one. So a reader is always created.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def _refuse(self) -> NoReturn:
        raise self.error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()

    def stop(self) -> None:
        """Nothing to stop."""
