"""How Spark finds `format("penstock")` by itself.

Spark imports every top-level package named `pyspark_*` when it first meets a format that it does not know, and
registers the `DefaultSource` in it.
"""

from penstock.spark.source import DefaultSource

__all__ = ["DefaultSource"]
