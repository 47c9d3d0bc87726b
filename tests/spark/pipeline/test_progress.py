"""Spark's progress, as numbers."""

from typing import Any

from penstock.spark.pipeline.progress import FlowProgress, behind, offsets


def told(batch: int, rows: int, **more: Any) -> dict[str, Any]:
    source = {"numInputRows": rows, "processedRowsPerSecond": 3.5, "endOffset": 17, "latestOffset": 20}
    return {"batchId": batch, "batchDuration": 12, "sources": [source], **more}


def test_rows_are_summed_and_a_batch_told_again_is_no_news() -> None:
    flow = FlowProgress("f")

    assert [flow.take(told(0, 10)), flow.take(told(1, 5)), flow.take(told(1, 0))] == [True, True, False]
    assert (flow.batch, flow.rows, flow.rows_last, flow.lag, flow.state_rows) == (1, 15, 0, None, None)


def test_the_lag_is_what_lies_between_position_and_end() -> None:
    flow = FlowProgress("f")
    sources = [
        {"endOffset": {"a": {"0": 10, "1": 5}}, "latestOffset": {"a": {"0": 12, "1": 5, "2": 9}}},
        {"endOffset": '{"@start": {"b": {"0": 0}}, "b": {"0": 1}}', "latestOffset": '{"b": {"0": 4}}'},
        {"endOffset": 17, "latestOffset": 20},
    ]

    flow.take(told(0, 1, sources=sources, stateOperators=[{"numRowsTotal": 4}, {"numRowsTotal": 3}]))

    assert (flow.lag, flow.state_rows) == (5, 7)
    assert flow.as_json()["positions"] == {"a": {"0": 10, "1": 5}, "b": {"0": 1}}


def test_what_is_no_offset_of_a_topic_is_none() -> None:
    assert [
        offsets(each) for each in (None, "", "x", 3, {}, {"a": 3}, {"a": {"x": 1}}, {"a": {"0": "1"}})
    ] == [None] * 8
    assert offsets(float("nan")) is None


def test_an_end_before_the_position_is_no_lag() -> None:
    assert behind({"a": {0: 10}}, {"a": {0: 3}}) == 0


def test_a_rate_that_is_no_number_is_zero() -> None:
    flow = FlowProgress("f")

    flow.take(
        {"batchId": 0, "sources": [{"processedRowsPerSecond": each} for each in (float("nan"), None, "x")]}
    )

    assert flow.rows_per_s == 0
