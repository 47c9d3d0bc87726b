"""Idempotency keys: a record that is sent again with the same key gets the offset of the first one.

    keys           the keys of all topics, and what their logs may not delete yet    <- start here
    topic_keys     one topic: claims, keys in memory, and when they are saved
    topic_files    the topic's key files: the manifest, lookups, saving and merging
    log_reading    reading the topic's logs for keys that no file covers
    keyfile        one file: sorted entries, a Bloom filter, checksums

A key is a header of its record, so that both are one write, and the log is the truth: keys that no file covers are
read from it when a topic's keys are first needed. The files keep keys whose records retention or compaction removed,
and keep a start short. The partitions of a topic share one set of files: a key is looked up once, whichever partition
its record went to."""

from penstock.gateway.idempotency.keyfile import HEADER, IDEMPOTENCY_KEY_BYTES_MAX, digest_of
from penstock.gateway.idempotency.keys import IdempotencyKeys
from penstock.gateway.idempotency.log_reading import still_loading
from penstock.gateway.idempotency.topic_keys import Claim, TopicKeys

__all__ = [
    "HEADER",
    "IDEMPOTENCY_KEY_BYTES_MAX",
    "Claim",
    "IdempotencyKeys",
    "TopicKeys",
    "digest_of",
    "still_loading",
]
