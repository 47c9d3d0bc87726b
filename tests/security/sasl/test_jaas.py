"""Kafka's `sasl.jaas.config` strings, and that no error shows any part of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.settings import BadSetting
from penstock.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas, plain_passwords


def passwords(text: str) -> dict[str, str]:
    return plain_passwords(parse_jaas(text, "the setting"))


def test_users_are_read_as_kafka_does() -> None:
    text = f"""{PLAIN_MODULE} required   // who may come in
        username="admin" password="admin-secret" /* of brokers */
        user_admin="admin-secret" user_alice='it"s; = me' user_bob=plain user_carol="a\\"b\\\\c\\td" ;"""
    assert passwords(text) == {
        "admin": "admin-secret",
        "alice": 'it"s; = me',
        "bob": "plain",
        "carol": 'a"b\\c\td',
    }
    assert parse_jaas(f"{SCRAM_MODULE} required;", "x").name == SCRAM_MODULE


def test_a_module_shows_no_option() -> None:
    assert "planted" not in repr(parse_jaas(f'{PLAIN_MODULE} required user_a="planted";', "x"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "planted",
        "planted;",
        f'{PLAIN_MODULE} required user_a="planted"',
        f'{PLAIN_MODULE} planted user_a="x";',
        f'{PLAIN_MODULE} required user_a="planted;',
        f"{PLAIN_MODULE} required planted;",
        f"{PLAIN_MODULE} required user_a=planted=more;",
        f"{PLAIN_MODULE} required = planted;",
        f"{PLAIN_MODULE} required user_a=planted; {PLAIN_MODULE} required user_b=planted;",
        f"{PLAIN_MODULE} required user_a=/planted;",
    ],
)
def test_a_bad_string_is_one_sentence_without_a_secret(text: str) -> None:
    with pytest.raises(BadSetting) as refused:
        parse_jaas(text, "the setting")
    assert "planted" not in str(refused.value)
    assert str(refused.value).startswith("the setting ")


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse_jaas(text, "the setting")
    except BadSetting:
        return


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=20), max_size=4))
def test_quoted_passwords_come_back(users: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'

    options = " ".join(f"user_{user}={quoted(password)}" for user, password in users.items())
    assert passwords(f"{PLAIN_MODULE} required {options};") == users
