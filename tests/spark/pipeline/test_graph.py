"""Which names a query reads is seen from its words."""

from pathlib import Path

import pytest

from penstock.spark.pipeline import load
from penstock.spark.pipeline.graph import names_in, names_read, needed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select * from ORDERS o join `big` b on o.id = b.id", ["orders", "big"]),
        ("SELECT 'orders' FROM big -- orders", ["big"]),
        ('SELECT /* orders */ "orders" FROM big', ["big"]),
        ("SELECT * FROM orders_old", []),
        ("SELECT 'it''s orders', \"a\\\"orders\" FROM big", ["big"]),
    ],
)
def test_names_are_found_and_strings_and_comments_are_not(text: str, expected: list[str]) -> None:
    assert names_in(text, ["orders", "big"]) == expected


def test_a_name_that_the_query_gives_itself_is_not_read() -> None:
    names = frozenset({"late", "other"})

    assert names_read("WITH late AS (SELECT 1) SELECT * FROM late", names) == []
    assert names_read("SELECT late FROM x JOIN other", names) == ["other"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT extract(hour FROM late), trim(BOTH 'x' FROM late) FROM x",
        "SELECT * FROM x WHERE a IS NOT DISTINCT FROM late",
    ],
)
def test_from_inside_an_expression_reads_no_table(text: str) -> None:
    assert names_read(text, frozenset({"late"})) == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT extract(hour FROM at) FROM late",
        "SELECT * FROM (SELECT id FROM late) WHERE true",
        "SELECT * FROM (x JOIN late USING (id))",
        "SELECT window(at, '1 hour') AS w, count(*) FILTER (WHERE ok) FROM late GROUP BY window(at, '1 hour')",
        "FROM x |> JOIN late USING (id)",
        "SELECT * FROM x WHERE id IN ((SELECT id FROM late))",
    ],
)
def test_a_table_of_a_nested_query_is_read(text: str) -> None:
    assert names_read(text, frozenset({"late"})) == ["late"]


def test_what_a_flow_needs_includes_what_its_views_need(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\n"
        "sources: {a: {rate: 1}, b: {rate: 1}, c: {rate: 1}}\n"
        "views: {x: SELECT * FROM a, y: SELECT * FROM x JOIN b, z: SELECT * FROM c}\n"
        "flows: {f: {reads: y, to: {console: true}}}\n"
    )
    spec = load(file)

    assert [each.name for each in needed(spec, spec.flows[0].query)] == ["a", "b", "x", "y"]
