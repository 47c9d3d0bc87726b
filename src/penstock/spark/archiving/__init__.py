"""A topic as a table of Parquet files.

archive        written by a stream      archive_table  its files: which offsets each has, made and merged
audit          compared with the log    replay         brought back into a topic
"""
