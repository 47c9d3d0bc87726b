"""Regular expressions of subscriptions: RE2's syntax, as in Kafka's RE2/J, matched in linear time."""

import re
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.coordinator.groups.consumer.regex import (
    COMPILED_MAX,
    TEXT_MAX,
    UNICODE_CLASSES_MAX,
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
def test_a_pattern_matches_whole_names(pattern: str, name: str, expected: bool) -> None:
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
        "\\C",
        "a\\Q\\C\\E\\C",
        "\ud800",
        "((a{100}){100}){100}",
        "(?:a{1000}){1000}",
    ],
)
def test_what_re2j_rejects_is_rejected_with_the_reason(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="is not a valid regular expression: "):
        compile_regex(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)*(.*)*(.*)*b", "(a|aa)+b", "a?" * 200 + "a" * 200]
)
def test_patterns_that_stop_a_backtracking_engine_take_linear_time(pattern: str) -> None:
    compiled = compile_regex(pattern)
    assert not compiled.matches("a" * 199)
    assert not compiled.matches("a" * 249 + "!")


def test_a_pattern_with_many_states_is_matched_within_its_memory() -> None:
    compiled = compile_regex("(a|b)*a(a|b){11}")
    for number in range(3_000):
        name = "".join("ab"[number >> bit & 1] for bit in range(12))
        assert compiled.matches(name) is (name[0] == "a")


def test_a_pattern_that_needs_more_memory_is_rejected() -> None:
    with pytest.raises(InvalidRegularExpression, match="pattern too large"):
        compile_regex("\\pL{1000}")


def test_a_pattern_that_takes_long_to_read_is_rejected_unread() -> None:
    assert compile_regex("x|" * (TEXT_MAX // 2)).matches("x")
    with pytest.raises(InvalidRegularExpression, match="has 1000000 characters") as refused:
        compile_regex("x" * 1_000_000)
    assert len(str(refused.value)) < 400
    with pytest.raises(InvalidRegularExpression, match="Unicode classes"):
        compile_regex("\\pL" * (UNICODE_CLASSES_MAX + 1))
    assert compile_regex("\\Q" + "\\pL" * 100).matches("\\pL" * 100)


def test_deep_nesting_does_no_harm() -> None:
    assert compile_regex("(" * 1_600 + "a" + ")" * 1_600).matches("a")
    with suppress(InvalidRegularExpression):
        compile_regex("(" * 1_600 + "a" + ")*" * 1_600).matches("aaa")


def test_hundreds_of_topic_names_fit_in_one_pattern() -> None:
    names = [f"region-{number}.orders" for number in range(250)]
    compiled = compile_regex("|".join(names))
    assert all(compiled.matches(name) for name in names)
    assert not compiled.matches("region-250.orders")


def test_names_beyond_ascii_match() -> None:
    """ListTransactions (KIP-1152) matches transactional ids, which may have any characters."""
    assert compile_regex("\\p{Greek}+-[ж-я]{2}.").matches("λόγος-як😀")
    assert not compile_regex(".").matches("éé")


def test_compiled_patterns_are_kept_up_to_a_limit() -> None:
    for number in range(COMPILED_MAX * 2):
        compile_regex(f"kept-{number}")
    assert compile_regex.cache_info().currsize == COMPILED_MAX


def test_re2_is_imported_with_the_first_pattern() -> None:
    code = (
        "import sys; from penstock.coordinator.groups.consumer.regex import compile_regex; "
        "assert 're2' not in sys.modules; compile_regex('a'); assert 're2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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
def test_patterns_agree_with_python_where_both_have_the_syntax(pattern: str, name: str) -> None:
    assert compile_regex(pattern).matches(name) is (re.fullmatch(pattern, name) is not None)


@given(st.text(max_size=30) | st.text("()[]{}|*+?\\^$.-:<>=!PQEdwsbx0123iapL", max_size=30))
def test_no_text_raises_another_error(pattern: str) -> None:
    with suppress(InvalidRegularExpression):
        compile_regex(pattern).matches("orders.eu-1")
