"""Strays as a table for people, and as JSON."""

from collections.abc import Sequence

from penstock.base.ids import uuid_text
from penstock.cli.output import print_table, show_time
from penstock.storage.strays import Stray


def print_strays(found: Sequence[Stray]) -> None:
    rows = [
        (
            str(each.partition),
            each.size_bytes,
            show_time(each.set_aside_ms),
            each.reason or None,
            None if each.topic_id is None else uuid_text(each.topic_id),
            each.name,
        )
        for each in found
    ]
    print_table(("partition", "bytes", "set aside", "because", "topic id", "directory"), rows)


def as_document(stray: Stray) -> dict[str, object]:
    return {
        "partition": str(stray.partition),
        "topic": stray.partition.topic,
        "number": stray.partition.partition,
        "path": stray.path,
        "sizeBytes": stray.size_bytes,
        "topicId": None if stray.topic_id is None else uuid_text(stray.topic_id),
        "logStart": stray.log_start,
        "leaderEpoch": None if stray.epoch < 0 else stray.epoch,
        "setAsideMs": None if stray.set_aside_ms < 0 else stray.set_aside_ms,
        "reason": stray.reason or None,
    }
