"""Spark on a log: `python -m benchmarks.spark` for queries from end to end beside their yardsticks and Spark's own
Kafka connector, `python -m benchmarks.spark.decode` for records to Arrow and back."""
