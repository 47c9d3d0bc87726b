"""The examples run as they stand, and do what they say."""

import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from penstock.testing import Broker

from .running import consume, produce, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"


def order(number: int, customer: str, amount: float, at: str) -> dict[str, Any]:
    return {"id": number, "customer": customer, "amount": amount, "at": f"2026-03-01T{at}Z"}


ORDERS = [
    order(1, "ann", 10.0, "10:00:05"),
    order(2, "ann", 5.0, "10:00:55"),
    order(3, "bob", 7.0, "10:01:10"),
    order(2, "ann", 5.0, "10:00:56"),
    order(4, "bob", 1.0, "12:00:00"),
]
"""The fourth is the second once more; the last comes so late that the first minutes are over."""


@pytest.fixture(scope="module")
def broker() -> "Iterator[Broker]":
    with Broker() as broker:
        for topic in ("orders", "payments"):
            broker.create_topic(topic, partitions=1)
        produce(broker, "orders", ORDERS)
        payments = [
            (1, "card", "10:30:00"),
            (3, "cash", "11:30:00"),
            (4, "card", "12:00:01"),
            (9, "card", "12:00:02"),
        ]
        produce(
            broker,
            "payments",
            [{"order_id": each, "method": how, "paid_at": f"2026-03-01T{at}Z"} for each, how, at in payments],
        )
        yield broker


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES, tmp_path / "pipelines"))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-01T{text}").replace(tzinfo=UTC)


def test_every_example_is_tested_here() -> None:
    names = {each.name for each in EXAMPLES.iterdir() if each.suffix in (".yaml", ".py")}

    assert names == {"windows.yaml", "join.yaml", "deduplicate.yaml", "upsert.py"}


@pytest.mark.long
def test_windows(spark: "SparkSession", broker: Broker, place: Path) -> None:
    run(place / "windows.yaml", spark, broker.bootstrap)

    told = [
        (value["minute"], value["customer"], value["revenue"])
        for _, value in consume(broker, "revenue-per-minute")
    ]
    assert sorted(told) == [
        ("2026-03-01T10:00:00.000Z", "ann", 20.0),
        ("2026-03-01T10:01:00.000Z", "bob", 7.0),
    ], "the last minute is not over"
    table = DeltaTable(place / "tables/revenue").to_pyarrow_table().to_pylist()
    assert sorted((each["minute"], each["customer"], each["revenue"], each["orders"]) for each in table) == [
        (moment("10:00:00"), "ann", 20.0, 3),
        (moment("10:01:00"), "bob", 7.0, 1),
        (moment("12:00:00"), "bob", 1.0, 1),
    ]


@pytest.mark.long
def test_join(spark: "SparkSession", broker: Broker, place: Path) -> None:
    run(place / "join.yaml", spark, broker.bootstrap)

    rows = spark.read.parquet(str(place / "tables/paid-orders")).collect()
    assert sorted((row["id"], row["customer"], row["method"]) for row in rows) == [
        (1, "ann", "card"),
        (4, "bob", "card"),
    ]


def test_deduplicate(spark: "SparkSession", broker: Broker, place: Path) -> None:
    run(place / "deduplicate.yaml", spark, broker.bootstrap)

    found = consume(broker, "unique-orders")
    assert sorted(value["id"] for _, value in found) == [1, 2, 3, 4]
    assert {key for key, _ in found} == {b"ann", b"bob"}


def test_upsert(spark: "SparkSession", broker: Broker, place: Path) -> None:
    run(place / "upsert.py", spark, broker.bootstrap)

    database = sqlite3.connect(place / "customers.db")
    rows = database.execute("SELECT customer, spent, orders FROM customers ORDER BY customer").fetchall()
    database.close()
    assert rows == [("ann", 20.0, 3), ("bob", 8.0, 2)]
