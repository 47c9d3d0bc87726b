"""A topic as a table of Parquet files.

archive         writes a topic to the table with a Spark stream
archive_table   the files of the table: their offset ranges, and merging
audit           compares the table with the log
replay          writes the table back to a topic
"""
