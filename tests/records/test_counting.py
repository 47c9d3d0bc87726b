"""Records are counted by the headers of their batches."""

import pytest

from penstock.records import build_batch, end_txn_marker
from penstock.records.counting import HEADERS_READ_MAX, records_in


def batch(records: int) -> bytes:
    return bytes(build_batch([(None, b"value", 1_700_000_000_000)] * records))


def test_the_records_of_all_batches_are_counted() -> None:
    assert records_in(b"") == 0
    assert records_in(batch(3)) == 3
    assert records_in(batch(3) + batch(1) + batch(40)) == 44


def test_a_batch_that_is_cut_short_is_not_counted() -> None:
    """A fetch cuts where its limit is; the client throws such a batch away and asks for it again."""
    whole, last = batch(3), batch(5)
    for cut in range(len(last)):
        assert records_in(memoryview(whole + last[:cut])) == 3


def test_markers_are_no_records() -> None:
    marker = bytes(
        end_txn_marker(producer_id=7, producer_epoch=0, commit=True, timestamp=1, coordinator_epoch=0)
    )
    assert records_in(batch(2) + marker + batch(2)) == 4


@pytest.mark.parametrize("each", [1, 9])
def test_of_many_batches_the_first_speak_for_the_rest(each: int) -> None:
    batches = HEADERS_READ_MAX * 5
    assert records_in(batch(each) * batches) == each * batches


def test_counting_never_looks_at_more_than_so_many_headers() -> None:
    """What stands behind them may be anything."""
    some = batch(2) * HEADERS_READ_MAX
    assert records_in(some + bytes(len(some))) == 2 * HEADERS_READ_MAX * 2
