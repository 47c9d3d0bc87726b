"""The order of requests of a log-in, PLAIN, and Kafka's texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.security.sasl.exchange import Accepted, Refused
from penstock.security.sasl.login import LoggedIn, LoginState, SaslLogin, UnexpectedRequest
from penstock.security.sasl.plain import PlainExchange, PlainUsers

USERS = PlainUsers({"alice": "planted-s3cret", "bob": "pa55", "käthe": "größe"}, b"k" * 32)
MECHANISMS = {"PLAIN": lambda: PlainExchange(USERS), "OTHER": lambda: PlainExchange(USERS)}
GOOD = b"\0alice\0planted-s3cret"


def login(before: LoggedIn | None = None) -> SaslLogin:
    return SaslLogin(MECHANISMS, before)


def ready(before: LoggedIn | None = None) -> SaslLogin:
    made = login(before)
    made.handshake(1, "PLAIN")
    return made


def test_a_log_in_goes_by_handshake_and_token() -> None:
    one = login()
    one.api_versions(True)
    assert one.handshake(1, "PLAIN") == (ErrorCode.NONE, ("PLAIN", "OTHER"))
    assert not one.takes_raw_tokens
    assert one.token(GOOD, is_latest=True) == Accepted("alice")
    assert one.state is LoginState.DONE


def test_after_handshake_0_tokens_come_without_headers() -> None:
    one = login()
    one.handshake(0, "PLAIN")
    assert one.takes_raw_tokens


def test_api_versions_may_be_asked_once_and_again_after_an_unknown_version() -> None:
    one = login()
    one.api_versions(False)
    one.api_versions(True)
    with pytest.raises(
        UnexpectedRequest, match=r"Unexpected Kafka request of type ApiVersions during SASL handshake\."
    ):
        one.api_versions(True)
    assert one.state is LoginState.FAILED


def test_a_mechanism_that_is_off_is_refused_with_those_that_are_on() -> None:
    one = login()
    assert one.handshake(1, "GSSAPI") == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("PLAIN", "OTHER"))
    with pytest.raises(UnexpectedRequest):
        one.token(GOOD, is_latest=True)


def test_a_token_before_the_handshake_and_a_second_handshake_are_unexpected() -> None:
    with pytest.raises(UnexpectedRequest):
        login().token(GOOD, is_latest=True)
    with pytest.raises(UnexpectedRequest, match="SaslHandshake during SASL authentication"):
        ready().handshake(1, "PLAIN")


def test_after_a_failure_nothing_is_taken() -> None:
    one = ready()
    one.token(b"\0alice\0wrong", is_latest=True)
    with pytest.raises(UnexpectedRequest):
        one.token(GOOD, is_latest=True)


INVALID = "Authentication failed: Invalid username or password"
NO_DETAILS = "Authentication failed during {} due to invalid credentials with SASL mechanism PLAIN"


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", INVALID),
        (b"\0nobody\0planted-s3cret", INVALID),
        (b"\0bob\0planted-s3cret", INVALID),
        (b"", NO_DETAILS.format("authentication")),
        (b"\0\0planted-s3cret", NO_DETAILS.format("authentication")),
        (b"\0alice\0", NO_DETAILS.format("authentication")),
        (
            b"bob\0alice\0planted-s3cret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_refusals_of_plain_have_kafkas_texts(token: bytes, message: str) -> None:
    refused = ready().token(token, is_latest=True)
    assert isinstance(refused, Refused)
    assert refused.message == message
    assert "planted" not in refused.why + (refused.message or "")


@pytest.mark.parametrize("token", [GOOD, b"alice" + GOOD, GOOD + b"\0more", "\0käthe\0größe".encode()])
def test_plain_accepts_what_kafka_does(token: bytes) -> None:
    assert isinstance(ready().token(token, is_latest=True), Accepted)


def test_logging_in_again_keeps_mechanism_and_user() -> None:
    before = LoggedIn("PLAIN", "alice")
    assert ready(before).token(GOOD, is_latest=True) == Accepted("alice")
    other = ready(before).token(b"\0bob\0pa55", is_latest=True)
    assert isinstance(other, Refused)
    assert other.message == "Cannot change principals during re-authentication from User.alice: User.bob"
    wrong = ready(before).token(b"", is_latest=True)
    assert isinstance(wrong, Refused)
    assert wrong.message == NO_DETAILS.format("re-authentication")
    changed = login(before)
    assert changed.handshake(1, "OTHER").code is ErrorCode.NONE
    refused = changed.token(GOOD, is_latest=True)
    assert isinstance(refused, Refused)
    assert refused.message is not None
    assert (
        "'OTHER' requested by client is not supported for re-authentication of mechanism 'PLAIN'"
        in refused.message
    )
    with pytest.raises(UnexpectedRequest):
        login(before).api_versions(True)


def test_users_show_their_names_only() -> None:
    assert repr(USERS) == "PlainUsers(alice, bob, käthe)"
    assert not any(b"planted" in each for each in USERS._hashes.values())


STEPS = st.one_of(
    st.tuples(st.just("versions"), st.booleans()),
    st.tuples(st.just("handshake"), st.sampled_from(["PLAIN", "OTHER", "SCRAM-SHA-256", "", "\0"])),
    st.tuples(st.just("token"), st.one_of(st.binary(max_size=40), st.just(b"\0bob\0nope"))),
)


@given(st.lists(STEPS, max_size=8), st.sampled_from([None, LoggedIn("PLAIN", "alice")]))
def test_no_order_of_requests_logs_in_without_a_password(
    steps: list[tuple[str, object]], before: LoggedIn | None
) -> None:
    one = login(before)
    for what, value in steps:
        try:
            if what == "versions":
                one.api_versions(bool(value))
            elif what == "handshake":
                one.handshake(1, str(value))
            else:
                assert isinstance(value, bytes)
                one.token(value, is_latest=True)
        except UnexpectedRequest:
            assert one.state is LoginState.FAILED
        assert one.state is not LoginState.DONE
