"""Which id a cluster gets, who writes it down, and who refuses it."""

from random import Random

import pytest

from penstock.base.ids import uuid_from_text
from penstock.controlplane.cluster_naming import (
    cluster_id_records,
    missing_cluster_id_reason,
    must_adopt_cluster_id,
)
from penstock.metadata.image import EMPTY
from penstock.metadata.records import FeatureLevelRecord, NoOpRecord
from penstock.storage import DirectoryRefused
from penstock.storage.checkpoints import MetaProperties
from penstock.storage.directory import LogDirectory, open_directory
from penstock.vfs import MemoryDisk

OURS, THEIRS = "s5qUyFm7T7uGmIa1834mZQ", "cGVuc3RvY2stZ29sZGVuMA"
NEW, KNOWN = MetaProperties("", 1, "d"), MetaProperties(OURS, 1, "d")
ESTABLISHED = EMPTY.replay([FeatureLevelRecord(name="metadata.version", feature_level=25)], 1, 1)
NAMED = ESTABLISHED.replay([NoOpRecord(cluster_id=OURS)], 2, 1)

FROM_LOG, ITS_OWN = "", None
"""What a node's settings say of the cluster of a new directory, where they do not name it."""


def test_the_first_leader_of_a_new_cluster_draws_an_id_that_no_other_has() -> None:
    drawn = [cluster_id_records(NEW, FROM_LOG, EMPTY, Random(seed))[0].cluster_id for seed in (1, 2)]
    assert len(set(drawn)) == 2
    for each in drawn:
        assert each is not None
        assert len(uuid_from_text(each)) == 16


def test_a_leader_writes_down_the_id_that_its_directory_has() -> None:
    for image in (EMPTY, ESTABLISHED):
        assert cluster_id_records(KNOWN, FROM_LOG, image, Random(1)) == [NoOpRecord(cluster_id=OURS)]


@pytest.mark.parametrize("configured", [OURS, ITS_OWN])
def test_nothing_is_written_where_nobody_has_to_read_it(configured: str | None) -> None:
    assert cluster_id_records(KNOWN, configured, ESTABLISHED, Random(1)) == []
    assert cluster_id_records(KNOWN, FROM_LOG, NAMED, Random(1)) == []


def test_a_leader_with_a_new_directory_gives_no_second_id_to_a_cluster_that_has_one() -> None:
    assert "set cluster.id" in str(missing_cluster_id_reason(NEW, ESTABLISHED))
    for identity, image in ((NEW, EMPTY), (NEW, NAMED), (KNOWN, ESTABLISHED)):
        assert missing_cluster_id_reason(identity, image) is None


def directory_of(cluster_id: str) -> LogDirectory:
    return open_directory(MemoryDisk(), "/data", now_ms=0, rng=Random(1), cluster_id=cluster_id)


def test_a_new_directory_joins_the_cluster_that_its_log_names() -> None:
    assert must_adopt_cluster_id(directory_of(""), NAMED)
    assert not must_adopt_cluster_id(directory_of(""), ESTABLISHED)
    assert not must_adopt_cluster_id(directory_of(OURS), NAMED)


def test_a_directory_with_the_metadata_log_of_another_cluster_is_refused() -> None:
    with pytest.raises(
        DirectoryRefused, match=f"belongs to cluster {THEIRS}, but its metadata log belongs to cluster {OURS}"
    ):
        must_adopt_cluster_id(directory_of(THEIRS), NAMED)
