"""The rate of throttled copies: paid for with time, at the rate that is in force."""

from penstock.replica.throttle import Throttle


def test_what_is_taken_is_paid_for_with_time() -> None:
    throttle = Throttle(lambda: 1000)
    assert throttle.delay_ms(10_000) == 0
    throttle.take(3000, 10_000)
    assert throttle.delay_ms(10_000) == 2000, "a second was saved"
    assert throttle.delay_ms(11_500) == 500
    assert throttle.delay_ms(12_000) == 0


def test_no_more_than_a_second_is_saved() -> None:
    throttle = Throttle(lambda: 1000)
    throttle.take(1000, 10_000)
    throttle.take(1500, 60_000)
    assert throttle.delay_ms(60_000) == 500


def test_another_rate_holds_for_what_is_owed_too() -> None:
    """Whoever set it too low need not wait for what it cost."""
    rate = 1
    throttle = Throttle(lambda: rate)
    throttle.take(1_000_001, 10_000)
    assert throttle.delay_ms(10_000) == 1_000_000_000
    rate = 1_000_000
    assert throttle.delay_ms(10_000) == 1000
    assert throttle.delay_ms(11_000) == 0
    rate = 1
    throttle.take(11, 20_000)
    assert throttle.delay_ms(20_000) == 10_000, "what was saved at a higher rate is not spent at a lower one"
