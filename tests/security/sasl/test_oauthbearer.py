"""OAUTHBEARER's message and answers, as Kafka's OAuthBearerSaslServer reads and gives them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.bearer import BearerToken, InvalidToken, KeysPending
from penstock.security.sasl.exchange import Accepted, Challenge, Refused, Undecided, Verdict
from penstock.security.sasl.oauthbearer import MESSAGE_BYTES_MAX, OAuthBearerExchange

NOW_MS = 1_800_000_000_000


class Validator:
    def validate(self, token: str, now_ms: int) -> BearerToken:
        assert now_ms == NOW_MS
        if token == "good.token":
            return BearerToken("alice", NOW_MS + 1000)
        raise {"pending": KeysPending}.get(token, InvalidToken)("the reason")


def exchange() -> OAuthBearerExchange:
    return OAuthBearerExchange(Validator(), lambda: NOW_MS)


def answer(message: bytes) -> Verdict:
    return exchange().evaluate(message, is_latest=True)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good.token\x01\x01",
        b"n,a=alice,\x01auth=bearer   good.token\x01\x01",
        b"n,,\x01traceId=a b\tc\x01auth=Bearer good.token\x01host=x\x01\x01",
    ],
)
def test_a_message_with_a_good_token_logs_in_until_the_token_expires(message: bytes) -> None:
    assert answer(message) == Accepted("alice", b"", NOW_MS + 1000)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01auth=Bearer good.token\x01",
        b"y,,\x01auth=Bearer good.token\x01\x01",
        b"n,,\x01auth=Basic good.token\x01\x01",
        b"n,,\x01auth=Bearer good token\x01\x01",
        b"n,,\x01Auth=Bearer good.token\x01\x01",
        b"n,,\x01x=y\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * MESSAGE_BYTES_MAX + b"\x01\x01",
    ],
)
def test_other_messages_are_refused_without_details(message: bytes) -> None:
    verdict = answer(message)
    assert isinstance(verdict, Refused)
    assert verdict.message is None


def test_the_answer_to_a_bad_token_is_kafkas_json_and_then_a_failure() -> None:
    own = exchange()
    told = own.evaluate(b"n,,\x01auth=Bearer bad\x01\x01", is_latest=True)
    assert told == Challenge(b'{"status":"invalid_token"}')
    assert own.evaluate(b"\x01", is_latest=True) == Refused("the reason", '{"status":"invalid_token"}')


def test_after_a_bad_token_no_other_is_taken() -> None:
    own = exchange()
    own.evaluate(b"n,,\x01auth=Bearer bad\x01\x01", is_latest=True)
    assert own.evaluate(b"n,,\x01auth=Bearer good.token\x01\x01", is_latest=True) == Refused("the reason")


def test_a_token_whose_key_is_being_fetched_is_undecided() -> None:
    assert answer(b"n,,\x01auth=Bearer pending\x01\x01") == Undecided("the reason")


def test_a_user_cannot_act_as_another() -> None:
    verdict = answer(b"n,a=bob,\x01auth=Bearer good.token\x01\x01")
    assert isinstance(verdict, Refused)
    assert verdict.message == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
        "principal name (alice)"
    )


PIECES: st.SearchStrategy[Any] = st.sampled_from(
    [b"n,", b",", b"\x01", b"auth=", b"Bearer ", b"a=", b"=2C", b"good.token", b"\xff", b"x=", b" "]
)


@given(st.lists(PIECES | st.binary(max_size=3), max_size=12).map(b"".join))
def test_any_bytes_get_a_verdict(message: bytes) -> None:
    verdict = answer(message)
    assert isinstance(verdict, Accepted | Challenge | Refused)
    assert not isinstance(verdict, Accepted) or b"good.token" in message
