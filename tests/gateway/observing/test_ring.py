"""Samples: the latest are kept, in order; steps, percentiles and sums over brokers are what they claim."""

from math import isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.metrics import BOUNDS_NS, Histogram
from penstock.gateway.observing.periodic import slot_ms, until_next_ms
from penstock.gateway.observing.ring import COUNT, COUNT_MAX, FLOAT, SampleRing
from penstock.gateway.observing.series import (
    COLUMNS,
    INTERVAL_MS,
    SERIES,
    bins,
    folded,
    percentile_ms,
)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1e12)), max_size=60), st.integers(1, 10))
def test_ring_has_the_latest_samples_in_order(samples: list[tuple[int, float]], capacity: int) -> None:
    """Against a plain list: a time that does not rise begins anew."""
    ring: SampleRing[str] = SampleRing({"x": FLOAT, "n": COUNT}, capacity)
    kept: list[tuple[int, float]] = []
    for time_ms, value in samples:
        if kept and time_ms <= kept[-1][0]:
            kept.clear()
        kept = [*kept, (time_ms, value)][-capacity:]
        ring.add(time_ms, {"x": value, "n": value})
        assert ring.times() == [each for each, _ in kept]
        assert ring.values("x", capacity) == [each for _, each in kept]
        assert ring.values("n", capacity) == [min(int(each), COUNT_MAX) for _, each in kept]
        assert (ring.last_ms, ring.latest("x")) == kept[-1]
    for since_ms in range(0, 51, 10):
        expected = [each for each in kept if each[0] > since_ms]
        assert ring.times(since_ms) == [each for each, _ in expected]
        assert ring.values("x", len(expected)) == [each for _, each in expected]


def test_value_that_was_not_measured_is_told_apart_from_zero() -> None:
    ring: SampleRing[str] = SampleRing({"x": FLOAT, "n": COUNT}, 3)
    assert isnan(ring.latest("x"))
    ring.add(1, {})
    assert isnan(ring.latest("x"))
    assert ring.values("n", 3) == [0]
    assert folded([nan, nan], max) is None
    assert folded([nan, 3.0, 1.0], max) == 3.0


@given(st.lists(st.integers(0, 10_000), unique=True), st.integers(1, 500))
def test_every_sample_is_in_the_one_step_that_has_its_time(times: list[int], step_ms: int) -> None:
    times.sort()
    found = bins(times, step_ms)
    assert [at for _, begin, end in found for at in range(begin, end)] == list(range(len(times)))
    for begin_ms, begin, end in found:
        assert begin_ms % step_ms == 0
        assert all(begin_ms <= each < begin_ms + step_ms for each in times[begin:end])
    assert sorted({each for each, _, _ in found}) == [each for each, _, _ in found]


@given(st.lists(st.integers(0, 40_000_000_000), min_size=1, max_size=50), st.sampled_from([0.5, 0.99]))
def test_percentile_is_in_the_bucket_of_the_true_one(durations: list[int], quantile: float) -> None:
    histogram = Histogram()
    for each in durations:
        histogram.observe(each)
    found = percentile_ms(histogram.counts, quantile)
    assert found is not None
    rank = quantile * len(durations)
    true = next(each for at, each in enumerate(sorted(durations), 1) if at >= rank)
    low = max((each for each in BOUNDS_NS if each < true), default=0)
    high = min((each for each in BOUNDS_NS if each >= true), default=BOUNDS_NS[-1])
    assert low / 1e6 <= found <= high / 1e6


def test_percentile_of_no_requests_is_not_known() -> None:
    assert percentile_ms([0] * (len(BOUNDS_NS) + 1), 0.99) is None


@given(st.integers(0, 10**12))
def test_samples_are_half_an_interval_apart_at_least(now_ms: int) -> None:
    """A timer that runs a little early takes the sample of the moment that it was set for."""
    due_ms = now_ms + until_next_ms(now_ms, INTERVAL_MS)
    assert due_ms % INTERVAL_MS == 0
    assert INTERVAL_MS // 2 <= due_ms - now_ms < 2 * INTERVAL_MS
    for early_ms in (-20, 0, 20):
        assert slot_ms(due_ms + early_ms, INTERVAL_MS) == due_ms


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_a_series(name: str) -> None:
    assert SERIES[name].unit
    assert SERIES[name].what.endswith(".")
