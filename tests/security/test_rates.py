"""Rates over samples, and token buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.rates import DELAY_MS_MAX, SampledRate, TokenBucket, Windows

MS = 1_000_000
SECOND = 1000 * MS


def test_a_rate_is_an_average_over_ten_to_eleven_seconds() -> None:
    rate = SampledRate(Windows())
    rate.record(1500, 20 * SECOND)
    assert rate.delay_ms(150, 20 * SECOND) == 0
    assert rate.delay_ms(100, 20 * SECOND) == 5000
    assert rate.delay_ms(100, 20 * SECOND + 500 * MS) == 4500
    assert rate.room(100, 30 * SECOND) == -500
    assert rate.room(100, 31 * SECOND) == 1000, "the sample is forgotten"
    assert rate.is_idle(31 * SECOND)


def test_what_is_reported_late_counts_in_its_own_sample() -> None:
    rate = SampledRate(Windows(3))
    rate.room(1, 20 * SECOND)
    rate.record(10, 18 * SECOND + 1)
    assert not rate.is_idle(20 * SECOND)
    assert rate.is_idle(21 * SECOND)
    rate.record(10, 17 * SECOND)
    assert rate.is_idle(21 * SECOND), "too late to count"


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 1000)), max_size=60),
    st.integers(1, 500),
)
def test_a_rate_equals_the_sum_of_its_samples(samples: int, steps: list[tuple[int, int]], limit: int) -> None:
    rate = SampledRate(Windows(samples))
    now, events = 100 * SECOND, []
    for step, amount in steps:
        now += step
        rate.room(limit, now)
        rate.record(amount, now)
        events.append((now, amount))
        oldest = now // SECOND - samples + 1
        total = sum(each for at, each in events if at // SECOND >= oldest)
        elapsed = max((samples - 1) * SECOND + now % SECOND, SECOND) / SECOND
        assert abs(rate.room(limit, now) - (limit * elapsed - total)) < 1e-6


def test_a_client_that_waits_as_it_is_told_is_held_to_the_limit() -> None:
    rate, now, total = SampledRate(Windows()), 1000 * SECOND, 0
    while now < 1060 * SECOND:
        rate.record(10_000, now)
        total += 10_000
        now += (rate.delay_ms(5_000, now) + 1) * MS
    assert 5_000 * 60 * 0.95 <= total <= 5_000 * 71 * 1.05


def test_tokens_come_back_at_the_rate_of_the_limit() -> None:
    bucket = TokenBucket(Windows())
    bucket.take(20, 2, SECOND)
    assert (bucket.tokens, bucket.delay_ms(2, SECOND)) == (2, 0), "two a second, for eleven seconds"
    bucket.take(12, 2, SECOND)
    assert bucket.delay_ms(2, SECOND) == 5000
    assert bucket.delay_ms(2, 4 * SECOND) == 2000
    assert bucket.delay_ms(2, 7 * SECOND) == 0
    assert not bucket.is_idle(2, 12 * SECOND)
    assert bucket.is_idle(2, 60 * SECOND)


@pytest.mark.parametrize("limit", [0, 5e-324, 1e-9, 1])
def test_a_delay_fits_into_a_response_however_small_the_limit_is(limit: float) -> None:
    rate, bucket = SampledRate(Windows()), TokenBucket(Windows())
    rate.record(1e10, SECOND)
    bucket.take(1e10, limit, SECOND)
    assert rate.delay_ms(limit, SECOND) == bucket.delay_ms(limit, SECOND) == DELAY_MS_MAX
