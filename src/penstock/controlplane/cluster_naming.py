"""How a cluster without a `cluster.id` in its settings gets its id, and how its nodes learn it.

    a majority of new directories elects a leader --> the leader draws an id --> metadata log --> meta.properties

The first leader of a cluster writes the id into the metadata log, in one batch with the cluster's first records. A
node with a new directory writes it into `meta.properties` when it is committed, before it acts on anything in that
log. From then on every request between nodes names the id, and a node of another cluster is refused. A cluster whose
directories have an id already keeps it: the next leader writes that id into the log, for nodes with new directories.
"""

from typing import TYPE_CHECKING

from penstock.base.ids import random_uuid, uuid_text
from penstock.metadata import ClusterImage
from penstock.metadata.records import NoOpRecord
from penstock.storage import DirectoryRefused, LogDirectory
from penstock.storage.checkpoints import MetaProperties

if TYPE_CHECKING:
    from random import Random


def cluster_id_records(
    identity: MetaProperties, configured: str | None, image: ClusterImage, rng: "Random"
) -> list[NoOpRecord]:
    """What a new leader writes so that the log names the cluster; nothing if it does, or if no node needs it.

    `configured` is `ClusterConfig.cluster_id`. If the settings name the cluster, they do on every node; a node that
    begins a cluster of its own has drawn the id when it made its directory.
    """
    if image.cluster_id or (identity.cluster_id and configured != ""):
        return []
    return [NoOpRecord(cluster_id=identity.cluster_id or uuid_text(random_uuid(rng)))]


def missing_cluster_id_reason(identity: MetaProperties, image: ClusterImage) -> str | None:
    """Why a new leader cannot go on: it would give another id to a cluster that has one."""
    if identity.cluster_id or image.cluster_id or not image.features:
        return None
    return (
        "the directory is new, and the cluster's metadata does not tell its id: set cluster.id, as meta.properties of "
        "the other nodes has it"
    )


def must_adopt_cluster_id(directory: LogDirectory, image: ClusterImage) -> bool:
    """Whether the directory is to become one of the image's cluster. Raises if it is one of another cluster."""
    told, found = image.cluster_id, directory.identity.cluster_id
    if not told or told == found:
        return False
    if found:
        raise DirectoryRefused(
            f"{directory.layout.logs} is of cluster {found}, but its metadata log is of cluster {told}: restore "
            "meta.properties or __cluster_metadata-0 from a copy, so that both are of one cluster"
        )
    return True
