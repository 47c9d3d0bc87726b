"""Regular expressions of subscriptions: RE2's syntax (which Kafka takes from RE2J), in linear time."""

import re
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.coordinator.groups.consumer.regex import (
    STATES_MAX,
    TEXT_MAX,
    InvalidRegularExpression,
    compile_regex,
)

MATCHES = [
    ("orders", "orders", True),
    ("orders", "orders2", False),
    ("orders", "my-orders", False),
    ("orders.*", "orders", True),
    ("orders.*", "orders.eu.1", True),
    ("orders|payments", "payments", True),
    ("orders|payments", "orderspayments", False),
    ("(a|b)+c?", "ababc", True),
    ("(a|b)+c?", "abcc", False),
    ("(?:a|b){2}", "ab", True),
    ("(?:a|b){2}", "aba", False),
    ("a{2,}", "aaaa", True),
    ("a{2,3}", "aaaa", False),
    ("a{0}b", "b", True),
    ("a{,3}", "a{,3}", True),
    ("a{x}", "a{x}", True),
    ("[a-c]+", "abc", True),
    ("[^a-c]+", "xyz", True),
    ("[^a-c]+", "xaz", False),
    ("[]a]+", "]a", True),
    ("[a-]+", "a-a", True),
    ("[\\d_]+", "1_2", True),
    ("[[:alpha:]]+[[:^alpha:]]", "abc1", True),
    ("\\w+\\.\\d+", "a_b.42", True),
    ("\\W", "-", True),
    ("\\S\\D", "ab", True),
    ("(?i)ORDERS", "orders", True),
    ("(?i:O)rders", "orders", True),
    ("(?i:O)rders", "oRders", False),
    ("a(?i)b|C", "aB", True),
    ("(?i)a(?-i)b", "Ab", True),
    ("(?i)a(?-i)b", "AB", False),
    ("(?i)[x-z]+", "XyZ", True),
    ("^orders$", "orders", True),
    ("\\Aorders\\z", "orders", True),
    ("a^b", "ab", False),
    ("a$b", "ab", False),
    ("\\bfoo\\b.*", "foo-bar", True),
    ("\\bfoo\\b.*", "foobar", False),
    ("foo\\B.*", "foobar", True),
    ("\\Qa.b\\E.", "a.bc", True),
    ("\\Qa.b", "a.b", True),
    ("\\Qa.b\\E", "aXb", False),
    ("\\.\\-\\_", ".-_", True),
    ("\\.\\-", ".-", True),
    ("\\x41\\x{42}\\103", "ABC", True),
    ("\\pL+\\p{Nd}", "abc1", True),
    ("\\P{L}+", "12", True),
    ("\\p{^L}+", "12", True),
    ("\\p{Greek}", "a", False),
    ("(?P<year>\\d{4})-(?<month>\\d\\d)", "2024-05", True),
    ("(?s).", "a", True),
    ("a*?b+?c??", "aabb", True),
    ("", "", True),
    ("", "a", False),
    ("()", "", True),
    ("(|a)b", "b", True),
    ("x*", "", True),
    ("é|a", "a", True),
    ("[^é]", "a", True),
    (".*", "a" * 249, True),
]


@pytest.mark.parametrize(("pattern", "name", "expected"), MATCHES)
def test_it_matches_whole_names(pattern: str, name: str, expected: bool) -> None:
    assert compile_regex(pattern).matches(name) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "[b-a]",
        "[[:nope:]]",
        "*a",
        "a**",
        "a+*",
        "a{2}{3}",
        "a{1001}",
        "a{3,2}",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        "(a)\\1",
        "\\8",
        "\\",
        "\\Z",
        "\\y",
        "\\xZZ",
        "\\x4",
        "\\x{110000}",
        "\\x{41",
        "\\p{Nope}",
        "\\p{L",
        "(?P<n",
        "(?P<a b>c)",
        "(?z)",
        "(?-)",
        "(?i--s)",
        "(?>a)",
        "|*",
        "(" * 200 + ")" * 200,
        "((a{100}){100}){100}",
        "(?:a{1000}){1000}",
    ],
)
def test_what_re2_does_not_take_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="is not valid: "):
        compile_regex(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)*(.*)*(.*)*b", "(a|aa)+b", "a?" * 200 + "a" * 200]
)
def test_patterns_that_stop_others_do_not_stop_it(pattern: str) -> None:
    """A matcher that goes back and forth would take longer than the universe is old for these."""
    compiled = compile_regex(pattern)
    assert not compiled.matches("a" * 199)
    assert not compiled.matches("a" * 249 + "!")


def test_a_pattern_stays_within_its_memory() -> None:
    compiled = compile_regex("(a|b)*a(a|b){11}")
    for number in range(3_000):
        name = "".join("ab"[number >> bit & 1] for bit in range(12))
        assert compiled.matches(name) is (name[0] == "a")
    assert len(compiled._steps) + len(compiled._closures) <= 2_000
    assert STATES_MAX == 5_000


def test_a_text_that_takes_long_to_read_is_refused_unread() -> None:
    assert compile_regex("x|" * (TEXT_MAX // 2)).matches("x")
    with pytest.raises(InvalidRegularExpression, match="has 1000000 characters") as refused:
        compile_regex("x" * 1_000_000)
    assert len(str(refused.value)) < 400


def patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\w", "^", "$", "\\b", "()", "-"])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=1, max_size=3).map(lambda each: f"({'|'.join(each)})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(
                lambda t: f"(?:{t[0]}){t[1]}"
            ),
        ),
        max_leaves=6,
    )


@given(patterns(), st.text("ab-", max_size=6))
@example("(?:$){2}", "")
def test_it_agrees_with_pythons_own_where_both_know_the_syntax(pattern: str, name: str) -> None:
    assert compile_regex(pattern).matches(name) is (re.fullmatch(pattern, name) is not None)


@given(st.text(max_size=30) | st.text("()[]{}|*+?\\^$.-:<>=!PQEdwsbx0123iapL", max_size=30))
def test_no_text_makes_it_fail_otherwise(pattern: str) -> None:
    with suppress(InvalidRegularExpression):
        compile_regex(pattern).matches("orders.eu-1")
