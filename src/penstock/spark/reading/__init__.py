"""Reads topics as rows: planned on the driver, read by tasks, once or as a stream.

options         parses and checks the options of a reader
option_names    names of the options
offset_json     offsets in options and checkpoints, as JSON
offsets         resolves topics and offsets
batch           a batch read
stream          a streaming read
rate            size of a stream's micro-batch
plan            splits ranges into tasks
fetch           a task: fetches one range of a partition
fetch_request   its Fetch requests
tail            waits for new records
group           commits the position to a consumer group, which shows the lag
scan            reads segment files without a broker
refused         a stream with invalid options
"""
