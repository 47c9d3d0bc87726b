"""What is counted on a request's way, and how long it took."""

import pytest

from penstock.base.metrics import BOUNDS_NS, Histogram, Metrics


def test_a_time_falls_into_the_bucket_whose_bound_it_does_not_pass() -> None:
    histogram = Histogram()
    for took_ns in (0, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1], BOUNDS_NS[-1] + 1):
        histogram.observe(took_ns)
    assert histogram.counts[:2] == [2, 1]
    assert histogram.counts[-2:] == [1, 1]
    assert histogram.count == 5


def test_all_requests_that_a_turn_answers_took_as_long_as_the_turn() -> None:
    metrics = Metrics()
    metrics.tick_began_ns = 1_000
    for meter in (metrics.produce, metrics.produce, metrics.fetch, metrics.produce):
        metrics.answered(meter)
    metrics.tick_ended(301_000)
    assert (metrics.produce.times.count, metrics.produce.times.sum_ns) == (3, 900_000)
    assert (metrics.fetch.times.count, metrics.fetch.times.sum_ns) == (1, 300_000)
    assert metrics.tick_began_ns == 0


@pytest.mark.parametrize("bound_ns", BOUNDS_NS)
@pytest.mark.parametrize("factor", [0.5, 0.999, 1, 1.001, 2, 1000])
def test_turns_and_single_requests_fall_into_the_same_buckets(bound_ns: int, factor: float) -> None:
    took_ns = int(bound_ns * factor)
    single = Histogram()
    single.observe(took_ns)
    metrics = Metrics()
    metrics.tick_began_ns = 1
    metrics.answered(metrics.produce)
    metrics.tick_ended(1 + took_ns)
    assert metrics.produce.times.counts == single.counts


def test_what_one_turn_has_counted_is_not_counted_by_the_next() -> None:
    metrics = Metrics()
    for began_ns in (1_000, 5_000):
        metrics.tick_began_ns = began_ns
        metrics.answered(metrics.produce)
        metrics.tick_ended(began_ns + 10)
    metrics.tick_began_ns = 9_000
    metrics.tick_ended(9_999)
    assert metrics.produce.times.count == 2
    assert metrics.produce.times.sum_ns == 20


@pytest.mark.parametrize("times", [1, 7])
def test_errors_are_counted_by_their_code(times: int) -> None:
    metrics = Metrics()
    for _ in range(times):
        metrics.produce.fail(3)
    metrics.produce.fail(6)
    assert metrics.produce.errors == {3: times, 6: 1}
