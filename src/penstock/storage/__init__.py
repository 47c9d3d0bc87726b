"""The log on disk: Kafka's own files, crash-safe.

    directory, layout      a node's data directory: all partitions, checkpoints, the lock; where they lie
    log           one partition: append, truncate                         <- start here
    reading, durable       the parts of a log that read it, and that know what is on disk for certain
    rules, syncing         what a log asks of a batch; what it has to sync, for any thread
    inspection    judging a batch beside the event loop, where its records take long to look at
    recovery      opening a partition after a clean stop, or a crash
    segments      the immutable list of segments that readers hold
    unread        records that are read from a segment as they are sent
    segment       a stretch of log in a file, with its indexes
    indexes, aborted       offset and time index; transaction index
    producers, snapshots   sequences and open transactions; their files
    epochs, checkpoints    the small files
    retention, deletion    what has outlived its settings; deleting it safely
    compaction, cleaner, latest, swap    one record a key: deciding, doing, remembering, putting in place
    scan, openfiles, names               walking a file; a bounded cache of open ones; what they are called
    strays        partitions that no topic claims, and that are kept
    check         is everything as it should be?
    legacy        the files of older systems

Nothing here reads a clock, draws a random number or starts a thread: time, chance and the disk come in.
"""

from penstock.storage.directory import LogDirectory, open_directory
from penstock.storage.errors import CorruptLog, DirectoryRefused, OffsetOutOfRange, StorageError
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
    "OffsetOutOfRange",
    "Origin",
    "StorageError",
    "open_directory",
]
