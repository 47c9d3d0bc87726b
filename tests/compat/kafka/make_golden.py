"""Make `tests/golden/kafka/` anew: python -m tests.compat.kafka.make_golden

Runs a real Kafka, lets it write everything, and keeps the directory it leaves behind,
what its consumer read from it and what its kafka-dump-log says about it. The old golden
directory is replaced only when the new one is complete.
"""

import gzip
import io
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.compat.kafka.everything import write_and_kill, write_everything
from tests.compat.kafka.peer import (
    REPOSITORY,
    KafkaError,
    KafkaPeer,
    KafkaUnavailable,
    kafka_version,
)

GOLDEN = REPOSITORY / "tests" / "golden" / "kafka"
BYTES_MAX = 400_000

METADATA = "__cluster_metadata-0"

DUMPED = (
    "codec-none-0",
    "codec-zstd-0",
    "compacted-tombstones-gone-0",
    "compacted-tombstones-kept-0",
    "compacted-transactions-0",
    "idempotent-0",
    "log.append_time-0",
    "records-deleted-0",
    "segments-0",
    "transaction-open-0",
    "transactions-0",
)
LOG_ARGUMENTS = ("--deep-iteration", "--print-data-log")
DECODED = {
    "__consumer_offsets-0": "--offsets-decoder",
    "__transaction_state-0": "--transaction-log-decoder",
}

README = """\
# A log directory that Apache Kafka wrote

Made by `python -m tests.compat.kafka.make_golden`, with Apache Kafka {version}. It needs Java 17 and
Maven, takes about a minute, and replaces everything here; ids and times differ from run to run.
The tests that use it need neither Java nor Kafka.

- `logs/`: the directory (`log.dirs`) after a clean shutdown, whole. One partition holds one subject:
  - `codec-*`: every codec, batches of several records; null and empty keys and values, headers with
    and without a value, a header name twice. `codec-none` has two segments.
  - `segments`: single-record batches in several segments, timestamps that step back, a second leader epoch.
  - `idempotent`: two producers that count sequences, in two leader epochs.
  - `transactions`: two producers that overlap, commit and abort, plain records between them;
    `transaction-open`: ends in a transaction that nobody decided.
  - `compacted-tombstones-kept`: cleaned, tombstones with a delete horizon; the replaced segments still
    there as `.deleted`, and a first segment that cleaning left empty.
    `compacted-tombstones-gone`: cleaned twice, tombstones gone. `compacted-transactions`: cleaned
    transactional data, aborted records gone, markers kept.
  - `records-deleted-0`: log start offset 17 within the first segment, 13. `records-deleted-1`: the same,
    with segment 0 still there below it.
  - `log.append_time`: `message.timestamp.type=LogAppendTime`, compressed.
  - `empty`: no record. `doomed-0.*-delete`: a deleted topic whose removal was pending, its indexes
    never trimmed (preallocated with `segment.index.bytes=4096`).
  - `__consumer_offsets`, `__transaction_state`, `{metadata}`: Kafka's own.
- `expected.jsonl.gz`: a JSON line for each partition (its offsets as ListOffsets gives them) and each
  record as Kafka's consumer read it, keys and values in hex. `committed` tells whether read_committed
  saw it; read_uncommitted saw them all. `tests.compat.kafka.everything.load_expected` reads it.
- `dump/`: what kafka-dump-log printed about some of the partitions, a text for each file: logs with
  `--deep-iteration --print-data-log`, or with the decoder for Kafka's own topics.
- `unclean.tar.gz`: a second, smaller directory, `unclean/`, whose broker was ended with SIGKILL: no
  clean-shutdown file, checkpoints empty or behind, the active segments' indexes preallocated and mostly zeros
  (`log.index.size.max.bytes=4096`; 10 MB by default). `{metadata}` is left out of it, since
  its indexes are 10 MB whatever is set. `unclean-expected.jsonl.gz` is what was read just before.

Topics have `internal.segment.bytes=1500` and `index.interval.bytes=300`, so that a little data makes
several segments and index entries.
"""


def main() -> int:
    try:
        peer = KafkaPeer.find()
        with tempfile.TemporaryDirectory(prefix="kafka-golden-") as scratch:
            made = make(peer, Path(scratch))
            size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
            if size > BYTES_MAX:
                raise KafkaError(f"the golden directory would have {size:,} bytes; at most {BYTES_MAX:,}")
            shutil.rmtree(GOLDEN, ignore_errors=True)
            shutil.copytree(made, GOLDEN)
    except (KafkaUnavailable, KafkaError) as failure:
        print(failure, file=sys.stderr)
        return 1
    print(f"{GOLDEN}: {size:,} bytes")
    return 0


def make(peer: KafkaPeer, scratch: Path) -> Path:
    made = scratch / "golden"
    logs = made / "logs"
    _write_gzip(made / "expected.jsonl.gz", write_everything(peer, logs).encode())
    for name, text in dumps(peer, logs):
        target = made / "dump" / f"{name}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    killed = scratch / "unclean"
    _write_gzip(made / "unclean-expected.jsonl.gz", write_and_kill(peer, killed).encode())
    _write_gzip(made / "unclean.tar.gz", _tar(killed))
    (made / "README.md").write_text(README.format(version=kafka_version(), metadata=METADATA))
    return made


def dumps(peer: KafkaPeer, logs: Path) -> Iterator[tuple[str, str]]:
    """Yield `<partition>/<file>` and what kafka-dump-log says about it."""

    def files(directory: str, suffix: str) -> list[Path]:
        return [path.relative_to(logs) for path in sorted((logs / directory).glob(f"*{suffix}"))]

    def all_files(*suffixes: str) -> list[Path]:
        return [path for suffix in suffixes for name in DUMPED for path in files(name, suffix)]

    runs: list[tuple[list[Path], tuple[str, ...]]] = [
        (all_files(".log"), LOG_ARGUMENTS),
        (all_files(".index", ".timeindex", ".txnindex", ".snapshot"), ()),
    ]
    runs += [(files(directory, ".log"), (decoder,)) for directory, decoder in DECODED.items()]
    for paths, arguments in runs:
        dump = peer.dump_log(paths, *arguments, cwd=logs)
        problems = dump.problems(gaps=True)
        if problems:
            raise KafkaError(f"kafka-dump-log complains about {paths}: {problems[:5]}")
        yield from dump.by_file().items()


def _tar(directory: Path) -> bytes:
    """Return a tar whose bytes depend on the files' names and contents alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for root, directories, names in os.walk(directory):
            directories[:] = sorted(name for name in directories if name != METADATA)
            for name in sorted(names):
                path = Path(root) / name
                entry = tarfile.TarInfo(str(path.relative_to(directory.parent)))
                entry.size = path.stat().st_size
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return buffer.getvalue()


def _write_gzip(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
