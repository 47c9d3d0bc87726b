"""The log on disk: Kafka's own files, crash-safe.

    directory     a node's data directory: all partitions, checkpoints, the lock
    log           one partition: append, read, flush, truncate            <- start here
    syncing       what a log has to sync, for any thread
    recovery      opening a partition after a clean stop, or a crash
    segments      the immutable list of segments that readers hold
    segment       a stretch of log in a file, with its indexes
    indexes, aborted       offset and time index; transaction index
    producers, snapshots   sequences and open transactions; their files
    epochs, checkpoints    the small files
    retention, deletion    what has outlived its settings; deleting it safely
    compaction, cleaner, latest, swap    one record a key: deciding, doing, remembering, putting in place
    scan, openfiles, names               walking a file; a bounded cache of open ones; what they are called
    check         is everything as it should be?
    legacy        the files of older systems

Nothing here reads a clock, draws a random number or starts a thread: time, chance and the disk come in.
"""

from penstock.storage.directory import DirectoryRefused, LogDirectory, open_directory
from penstock.storage.errors import CorruptLog, OffsetOutOfRange, StorageError
from penstock.storage.log import Appended, Log
from penstock.storage.rules import Origin

__all__ = [
    "Appended",
    "CorruptLog",
    "DirectoryRefused",
    "Log",
    "LogDirectory",
    "OffsetOutOfRange",
    "Origin",
    "StorageError",
    "open_directory",
]
