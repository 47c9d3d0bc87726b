"""Idempotency keys: a record that is sent again with the same key is answered with where the first one is.

    keys        all topics; what the log may not remove yet          <- start here
    topic_keys  one topic: what is known of a key, and when keys are saved
    claims      a key whose record is being written, and who waits for it
    recent      keys in memory that no file has yet
    topic_files the topic's files: older keys, looked up and written
    log_reading the topic's logs: read for what no file covers
    entries     a key's digest and its record's place, in 36 bytes
    keyfile     many of them on disk, sorted, for good
    merging     several of these files into one
    manifest    which files count, and which part of each log they cover
    saving      what is done with files beside the loop
    replay      keys found in a portion of a log

A key is in a header of its record, so that both are one write, and the log is the truth: what no file covers yet is
read from it when a topic's keys are first needed. The files keep what retention and compaction take from the log, and
they keep a start short. All of a topic's partitions share one set of files, so that a key is looked up once, however
many partitions there are and whichever of them its record went to.
"""

from penstock.gateway.idempotency.keyfile import HEADER, IDEMPOTENCY_KEY_BYTES_MAX, digest_of
from penstock.gateway.idempotency.keys import IdempotencyKeys
from penstock.gateway.idempotency.topic_keys import Claim, TopicKeys

__all__ = [
    "HEADER",
    "IDEMPOTENCY_KEY_BYTES_MAX",
    "Claim",
    "IdempotencyKeys",
    "TopicKeys",
    "digest_of",
]
