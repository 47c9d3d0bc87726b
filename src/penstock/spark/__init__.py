"""Reads and writes topics with Spark: no jar, Spark's Python Data Source API and Arrow.

    import penstock.spark
    spark.read.format("penstock").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

The driver plans ranges of partitions, executors read and decode. Works with Penstock and Apache Kafka. Importing this
package makes later sessions use this Python, in which Spark finds the format; it imports neither pyspark nor Arrow,
which load with the modules that need them.

    source      the data source `penstock`           reading     topics as rows, once or as a stream
    schema      its columns                          writing     rows into topics, exactly once
    options     parsing of options                   archiving   a topic as a table, compared and replayed
    functions   columns to and from a registry
    executable  which Python Spark runs              pipeline    sources, queries and sinks in one file
    session     a light local session                worker      set-up of a Python worker
    java, home  the Java and SPARK_HOME of it        errors      exceptions
"""

from penstock.spark.executable import register, set_default_python

__all__ = ["register"]

set_default_python()
