"""Spark reads and writes topics here: no jar, Spark's Python Data Source API and Arrow.

    spark.read.format("penstock").option("kafka.bootstrap.servers", ...).option("subscribe", "orders").load()

The driver plans (which partitions, from where to where), executors read and decode. Works with Apache Kafka as with
Penstock. This package imports nothing by itself: pyspark and Arrow load with the module that needs them.

    source        what format("penstock") is           session, java  a light session, and a Java for it
    schema        the columns                          errors         what goes wrong, in sentences
    options       what a reader was told, checked      option_names   which options there are
    offset_json   offsets in options, checkpoints      offsets        topics, where they start and end
    batch         from somewhere to somewhere          plan           ranges, cut into tasks
    fetch         a task: one range of a partition     stream         offsets of a stream, its ends and losses
    rate          how much is one batch of a stream    tail           waits for new records
    group         the position, for all to see its lag
    decode        record batches to Arrow              encode         Arrow to record batches
    scan          segment files without a broker       sink           rows into topics, exactly once
    pipeline      sources, transforms, sinks in one file

A scan of files: `places` finds partitions, `files` their segments and where they end, `decided` what of them is
committed, `cuts` makes tasks of them, `scan_task` reads one. A topic as a table: `archive` writes it into an
`archive_table`, `audit` compares the two, `replay` brings it back.
"""
