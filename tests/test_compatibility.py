"""`docs/compatibility.md` says what the code does: its tables are read and compared, in both directions."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.handlers.support.dispatch import CONTROLLER_RANGES, RANGES
from penstock.metadata.config_table import BROKER_SETTINGS, TOPIC_SETTINGS, Mode, Setting
from penstock.wire import KAFKA_RANGES, VersionRange, api_versions_reply

PAGE = (Path(__file__).parent.parent / "docs" / "compatibility.md").read_text()

MODES = {
    Mode.READ_ONLY: "restart",
    Mode.CLUSTER_WIDE: "run time",
    Mode.PER_BROKER: "run time, one broker",
}


def table(first_cell: str, page: str = PAGE) -> list[dict[str, str]]:
    """The rows of the one table whose head begins with a cell, by the words of the head."""
    found = [rows for rows in tables(page) if rows[0][0] == first_cell]
    assert len(found) == 1, f"{len(found)} tables begin with {first_cell!r}"
    head, _, *rows = found[0]
    assert all(len(row) == len(head) for row in rows), "a row has too many or too few cells"
    return [dict(zip(head, row, strict=True)) for row in rows]


def tables(page: str) -> Iterator[list[list[str]]]:
    for block in re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE):
        yield [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]


def versions(text: str) -> VersionRange:
    low, _, high = text.partition("-")
    return VersionRange(int(low), int(high or low))


def text_of(default: str | None) -> str:
    return {None: "", "": "(empty)"}.get(default, f"`{default}`")


def plain(cell: str) -> str:
    return cell.strip("`")


def test_every_api_is_on_the_page_in_the_versions_that_are_served() -> None:
    rows = table("API")
    assert {row["API"]: (int(row["key"]), versions(row["versions"])) for row in rows} == {
        api.label: (int(api), served) for api, served in RANGES.items()
    }
    assert len(rows) == len(RANGES)


def test_every_api_is_advertised_as_the_page_says() -> None:
    body = api_versions_reply(RANGES, {}, {}, 0)
    advertised = {}
    for at in range(6, len(body), 6):
        key, low, high = (int.from_bytes(body[at + part : at + part + 2], "big") for part in (0, 2, 4))
        advertised[key] = VersionRange(low, high)
    assert {int(row["key"]): versions(row["advertised"]) for row in table("API")} == advertised


def test_every_api_of_controllers_is_on_the_page_and_whether_brokers_serve_it_too() -> None:
    rows = table("controllers' API")
    assert {
        row["controllers' API"]: (int(row["key"]), versions(row["versions"]), row["at brokers too"])
        for row in rows
    } == {
        api.label: (int(api), served, "yes" if api in RANGES else "no")
        for api, served in CONTROLLER_RANGES.items()
    }
    assert len(rows) == len(CONTROLLER_RANGES)


def test_every_api_of_kafka_that_is_not_served_is_on_the_page() -> None:
    named = [
        (name, versions(text))
        for row in table("for")
        for name, text in re.findall(r"(\w+) (\d+(?:-\d+)?)", row["APIs"])
    ]
    assert len(named) == len(dict(named))
    served = {*RANGES, *CONTROLLER_RANGES}
    assert dict(named) == {api.label: each for api, each in KAFKA_RANGES.items() if api not in served}


@pytest.mark.parametrize("setting", TOPIC_SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_topic_setting_is_on_the_page(setting: Setting) -> None:
    [row] = [each for each in table("topic's setting") if plain(each["topic's setting"]) == setting.name]
    assert row["default"] == text_of(setting.default)
    assert row["acted on"] == ("yes" if setting.acted else "no")
    assert tuple(re.findall(r"`([^`]+)`", row["the brokers'"])) == setting.brokers


BEHIND_TOPICS = {name for each in TOPIC_SETTINGS.values() for name in each.brokers}


@pytest.mark.parametrize(
    "setting",
    [each for each in BROKER_SETTINGS.values() if each.name not in BEHIND_TOPICS],
    ids=lambda setting: setting.name,
)
def test_every_broker_setting_is_on_the_page(setting: Setting) -> None:
    [row] = [each for each in table("broker's setting") if plain(each["broker's setting"]) == setting.name]
    assert row["default"] == text_of(setting.default)
    assert row["acted on"] == ("yes" if setting.acted else "no")
    assert row["changes at"] == MODES[setting.mode]


def test_the_brokers_setting_behind_a_topics_changes_as_the_page_says() -> None:
    """The first at run time, the others at a restart; all are acted on as the topic's is."""
    for topic in TOPIC_SETTINGS.values():
        for number, name in enumerate(topic.brokers):
            assert BROKER_SETTINGS[name].mode is (Mode.READ_ONLY if number else Mode.CLUSTER_WIDE)
            assert BROKER_SETTINGS[name].acted is topic.acted


def test_nothing_is_on_the_page_that_is_not_there() -> None:
    topics = [plain(row["topic's setting"]) for row in table("topic's setting")]
    assert sorted(topics) == sorted(TOPIC_SETTINGS)
    brokers = [plain(row["broker's setting"]) for row in table("broker's setting")]
    assert sorted([*brokers, *BEHIND_TOPICS]) == sorted(BROKER_SETTINGS)


def test_a_setting_that_is_not_acted_on_says_why() -> None:
    for row in (*table("topic's setting"), *table("broker's setting")):
        assert row["acted on"] == "yes" or row["notes"], row


def test_the_reader_of_tables_sees_what_is_wrong_with_one() -> None:
    page = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert table("a", page) == [{"a": "1", "b": "2"}]
    with pytest.raises(AssertionError, match="too many or too few"):
        table("a", page + "| 3 |\n")
    with pytest.raises(AssertionError, match="0 tables"):
        table("c", page)
