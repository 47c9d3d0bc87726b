"""Rows into topics.

sink          what df.write and writeStream are    sink_options  options of a writer, checked
rows          Spark's columns, checked             write_task    a task: rows to partitions
sending       batches to brokers                   transactions  opened, looked at, ended
job           a batch job: all of it or nothing    micro_batch   a stream: each batch once
ledger        what a stream has committed          changed_rows  a stream in output mode update
"""
