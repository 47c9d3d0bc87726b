"""Segment files as rows, without a broker.

scan        options and plan                     files       segments of a partition, and where it ends
places      partitions in a directory            decided     what of them is committed
cuts        tasks, cut where an index has entries   scan_task   a task: one stretch of a partition
"""
