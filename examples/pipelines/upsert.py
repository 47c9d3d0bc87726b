"""What each customer has spent, kept in a SQLite database: a function that is given every micro-batch.

After a crash the last batch may come again, with the same number. So the function writes the number into the
database in the same transaction as the rows, and leaves out a batch that is there already.
"""

import sqlite3
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from penstock.spark.pipeline import Pipeline

DATABASE = Path(__file__).parent / "customers.db"

pipeline = Pipeline("upsert", bootstrap="127.0.0.1:9092", checkpoint="state/upsert")

pipeline.source(
    "orders",
    topic="orders",
    value="json",
    schema="id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP",
    options={"maxOffsetsPerTrigger": 100_000},
)


@pipeline.view
def spent(orders: DataFrame) -> DataFrame:
    return orders.groupBy("customer").agg(sf.sum("amount").alias("spent"), sf.count("*").alias("orders"))


@pipeline.each_batch(reads="spent", mode="update")
def customers(batch: DataFrame, batch_id: int) -> None:
    rows = [tuple(row) for row in batch.select("customer", "spent", "orders").collect()]
    database = sqlite3.connect(DATABASE)
    with database:  # one transaction
        database.execute(
            "CREATE TABLE IF NOT EXISTS customers (customer TEXT PRIMARY KEY, spent REAL, orders INTEGER)"
        )
        database.execute("CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY)")
        seen = database.execute("SELECT 1 FROM batches WHERE number >= ?", [batch_id]).fetchone()
        if seen is None:
            database.executemany(
                "INSERT INTO customers VALUES (?, ?, ?) ON CONFLICT (customer) "
                "DO UPDATE SET spent = excluded.spent, orders = excluded.orders",
                rows,
            )
            database.execute("INSERT INTO batches VALUES (?)", [batch_id])
    database.close()
