"""Every HTTP route and every command of the line protocol says what its client must be authorized for, and
`docs/security.md` has the table. To make the table anew: `python -m tests.gateway.test_rules`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from penstock.gateway.http.protocol.messages import Route
from penstock.gateway.http.protocol.openapi import path_parameters
from penstock.gateway.http.routes import FRONT, all_routes
from penstock.gateway.http.schemas import PREFIX, registry_routes
from penstock.gateway.line import commands
from penstock.gateway.shared.access import ANY_USER, ANYONE, CREATE_TOPIC, Rule
from penstock.metadata.config_table import BOOLEAN, BROKER_SETTINGS

DOCS = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"
ROUTES = [
    *all_routes(),
    *FRONT,
    *(each for each in registry_routes(PREFIX) if "{context}" not in each.path),
]
LINES = {
    commands.Auth: "AUTH",
    commands.Produce: "TOPIC",
    commands.Read: "TOPIC:GROUP:PARTITION",
    commands.Ack: "ACK",
    commands.SetOffset: "SET_OFFSET",
}


def words(rule: Rule, *, is_write: bool) -> str:
    if rule is ANYONE:
        return "nothing"
    found = [str(each) for each in rule.needs]
    found += [f"{'for each record' if is_write else 'to be shown'}: {each}" for each in rule.shows]
    if rule.creates:
        found.append(f"to create a topic: {CREATE_TOPIC}")
    text = "; ".join(found) if found else "a log-in"
    if rule.opened_by:
        text += f"; nothing if `{rule.opened_by}` is true"
    return text


def rows() -> Iterator[str]:
    yield "| request | needs |"
    yield "|---|---|"
    seen = set()
    for route in ROUTES:
        assert route.rule is not None
        path = re.sub(r"\.(ndjson|arrow|feather|parquet)$", ".*", route.path)
        if (route.method, path) not in seen:
            seen.add((route.method, path))
            yield f"| `{route.method} {path}` | {words(route.rule, is_write=route.method != 'GET')} |"
    for command, name in LINES.items():
        yield f"| line: `{name}` | {words(commands.RULES[command], is_write=True)} |"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_has_a_rule_whose_parameters_it_has(route: Route) -> None:
    assert route.rule is not None, "add rule=Rule(...) to the route: who may send it?"
    fields = {
        field.name
        for struct in [route.body, *get_args(route.body)]
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct)
        for field in msgspec.structs.fields(struct)
    }
    known = {*path_parameters(route), *(each.name for each in route.query if each.is_required), *fields}
    assert {each.parameter for each in route.rule.needs} - {""} <= known
    assert route.rule.needs or route.rule.shows or route.rule in (ANY_USER, ANYONE)
    if route.rule.opened_by:
        assert BROKER_SETTINGS[route.rule.opened_by].type is BOOLEAN
    if {"topic", "name"} & set(path_parameters(route)):
        assert route.rule.needs, "a topic is not shown to everyone"


def test_every_command_has_a_rule() -> None:
    assert set(get_args(commands.Command)) == set(commands.RULES) == set(LINES)
    for command, rule in commands.RULES.items():
        assert rule.needs or rule.shows or command is commands.Auth


def test_the_table_in_the_documentation_is_made_of_the_rules() -> None:
    text = DOCS.read_text()
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == "\n".join(rows())


if __name__ == "__main__":
    text = DOCS.read_text()
    before, _, rest = text.partition(BEGIN)
    DOCS.write_text("\n".join([before + BEGIN, *rows(), END]) + rest.partition(END)[2])
