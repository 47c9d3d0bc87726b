"""docs/spark.md is executed, and its table of options is the code's."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.topics import Topics, numbers

from penstock.spark.options import CLIENT_CONFIG
from penstock.spark.reading.option_names import NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_examples_of_reading_and_streaming_run(
    spark: "SparkSession", topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topics.broker.create_topic("orders")
    topics.produce("orders", numbers(5))
    names: dict[str, object] = {"spark": spark}
    examples = [
        each
        for title in ("Reading", "Streaming")
        for each in re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    ]
    assert len(examples) == 3
    for example in examples:
        here = example.replace("127.0.0.1:9092", topics.broker.bootstrap).replace(
            '"table"', f'"{tmp_path}/table"'
        )
        exec(here.replace('"checkpoint"', f'"{tmp_path}/checkpoint"'), names)
    assert spark.read.parquet(f"{tmp_path}/table").count() == 5
    assert topics.committed("spark-orders", "orders") == [5]


def test_the_examples_of_writing_run(
    spark: "SparkSession", topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topics.broker.create_topic("shouts")
    topics.produce("shouts", numbers(5))
    source = topics.options("shouts", startingOffsets="earliest")
    names: dict[str, object] = {
        "spark": spark,
        "orders": spark.read.format("penstock").options(**topics.options("shouts")).load(),
        "events": spark.readStream.format("penstock").options(**source).load(),
    }
    examples = re.findall(r"```python\n(.*?)```", section("Writing"), re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        here = example.replace("127.0.0.1:9092", topics.broker.bootstrap)
        exec(here.replace('"checkpoints/', f'"{tmp_path}/checkpoints/'), names)

    def written(topic: str) -> list[str]:
        options = topics.options(topic, isolation__level="read_committed")
        rows = spark.read.format("penstock").options(**options).load().collect()
        return sorted(str(row["value"], "utf8") for row in rows)

    assert len(written("shouted")) == len(written("copies")) == 5
    assert written("shouted") == [each.upper() for each in written("copies")]
    assert sum(map(int, written("counts"))) == 5


def test_every_option_is_in_the_table() -> None:
    table = [line for line in section("Options").splitlines() if line.startswith("| `")]
    told = {name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[1])}
    assert told == {*NAMES.values(), "kafka.bootstrap.servers", CLIENT_CONFIG}
