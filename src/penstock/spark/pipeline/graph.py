"""Finds the sources and views that a query reads.

Spark parses SQL; this module only tokenizes it (decision 26 has the reasons). `names_in` finds every word
that is a name, possibly too many (a column can have a view's name): all of them must exist when the query is
built. `names_read` finds only those after FROM and JOIN, to report a name that is declared too late.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Set

from .spec import Call, PipelineSpec, Query, Reads, Source, Sql, View

_TOKEN = re.compile(
    r"""
      (?P<skip> --[^\n]* | /\*.*?\*/ | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
    | (?P<quoted> `(?:[^`]|``)+` )
    | (?P<word> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<mark> [.,()] )
    """,
    re.VERBOSE | re.DOTALL,
)


_QUERY = ("select", "with", "from")
"""First words of a query in parentheses. Other parentheses have no FROM clause directly inside."""


def _words(text: str) -> Iterable[tuple[str, bool]]:
    """The words of a query in lower case, without strings and comments, and whether each is a mark or unquoted."""
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "skip":
            continue
        token = found.group()
        yield (token.strip("`").lower(), found.lastgroup == "word")


def names_in(text: str, names: Iterable[str]) -> list[str]:
    """The names in a query, in the order of their first occurrence."""
    wanted = {name.lower(): name for name in names}
    return list(dict.fromkeys(wanted[word] for word, _ in _words(text) if word in wanted))


def names_read(text: str, names: Set[str]) -> list[str]:
    """The names after FROM or JOIN, without those that the query itself defines: `WITH name AS`."""
    words = list(_words(text))
    own = {
        word
        for (before, _), (word, _), (after, _) in zip(words, words[1:], words[2:], strict=False)
        if before in ("with", ",", "recursive") and after in ("as", "(")
    }
    read = dict.fromkeys(words[at + 1][0] for at in _clauses(words) if at + 1 < len(words))
    return [word for word in read if word in names and word not in own]


def _clauses(words: Sequence[tuple[str, bool]]) -> Iterator[int]:
    """Positions at which FROM or JOIN starts a clause: not in `extract(day FROM at)` or `a IS DISTINCT FROM b`."""
    in_query = [True]
    for at, (word, is_bare) in enumerate(words):
        if word == "(" and not is_bare:
            in_query.append(words[at + 1][0] in _QUERY if at + 1 < len(words) else False)
        elif word == ")" and not is_bare and len(in_query) > 1:
            in_query.pop()
        elif is_bare and word in ("from", "join"):
            is_distinct = at > 0 and words[at - 1][0] == "distinct"
            if word == "join" or (in_query[-1] and not is_distinct):
                yield at


def direct(query: Query, names: Iterable[str]) -> list[str]:
    """The names that a query may read directly."""
    if isinstance(query, Sql):
        return names_in(query.text, names)
    if isinstance(query, Reads):
        return [query.name]
    assert isinstance(query, Call)
    return [each for each in query.parameters if each in set(names)]


def needed(spec: PipelineSpec, query: Query) -> list[Source | View]:
    """All names that a query may read, directly or through views, in the order of the file."""
    things: dict[str, Source | View] = {each.name: each for each in spec.sources}
    things |= {each.name: each for each in spec.views}
    found: set[str] = set()
    waiting = direct(query, things)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        thing = things[name]
        if isinstance(thing, View):
            above = list(things)[: list(things).index(name)]
            waiting += direct(thing.query, above)
    return [thing for name, thing in things.items() if name in found]
