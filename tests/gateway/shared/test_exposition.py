"""The text that Prometheus reads, in both of its forms."""

import pytest
from tests.gateway.scrapes import Scrape, check

from penstock.base.metrics import BOUNDS_NS, Histogram
from penstock.gateway.shared.exposition import Page


def made(*, is_open: bool = False) -> Scrape:
    page = Page(is_open=is_open)
    page.counter("penstock_things_total", "Things.", [((("of", "a"),), 3), ((("of", "b"),), 2**53)])
    page.gauge("penstock_level", "Level.", 0.25)
    histogram = Histogram()
    histogram.observe(BOUNDS_NS[2])
    histogram.observe(BOUNDS_NS[-1] + 1, 2)
    page.histogram("penstock_wait_seconds", "Wait.", [((("api", "Fetch"),), histogram), ((), Histogram())])
    page.counter("penstock_nothing_total", "Nothing yet.", [])
    return Scrape(page.encoded().decode(), is_open=is_open)


def test_a_page_says_what_was_put_on_it() -> None:
    page = made()
    check(page)
    assert page("penstock_things_total", of="a") == 3
    assert page("penstock_things_total", of="b") == 2**53
    assert page("penstock_level") == 0.25
    assert page("penstock_wait_seconds_bucket", api="Fetch", le="0.00025") == 0
    assert page("penstock_wait_seconds_bucket", api="Fetch", le="0.0005") == 1
    assert page("penstock_wait_seconds_bucket", api="Fetch", le="30.0") == 1
    assert page("penstock_wait_seconds_bucket", api="Fetch", le="+Inf") == 3
    assert page("penstock_wait_seconds_count", api="Fetch") == 3
    assert page("penstock_wait_seconds_sum", api="Fetch") == pytest.approx(60.0005)


def test_open_metrics_says_the_same() -> None:
    """OpenMetrics 1.0: the family is without `_total`, the sample with it, and the page ends with # EOF."""
    page = made(is_open=True)
    assert page.series == made().series
    assert "# TYPE penstock_things counter\n" in page.text
    assert page.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    "value", ['say "hi"', "back\\slash", "two\nlines", "", "plain", "ünïcode", '\\"', "\\n"]
)
@pytest.mark.parametrize("is_open", [False, True])
def test_labels_come_through_as_they_are(value: str, is_open: bool) -> None:
    """A group's name may be anything."""
    page = Page(is_open=is_open)
    page.gauge("penstock_group_lag", "Lag.", [((("group", value), ("topic", "t")), 7)])
    read = Scrape(page.encoded().decode(), is_open=is_open)
    assert read("penstock_group_lag", group=value, topic="t") == 7


def test_a_family_is_added_once() -> None:
    page = Page()
    page.gauge("penstock_level", "Level.", [])
    with pytest.raises(AssertionError, match="penstock_level is added twice"):
        page.gauge("penstock_level", "Level.", [])
