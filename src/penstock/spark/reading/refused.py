"""A stream that cannot be read as it was asked for, and says why at the first question.

PySpark makes a stream's reader inside of a block that uses the reader once more at its end: where there is none,
because making it failed, an error about that takes the place of the sentence. So a reader there is.
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
        """There is nothing to end."""
