"""Spark's pages become one sentence."""

import pytest

from penstock.spark.pipeline.errors import BUSY, NO_WATERMARK, SENTENCE_CHARS_MAX, one_sentence

WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST
=== Streaming Query ===
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 2038, in main
    process()
  File "fetch.py", line 12, in read
    raise CorruptRecords(1)
penstock.spark.errors.CorruptRecords: topic orders partition 3 offset 17: the checksum does not fit

\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)
Caused by: java.lang.Exception: Something: else
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WORKER, "topic orders partition 3 offset 17: the checksum does not fit"),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `x` cannot be found. SQLSTATE: 42P01; line 1;\n'Project",
            "The table or view `x` cannot be found.",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
            "  File \"p.py\", line 3, in keep\nKeyError: 'a'\n",
            "KeyError: 'a'",
        ),
        (
            "Boom: Traceback (most recent call last):\n  File 1\nKeyError: 1\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File 2\nValueError: no such customer\nand more\n"
            "=== Streaming Query ===\nIdentifier: p.f [id = 1]\n",
            "no such customer",
        ),
        (
            "An error occurred while calling o70.collect.\n: org.apache.spark.SparkException: Job aborted due to "
            "stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 (TID 3) "
            "(127.0.0.1 executor 1): java.io.IOException: no such file",
            "no such file",
        ),
        (
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: "
            "Lost task 0.0 (TID 0) (127.0.0.1 executor driver): org.apache.spark.SparkException: Python worker failed "
            "to connect back.\n\tat org.apache.spark.api.python.PythonWorkerFactory",
            BUSY,
        ),
        (
            "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append. This output mode is "
            "not supported for streaming aggregations without watermark on streaming DataFrames/DataSets. SQLSTATE: "
            "42KDE;\nAggregate [kind#1]",
            NO_WATERMARK,
        ),
        ("java.lang.IllegalStateException: There is no more disk", "There is no more disk"),
        ("", "Exception"),
    ],
)
def test_the_sentence_that_matters_is_found(text: str, expected: str) -> None:
    assert one_sentence(Exception(text)) == expected


def test_a_sentence_is_never_a_page() -> None:
    assert len(one_sentence(ValueError("x" * 10_000_000))) == SENTENCE_CHARS_MAX + 3
