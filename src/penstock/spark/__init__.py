"""Spark reads and writes topics here: no jar, Spark's Python Data Source API and Arrow.

    spark.read.format("penstock").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

The driver plans (which partitions, from where to where), executors read and decode. Works with Apache Kafka as with
Penstock. This package imports nothing by itself: pyspark and Arrow load with the module that needs them.

    source      what format("penstock") is        reading     topics as rows, once or as a stream
    schema      the columns                       scanning    segment files as rows, without a broker
    session     a light session                   writing     rows into topics, exactly once
    java, home  a Java for it, a home for it      columns     record batches to Arrow, and back
    errors      what goes wrong, in sentences     archiving   a topic as a table, compared and brought back
    told        options, as a user gave them      pipeline    sources, queries and sinks in one file
"""
