"""Reads segment files without a broker.

log_dirs               finds the partitions in a directory
log_files              lists the segments of a partition, and finds its log end
transaction_outcomes   finds aborted transactions and the last stable offset
task_ranges            splits a partition into tasks, at index entries
read_range             reads the range of a task
"""
