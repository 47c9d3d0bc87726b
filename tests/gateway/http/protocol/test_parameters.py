"""What texts may look like: patterns agree with what is taken."""

import re
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import KafkaError
from penstock.gateway.http.protocol.parameters import (
    MOMENT,
    TOPIC_NAME,
    is_topic_name,
    parse_moment,
    whole_numbers,
)
from penstock.metadata.controller.topics import check_name

LONG = st.integers(-(2**63), 2**63 - 1)


@given(LONG, LONG, LONG, st.data())
def test_pattern_of_numbers_has_those_of_the_range_alone(
    one: int, other: int, number: int, data: st.DataObject
) -> None:
    low, high = sorted((one, other))
    pattern = whole_numbers(low, high)
    inside = data.draw(st.integers(low, high))
    for each in (low - 1, low, inside, high, high + 1, number, 0):
        assert (re.fullmatch(pattern, str(each)) is not None) == (low <= each <= high)


@pytest.mark.parametrize("text", ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "1.0", "1_0", "\u0663"])
def test_number_is_written_in_one_way(text: str) -> None:
    assert re.fullmatch(whole_numbers(-100, 100), text) is None


@given(st.text(st.sampled_from("._-aZ9 /\n"), max_size=6) | st.text(max_size=4) | st.just("x" * 250))
def test_names_of_topics_are_kafkas(text: str) -> None:
    try:
        check_name(text)
        is_good = True
    except KafkaError:
        is_good = False
    assert is_topic_name(text) == is_good
    if len(text) < 250:
        assert (re.fullmatch(TOPIC_NAME, text) is not None) == is_good


@given(st.from_regex(MOMENT.replace("$", r"\Z")))
def test_what_looks_like_a_moment_is_one(text: str) -> None:
    assert parse_moment("from", text) >= 0


def test_days_that_there_are_look_like_it_and_no_others() -> None:
    for year in (1970, 1972, 1999, 2000, 2023, 2024, 2100, 2400, 9996):
        days = (date(year, 1, 1) + timedelta(number) for number in range(366))
        there = {each.isoformat() for each in days if each.year == year}
        for month in range(14):
            for day in range(33):
                text = f"{year}-{month:02}-{day:02}"
                assert (re.fullmatch(MOMENT, text) is not None) == (text in there), text


def test_first_hours_of_1970_east_of_greenwich_are_the_beginning() -> None:
    assert parse_moment("from", "1970-01-01T00:00+05:00") == 0
