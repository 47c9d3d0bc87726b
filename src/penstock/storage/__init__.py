"""The log on disk, in Kafka's files, crash-safe.

    log                         one partition: append, truncate                         <- start here
    reader, flusher, truncation parts of a log: reading; flushes and checkpoints; dropping its end
    directory, checkpoint_files a node's data directory and its checkpoints
    layout, identity            paths in a data directory; meta.properties
    recovery, opening           opening a log after a clean stop or a crash
    holes                       lost or damaged ranges of offsets
    segments, segment           the immutable list of segments that readers hold; one segment
    indexes, txn_index          offset and time index; transaction index
    unread                      records that are read from a segment while they are sent
    producers, snapshots        sequences and open transactions; their files
    epochs, checkpoints         leader epochs; encoding of the small files
    rules, inspection           validation of produced batches, on the event loop or in another process
    syncing                     flushes and checkpoints as work for any thread
    retention, deletion         expired segments; deleting segments safely
    compaction, cleaner, offset_map, swap    planning; cleaning; latest offset of each key; replacing segments
    scan, open_files, names     reading segment files; a bounded cache of open files; file names
    strays                      partitions on disk that the metadata does not know, which are kept
    boot_marker                 whether a killed broker has lost data
    trial                       whether a failed disk accepts writes again
    check, check_partition, check_indexes, findings, checkpoint_reader    consistency checks for tools
    legacy                      import and export of older file formats

Nothing here reads a clock, draws random numbers or starts a thread: time, randomness and the disk are passed in.
"""

from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.errors import CorruptLog, DirectoryRefused, StorageError
from penstock.storage.inspection import Inspected, Inspection, NeedsInspection
from penstock.storage.log import Appended, Log
from penstock.storage.rules import Origin

__all__ = [
    "Appended",
    "CorruptLog",
    "DirectoryRefused",
    "Inspected",
    "Inspection",
    "Log",
    "LogDirectory",
    "NeedsInspection",
    "Origin",
    "StorageError",
    "open_directory",
]
