"""Finds partition directories on a node's disk that the cluster image does not place there."""

from penstock.metadata.image import ClusterImage
from penstock.sim.checkers.disks import DATA
from penstock.storage import names
from penstock.storage.checkpoints import decode_partition_metadata
from penstock.storage.layout import METADATA_TOPIC, layout_of
from penstock.vfs import MemoryDisk


def left_behind(disk: MemoryDisk, node: int, image: ClusterImage) -> list[str]:
    """Return directories of partitions that do not belong on the node: their topic was deleted or replaced by another
    of the same name, or the partition was moved. Directories being deleted (`-delete`) do not count."""
    logs = layout_of(disk, DATA).logs
    found = []
    for entry in disk.list_dir(logs):
        at = names.parse_partition_dir(entry.name) if entry.is_dir else None
        if at is None or at.topic == METADATA_TOPIC:
            continue
        placed = image.partition(at.topic, at.partition)
        is_here = placed is not None and node in placed.replicas
        if not is_here or _topic_id(disk, f"{logs}/{entry.name}") != image.topics[at.topic].id:
            found.append(entry.name)
    return found


def _topic_id(disk: MemoryDisk, directory: str) -> bytes:
    path = f"{directory}/{names.PARTITION_METADATA}"
    file = disk.open(path)
    data = file.pread(file.size(), 0)
    file.close()
    return decode_partition_metadata(data, path)
