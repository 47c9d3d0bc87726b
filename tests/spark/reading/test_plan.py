"""Ranges cut into tasks, and what is new shared out over batches."""

import pickle
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import TopicPartition
from penstock.spark.reading.plan import TASKS_MAX, OffsetRange, plan, split
from penstock.spark.reading.rate import delays, share

P = [TopicPartition("orders", index) for index in range(8)]


def spans(*ends: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange(P[index], start, stop) for index, (start, stop) in enumerate(ends)]


def test_a_partition_is_a_task_by_default() -> None:
    assert split(spans((0, 10), (5, 1000))) == spans((0, 10), (5, 1000))
    assert split(spans((0, 10), (5, 1000)), tasks_min=2) == spans((0, 10), (5, 1000))


def test_empty_ranges_are_no_tasks() -> None:
    ids = {P[0]: b"i" * 16}
    [task] = plan(spans((3, 4), (7, 7), (9, 8)), ids)
    assert (task.span, task.topic_id) == (OffsetRange(P[0], 3, 4), b"i" * 16)


def test_a_task_travels() -> None:
    [task] = plan(spans((3, 4)), {})
    copy = pickle.loads(pickle.dumps(task))
    assert (copy.span, copy.topic_id) == (task.span, None)
    assert len(pickle.dumps(task)) < 400


def test_long_ranges_are_split_until_there_are_enough() -> None:
    assert split(spans((0, 30), (0, 100)), tasks_min=4) == [
        OffsetRange(P[0], 0, 30),
        *(OffsetRange(P[1], *each) for each in ((0, 33), (33, 66), (66, 100))),
    ]


def test_many_short_ranges_do_not_keep_a_long_one_long() -> None:
    """SPARK-36576: what stays whole takes no part in the sharing."""
    got = split([*spans((0, 5), (0, 5)), OffsetRange(P[2], 0, 1000)], tasks_min=6)
    assert [each.size for each in got] == [5, 5, 250, 250, 250, 250]


def test_no_task_has_more_than_it_may() -> None:
    got = split(spans((0, 100), (7, 8)), task_rows_max=40)
    assert [each.size for each in got] == [33, 33, 34, 1]


def test_a_mistaken_limit_does_not_drown_the_driver() -> None:
    assert len(split(spans((0, 10**12)), task_rows_max=1)) <= TASKS_MAX
    assert len(split(spans((0, 10**12)), tasks_min=2**31 - 1)) <= TASKS_MAX


sizes = st.lists(st.integers(1, 10_000), min_size=1, max_size=8)
maybe = st.none() | st.integers(1, 300)


@given(sizes, maybe, maybe)
def test_what_is_cut_is_whole(counts: list[int], tasks_min: int | None, rows_max: int | None) -> None:
    ranges = [OffsetRange(P[index], 100, 100 + count) for index, count in enumerate(counts)]
    got = split(ranges, tasks_min, rows_max)
    assert all(each.size > 0 for each in got)
    assert rows_max is None or all(each.size <= rows_max for each in got)
    for span in ranges:
        mine = [each for each in got if each.partition == span.partition]
        assert mine[0].start == span.start
        assert mine[-1].stop == span.stop
        assert all(one.stop == next_.start for one, next_ in pairwise(mine))


# -- rates ------------------------------------------------------------------------------------------------


def test_a_limit_is_shared_in_proportion() -> None:
    begin = dict(zip(P, (0, 50, 7), strict=False))
    assert share(60, begin, dict(zip(P, (100, 70, 7), strict=False))) == {P[0]: 50, P[1]: 60, P[2]: 7}


def test_a_small_partition_is_not_left_behind() -> None:
    assert share(3, {P[0]: 0, P[1]: 0}, {P[0]: 1000, P[1]: 1}) == {P[0]: 2, P[1]: 1}


def test_what_fits_is_taken_whole() -> None:
    assert share(3, {P[0]: 0, P[1]: 4}, {P[0]: 2, P[1]: 5}) == {P[0]: 2, P[1]: 5}


def test_a_partition_that_ends_before_its_start_keeps_its_end() -> None:
    """It was made anew; what that means is decided elsewhere."""
    assert share(1, {P[0]: 100, P[1]: 0}, {P[0]: 3, P[1]: 50}) == {P[0]: 3, P[1]: 1}


@given(sizes, st.integers(50, 5000))
def test_batches_of_a_limit_reach_the_end(counts: list[int], rows_max: int) -> None:
    latest = {P[index]: count for index, count in enumerate(counts)}
    begin = dict.fromkeys(latest, 0)
    for _ in range(sum(counts) + 1):
        end = share(rows_max, begin, latest)
        assert all(begin[each] <= end[each] <= latest[each] for each in latest)
        assert sum(end.values()) - sum(begin.values()) < rows_max + len(latest)  # one each, at least
        if end == begin:
            break
        begin = end
    assert begin == latest


def test_a_batch_waits_for_more_but_not_for_ever_and_the_first_one_not_at_all() -> None:
    begin, latest = {P[0]: 0}, {P[0]: 4}
    assert delays(begin, latest, rows_min=5, since_ms=10, delay_ms_max=1000)
    assert not delays(begin, latest, rows_min=4, since_ms=10, delay_ms_max=1000)
    assert not delays(begin, latest, rows_min=5, since_ms=1000, delay_ms_max=1000)
    assert not delays(begin, latest, rows_min=5, since_ms=None, delay_ms_max=1000)
