"""Ranges of topics as files for data frames: Arrow and Parquet.

    job      what goes to a child process, and what comes back; free of pyarrow, which the node never imports
    files    the child's work: segments to columns to a file
    store    files that were made, kept for as long as somebody reads them

A child makes a file from the log's segments, as Spark's scans do: neither the records nor pyarrow (60 MB, 0.4 s) come
near the node's memory. The node serves the file in portions, and any part of it, since readers of Parquet begin at its
end.
"""
