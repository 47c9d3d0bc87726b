"""`penstock audit`: checks that every record of the log is in the table, once and unchanged.

Both sides are reduced to two numbers per range of offsets: the number of records, and their combined checksum.
This needs no shuffle of records, so an audit costs little more than reading both sides. Only
ranges that differ are compared record by record.

    log start                           position              log end
        |  compared, record for record      |  not archived yet   |
    ----|-----------------------------------|---------------------|
    only in the table: retention has deleted them from the log

A record in the table at or after the log start that is not in the log is an error, unless the topic is compacted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.arrow.scan.log_dirs import find_logs
from penstock.arrow.scan.log_files import LogView, with_view
from penstock.arrow.scan.transaction_outcomes import replay_transactions
from penstock.base.ids import Offset, TopicPartition, uuid_text
from penstock.client.admin import Resource, ResourceType, describe_configs
from penstock.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from penstock.spark.archiving.archive_table import Archive, files_of, read_positions, the_archive
from penstock.spark.errors import ArchiveFault
from penstock.spark.options import connect
from penstock.spark.schema import SCHEMA
from penstock.vfs import RealDisk

STRETCH_BITS: Final = 16
"""Offsets that differ only in this many of their last bits share one checksum."""

EXAMPLES_MAX: Final = 1000
"""Maximum positions listed for each kind of difference; the rest is counted."""

STRETCHES_MAX: Final = 10_000
"""Maximum differing ranges that are compared record by record."""


class Bounds(NamedTuple):
    start: Offset
    stop: Offset


@dataclass(frozen=True)
class Difference:
    """A difference at some offsets of a partition."""

    kind: str
    """missing, repeated, changed or extra."""
    partition: int
    first: Offset
    last: Offset

    def __str__(self) -> str:
        where = f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        return f"partition {self.partition} {where}"


@dataclass
class Verdict:
    topic: str
    directory: str
    partitions: int
    compared: int = 0
    """Records of the log that the table should have."""
    missing: int = 0
    repeated: int = 0
    changed: int = 0
    extra: int = 0
    """In the table, but not in the log."""
    compacted: int = 0
    """In the table, but not in the log, of a compacted topic."""
    pending: int = 0
    """In the log, but not archived yet."""
    below_start: int = 0
    """Only in the table: retention has deleted them from the log."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not (self.missing or self.repeated or self.changed or self.extra)

    def __str__(self) -> str:
        notes = [
            text
            for count, text in (
                (self.pending, f"{self.pending:,} not archived yet"),
                (self.below_start, f"{self.below_start:,} older ones in the table alone"),
                (self.compacted, f"{self.compacted:,} that the log has compacted away"),
            )
            if count
        ]
        rest = f"; {', '.join(notes)}" if notes else ""
        if self.is_whole:
            what = f"all {self.compared:,} records" if self.compared else "no records"
            where = f"{self.partitions} partitions are in {self.directory}"
            return f"{self.topic}: {what} of {where}, once and unchanged{rest}"
        wrong = [
            f"{count:,} {kind} ({_first(self.differences, kind)})"
            for kind, count in (
                ("missing", self.missing),
                ("repeated", self.repeated),
                ("changed", self.changed),
                ("extra", self.extra),
            )
            if count
        ]
        return f"{self.topic}: {self.directory} is incomplete: of {self.compared:,} records {', '.join(wrong)}{rest}"

    def as_json(self) -> dict[str, object]:
        return {"whole": self.is_whole, **asdict(self)}


def _first(differences: Sequence[Difference], kind: str) -> str:
    found = [each for each in differences if each.kind == kind]
    return f"first {found[0]}" if found else "see the log"


# -- the job ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditJob:
    topic: str
    directory: str
    server: str | None = None
    """Bootstrap servers; None if the log is read from files in `path`."""
    path: str | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    """Options of the source about the security of its connections."""


def audit(spark: SparkSession, job: AuditJob) -> Verdict:
    archive = the_archive(job.directory)
    if archive.topic != job.topic:
        raise ArchiveFault(f"{job.directory} is the archive of topic {archive.topic}, not of {job.topic}")
    bounds, is_compacted = _look_at_log(job, archive)
    table = _table(spark, job.directory)
    positions = _positions(job.directory, bounds)
    verdict = Verdict(job.topic, job.directory, len(bounds))
    log = _log(spark, job, archive)
    ours = _sums(_checked(table), bounds, positions)
    theirs = _sums(_checked(log), bounds, positions)
    verdict.below_start = sum(each.records for (_, _, zone), each in ours.items() if zone == _BELOW)
    verdict.pending = sum(each.records for (_, _, zone), each in theirs.items() if zone == _BEHIND)
    due = {key: each for key, each in theirs.items() if key[2] == _DUE}
    there = {key: each for key, each in ours.items() if key[2] != _BELOW}
    verdict.compared = sum(each.records for each in due.values())
    differing = sorted({key[:2] for key in due.keys() | there.keys() if due.get(key) != there.get(key)})
    if differing:
        _explain(verdict, _checked(table), _checked(log), differing[:STRETCHES_MAX], bounds, positions)
    if is_compacted:
        verdict.compacted, verdict.extra = verdict.extra, 0
        verdict.differences = [each for each in verdict.differences if each.kind != "extra"]
    return verdict


def _look_at_log(job: AuditJob, archive: Archive) -> tuple[dict[int, Bounds], bool]:
    """Start and end of each partition, and whether the topic is compacted."""
    if job.path is not None:
        return _look_at_files(job.path, job.topic, archive.isolation == "read_committed"), False
    assert job.server is not None
    level = READ_COMMITTED if archive.isolation == "read_committed" else READ_UNCOMMITTED
    with connect(job.server, job.client) as cluster:
        topic = cluster.topic(job.topic)
        if topic.topic_id and uuid_text(topic.topic_id) != archive.topic_id:
            raise ArchiveFault(
                f"topic {job.topic} was deleted and created again since it was archived in {job.directory}: "
                "they cannot be compared"
            )
        partitions = [TopicPartition(job.topic, each) for each in topic.partitions]
        starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
        ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation_level=level)
        configs = describe_configs(cluster, Resource(ResourceType.TOPIC, job.topic), ["cleanup.policy"])
    bounds = {each.partition: Bounds(starts[each].offset, ends[each].offset) for each in partitions}
    return bounds, any("compact" in (each.value or "") for each in configs if each.name == "cleanup.policy")


def _look_at_files(path: str, topic: str, is_committed: bool) -> dict[int, Bounds]:
    vfs = RealDisk()

    def look(view: LogView) -> Bounds:
        return Bounds(
            view.log_start, replay_transactions(vfs, view).last_stable if is_committed else view.log_end
        )

    found = [each for each in find_logs(vfs, path) if each.partition.topic == topic]
    if not found:
        raise ArchiveFault(f"{path} has no partition of topic {topic}")
    return {each.partition.partition: with_view(vfs, each, look) for each in found}


def _positions(directory: str, bounds: dict[int, Bounds]) -> dict[int, Offset]:
    """The end of the archived range by partition, from the positions and the file names."""
    noted = read_positions(directory)
    files = files_of(directory)
    strangers = sorted({*noted, *files} - set(bounds))
    if strangers:
        raise ArchiveFault(f"{directory} has partition {strangers[0]}, which the log does not have")
    return {
        each: max([noted.get(each, 0), *(file.last + 1 for file in files.get(each, []))]) for each in bounds
    }


def _log(spark: SparkSession, job: AuditJob, archive: Archive) -> DataFrame:
    reader = (
        spark.read.format("penstock")
        .option("subscribe", job.topic)
        .option("includeHeaders", "true")
        .option("isolation.level", archive.isolation)
    )
    if job.path is not None:
        return reader.load(job.path)
    return reader.option("kafka.bootstrap.servers", str(job.server)).options(**job.client).load()


def _table(spark: SparkSession, directory: str) -> DataFrame:
    schema = StructType([each for each in SCHEMA.fields if each.name != "topic"])
    paths = [each.path for listed in files_of(directory).values() for each in listed]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", directory).parquet(*paths)


# -- ranges -----------------------------------------------------------------------------------------------

_BELOW, _DUE, _BEHIND = 0, 1, 2
"""Before the log start; in both; after the archived range."""


class _Sum(NamedTuple):
    records: int
    checksum: int


def _checked(rows: DataFrame) -> DataFrame:
    """Partition, offset and checksum of each record.

    Spark's hash ignores nulls, so it also gets flags for nulls.
    """
    headers = f.transform(
        f.coalesce(f.col("headers"), f.array()),
        lambda each: f.struct(each["key"], each["value"].isNull(), each["value"]),
    )
    checksum = f.xxhash64(
        "offset",
        f.col("key").isNull(),
        "key",
        f.col("value").isNull(),
        "value",
        f.unix_micros("timestamp"),
        "timestampType",
        f.size(headers),
        headers,
    )
    return rows.select("partition", "offset", checksum.alias("checksum"))


def _zone(bounds: dict[int, Bounds], positions: dict[int, Offset]) -> Column:
    def by_partition(values: dict[int, int]) -> Column:
        return f.create_map(*(f.lit(each) for pair in values.items() for each in pair))[f.col("partition")]

    starts = by_partition({each: bounds[each].start for each in bounds})
    return (
        f.when(f.col("offset") < starts, _BELOW)
        .when(f.col("offset") < by_partition(positions), _DUE)
        .otherwise(_BEHIND)
    )


def _sums(
    rows: DataFrame, bounds: dict[int, Bounds], positions: dict[int, Offset]
) -> dict[tuple[int, int, int], _Sum]:
    stretch = f.shiftright("offset", STRETCH_BITS).alias("stretch")
    sums = (
        rows.groupBy("partition", stretch, _zone(bounds, positions).alias("zone"))
        .agg(f.count("*").alias("count"), f.bit_xor("checksum").alias("checksum"))
        .collect()
    )
    return {
        (row["partition"], row["stretch"], row["zone"]): _Sum(row["count"], row["checksum"]) for row in sums
    }


def _explain(
    verdict: Verdict,
    table: DataFrame,
    log: DataFrame,
    stretches: Sequence[tuple[int, int]],
    bounds: dict[int, Bounds],
    positions: dict[int, Offset],
) -> None:
    """Compare differing ranges record by record."""
    by_partition: dict[int, list[int]] = {}
    for partition, stretch in stretches:
        by_partition.setdefault(partition, []).append(stretch)
    chosen = reduce(
        lambda one, other: one | other,
        (
            (f.col("partition") == partition) & f.shiftright("offset", STRETCH_BITS).isin(numbers)
            for partition, numbers in by_partition.items()
        ),
    )
    zone = _zone(bounds, positions)
    key = ["partition", "offset"]
    ours = (
        table.where(chosen & (zone != _BELOW))
        .groupBy(key)
        .agg(f.count("*").alias("copies"), f.min("checksum").alias("low"), f.max("checksum").alias("high"))
    )
    theirs = log.where(chosen & (zone == _DUE)).select(*key, f.col("checksum").alias("wanted"))
    kind = (
        f.when(f.col("copies").isNull(), "missing")
        .when(f.col("wanted").isNull(), "extra")
        .when((f.col("low") != f.col("wanted")) | (f.col("high") != f.col("wanted")), "changed")
        .when(f.col("copies") > 1, "repeated")
    )
    found = (
        ours.join(theirs, key, "full_outer")
        .select(*key, kind.alias("kind"))
        .where("kind is not null")
        .cache()
    )
    try:
        for row in found.groupBy("kind").count().collect():
            setattr(verdict, row["kind"], row["count"])
            some = found.where(f.col("kind") == row["kind"]).orderBy(key).limit(EXAMPLES_MAX).collect()
            verdict.differences += _ranges(
                row["kind"], [(each["partition"], each["offset"]) for each in some]
            )
    finally:
        found.unpersist()


def _ranges(kind: str, offsets: Sequence[tuple[int, Offset]]) -> list[Difference]:
    """Join consecutive offsets to one difference."""
    found: list[Difference] = []
    for partition, offset in offsets:
        last = found[-1] if found else None
        if last is not None and last.partition == partition and last.last + 1 == offset:
            found[-1] = Difference(kind, partition, last.first, offset)
        else:
            found.append(Difference(kind, partition, offset, offset))
    return found
