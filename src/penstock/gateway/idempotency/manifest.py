"""What counts of a topic's keys on disk: `keys.json` in the topic's directory, replaced whole.

It is made, durably, before the first key of a topic is written to its log: a topic without one has no keys, and costs
nothing. From then on the log keeps every record that no key file covers (`IdempotencyKeys.removable`).
"""

import msgspec

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.records.checksum import crc32c
from penstock.replica import Partition

MANIFEST = "keys.json"


class BadManifest(Exception):
    """A manifest that cannot be used; the message says why."""


class FileNote(msgspec.Struct, frozen=True):
    """A key file that counts."""

    name: str
    entries: int
    oldest_ms: TimestampMs
    newest_ms: TimestampMs
    cuts: dict[str, Offset] = {}
    """By partition: entries from this offset on are void, because the log lost what was there."""


class Manifest(msgspec.Struct, frozen=True):
    topic: str
    """For people, and for the logs: the directory is named by the topic's id."""
    covered: dict[str, Offset] = {}
    """By partition: every key below this offset is in the files. From here on the log has to be read."""
    files: tuple[FileNote, ...] = ()
    """Oldest first; where two have a key, the later one counts."""
    next_file: int = 1
    version: int = 1
    epochs: dict[str, LeaderEpoch] = {}
    """By partition: the leader epoch of the last record that is covered. Where the log has another there, an unclean
    election has taken back what was covered."""

    def encode(self) -> bytes:
        """JSON, and before it its CRC-32C in a line of its own."""
        body = msgspec.json.format(msgspec.json.encode(self), indent=1)
        return b"%08x\n" % crc32c(body) + body

    @classmethod
    def decode(cls, data: bytes, path: str) -> "Manifest":
        line, _, body = data.partition(b"\n")
        try:
            crc = int(line, 16)
            if crc != crc32c(body):
                raise BadManifest(f"{path}: CRC {crc:08x}, expected {crc32c(body):08x}, which its bytes give")
            manifest = msgspec.json.decode(body, type=cls)
        except ValueError as error:
            raise BadManifest(f"{path}: {error}") from error
        if manifest.version != 1:
            raise BadManifest(f"{path}: version {manifest.version}, expected 1")
        return manifest


def sound_end(manifest: Manifest, partition: Partition) -> Offset:
    """How far the files cover a log as it is now. What was saved was committed; but where an unclean election has
    taken committed records back, another epoch begins below, and all behind that is another log.

        saved       epoch 3 [0 ........ 90]
        now         epoch 3 [0 .... 60] epoch 5 [60 ...... 120]      covered to 60
    """
    number = str(partition.number)
    covered, epoch = manifest.covered.get(number, 0), manifest.epochs.get(number)
    log = partition.log
    if epoch is None or not covered:
        return min(covered, log.log_end)
    found, end = log.epochs.end_of(epoch, log.log_end)
    return min(covered, log.log_end, end) if found >= 0 else 0
