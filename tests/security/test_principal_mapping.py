"""`ssl.principal.mapping.rules`, with the examples of Kafka's documentation and of its own tests."""

import pytest

from penstock.base.settings import BadSetting
from penstock.security.principal_mapping import mapper

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=duke,C=US", "CN=duke,C=US"),
        ("", "CN=duke,C=US", "CN=duke,C=US"),
        (DOCUMENTED, "CN=duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (DOCUMENTED, "CN=duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (DOCUMENTED, "cn=kafka1,OU=SME", "kafka1"),
        (DOCUMENTED, "OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
        ("RULE:^CN=(.*?),(.*)$/$1@$4/", "CN=a,O=b", "a@$4"),
        ("RULE:^CN=(.*?),(.*)$/$12/U", "CN=a,O=b", "A2"),
        (r"RULE:^CN=(\w+)\/x$/$1\/\$1/", "CN=a/x", "a/$1"),
        ("RULE:^CN=bob$/bob/", "CN=alice", None),
        ("RULE:^CN=bob$/bob/", "CN=bob,O=x", None),
        ("RULE:CN=(.*?)/$1/", "CN=abc", "abc"),
        ("RULE:.*/x/", "CN=abc", "xx"),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_decides(
    rules: str, subject: str, name: str | None
) -> None:
    """In the last two, Java's `replaceAll` replaces every match within the subject."""
    assert mapper(rules)(subject) == name


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("RULE:^CN=(.*)$", "expected DEFAULT or RULE:pattern/replacement/"),
        ("default", "expected DEFAULT or RULE:pattern/replacement/"),
        ("RULE:^CN=(.*$/$1/", "expected one of RE2: missing"),
        ("RULE:^(?=CN).*$/x/", "expected one of RE2: invalid perl operator"),
    ],
)
def test_a_wrong_rule_is_refused(rules: str, why: str) -> None:
    with pytest.raises(BadSetting, match=f"^mine has .*{why.replace('/', '.')}"):
        mapper(rules, "mine")


def test_matching_takes_linear_time() -> None:
    assert mapper("RULE:^(a+)+b$/x/")("a" * 5000) is None
