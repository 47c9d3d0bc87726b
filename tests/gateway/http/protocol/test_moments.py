"""Points in time as clients write them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, KafkaError
from penstock.gateway.http.protocol.parameters import parse_moment


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01", 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14 22:13:20.5", 1_700_000_000_500),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-15T00:13:20 02:00", 1_700_000_000_000),  # what a query makes of a plus sign
        ("20231114T221320Z", 1_700_000_000_000),
    ],
)
def test_milliseconds_and_iso_8601(text: str, moment_ms: int) -> None:
    assert parse_moment("from", text) == moment_ms


@pytest.mark.parametrize(
    "text", ["", "-1", "1e9", "soon", "1969-12-31", "9" * 30, "²", "2023-13-01", "12:00"]
)
def test_what_is_no_moment_is_named(text: str) -> None:
    with pytest.raises(KafkaError, match=r"from is .*, expected milliseconds") as caught:
        parse_moment("from", text)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@given(st.text(max_size=40))
def test_any_text_is_a_moment_or_refused(text: str) -> None:
    with suppress(KafkaError):
        assert parse_moment("to", text) >= 0
