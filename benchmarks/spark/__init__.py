"""Spark on a log: `python -m benchmarks.spark.decode` for records to Arrow and back."""
