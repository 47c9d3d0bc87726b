"""Ranges of topics as Arrow and Parquet files.

    job       what a child process is given, and what it returns; does not import pyarrow
    files     the child's work: segments to columns to a file
    copies    ranges that another broker leads, copied for the child
    store     finished files, kept while clients read them

A child process makes a file from the log's segments, as Spark's scans do: neither the records nor pyarrow (60 MB, 0.4
s) are loaded into the broker. The broker serves the file in portions, and any part of it: readers of Parquet begin at
its end."""
