"""A stream with a mistaken option says so at Spark's first question, not where PySpark would lose it."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.spark.errors import BadOption
from penstock.spark.schema import SCHEMA
from penstock.spark.source import DefaultSource


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"subscribe": "t", "startingoffset": "latest"},
            "there is no option startingoffset, did you mean startingOff",
        ),
        ({"subscribe": "t", "endingOffsets": "latest"}, "option endingOffsets is not for streams"),
        ({"path": "/data"}, "option path is for spark.read"),
    ],
)
@pytest.mark.parametrize(
    "question",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.getDefaultReadLimit(),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.latestOffset({}, ReadAllAvailable()),
        lambda reader: reader.partitions({}, {}),
        lambda reader: reader.read(None),
    ],
)
def test_every_question_is_answered_with_the_mistake(
    options: dict[str, str], expected: str, question: Callable[[Any], object]
) -> None:
    reader = DefaultSource({"kafka.bootstrap.servers": "127.0.0.1:1"} | options).streamReader(SCHEMA)

    with pytest.raises(BadOption, match=expected):
        question(reader)
    reader.stop()
