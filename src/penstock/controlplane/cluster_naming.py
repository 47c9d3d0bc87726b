"""How a cluster without a configured `cluster.id` gets its id, and how its nodes learn it.

    a majority of new directories elects a leader --> the leader draws an id --> metadata log --> meta.properties

The first leader of a cluster writes the id to the metadata log, in one batch with the cluster's first records. A node
with a new directory writes it to `meta.properties` when it is committed, before it applies anything else from that
log. From then on every request between nodes carries the id, and nodes of other clusters are rejected. If the
directories already have an id, the next leader writes that id to the log, for nodes with new directories.
"""

from typing import TYPE_CHECKING

from penstock.base.ids import random_uuid, uuid_text
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import NoOpRecord
from penstock.storage import DirectoryRefused, LogDirectory
from penstock.storage.checkpoints import MetaProperties

if TYPE_CHECKING:
    from random import Random


def cluster_id_records(
    identity: MetaProperties, configured: str | None, image: ClusterImage, rng: "Random"
) -> list[NoOpRecord]:
    """The record with the cluster id that a new leader writes; none if the log has it or no node needs it.

    `configured` is `ClusterConfig.cluster_id`. A configured id is configured on every node. A node that starts a
    cluster by itself drew the id when it created its directory.
    """
    if image.cluster_id or (identity.cluster_id and configured != ""):
        return []
    return [NoOpRecord(cluster_id=identity.cluster_id or uuid_text(random_uuid(rng)))]


def missing_cluster_id_reason(identity: MetaProperties, image: ClusterImage) -> str | None:
    """Why a new leader must not draw an id: the cluster has one, but this node does not know it."""
    if identity.cluster_id or image.cluster_id or not image.features:
        return None
    return (
        "the data directory is new, and the cluster's metadata does not contain its id: set cluster.id to the value "
        "in meta.properties of the other nodes"
    )


def must_adopt_cluster_id(directory: LogDirectory, image: ClusterImage) -> bool:
    """Whether the directory must take the image's cluster id. Raises if it has another one."""
    wanted, found = image.cluster_id, directory.identity.cluster_id
    if not wanted or wanted == found:
        return False
    if found:
        raise DirectoryRefused(
            f"{directory.layout.logs} belongs to cluster {found}, but its metadata log belongs to cluster {wanted}: "
            "restore meta.properties or __cluster_metadata-0 from a copy, so that both are of one cluster"
        )
    return True
