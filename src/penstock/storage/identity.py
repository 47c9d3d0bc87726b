"""Whose a data directory is: `meta.properties`, with a copy of it in `meta/`.

The file has no checksum, and each of its ids is one that a flipped bit turns into another: the node would take its own
directory for another cluster's, or another disk's. So a copy of what it says is kept, with a checksum
(`identity.properties`), and a directory where the file says anything else is refused. A copy that is damaged itself is
made anew. `broker.id` is the node's id alone, for people.

The new directory of a node that may join an existing cluster has an empty cluster id until the node has read the id in
the cluster's metadata log (`join_cluster`). From then on the id stays.
"""

from typing import TYPE_CHECKING, Final

from penstock.base.ids import random_uuid, uuid_from_text, uuid_text
from penstock.records.checksum import crc32c
from penstock.storage import checkpoints as ck
from penstock.storage.checkpoints import MetaProperties
from penstock.storage.errors import BadCheckpoint, DirectoryRefused
from penstock.storage.layout import Layout
from penstock.vfs import Vfs, read_file, replace_file

if TYPE_CHECKING:
    from random import Random

IDENTITY_COPY: Final = "identity.properties"


def identify_directory(
    vfs: Vfs, layout: Layout, node_id: int, cluster_id: str, rng: "Random"
) -> MetaProperties:
    """Whose directory this is; a new one gets its ids now."""
    properties, copy = f"{layout.logs}/{ck.META_PROPERTIES}", f"{layout.meta}/{IDENTITY_COPY}"
    if vfs.stat(properties) is None:
        _refuse_lost(vfs, properties, copy)
        identity = MetaProperties(cluster_id, node_id, uuid_text(random_uuid(rng)))
        replace_file(vfs, properties, identity.encode())
    else:
        identity = _read(vfs, properties, copy)
        if not identity.directory_id:
            # Of a Kafka before 3.7. Later versions assign an id in the same way.
            identity = identity._replace(directory_id=uuid_text(random_uuid(rng)))
            line = f"directory.id={identity.directory_id}\n".encode()
            replace_file(vfs, properties, read_file(vfs, properties).rstrip(b"\n") + b"\n" + line)
    if _read_copy(vfs, copy) != identity:
        replace_file(vfs, copy, _with_sum(identity.encode()))
    _check_broker_id(vfs, layout, identity, properties)
    return identity


def join_cluster(vfs: Vfs, layout: Layout, identity: MetaProperties, cluster_id: str) -> MetaProperties:
    """Make a new directory one of this cluster. Durable when this returns; the copy is the last to know."""
    joined = identity._replace(cluster_id=cluster_id)
    replace_file(vfs, f"{layout.logs}/{ck.META_PROPERTIES}", joined.encode())
    replace_file(vfs, f"{layout.meta}/{IDENTITY_COPY}", _with_sum(joined.encode()))
    return joined


def _read(vfs: Vfs, properties: str, copy: str) -> MetaProperties:
    """What the file says; refused if it makes no sense, or is not what it was."""
    saved = _read_copy(vfs, copy)
    try:
        found = MetaProperties.decode(read_file(vfs, properties), properties)
        if found.directory_id or saved is not None:
            uuid_from_text(found.directory_id)
    except BadCheckpoint as error:
        raise DirectoryRefused(f"{error}{_hint(saved, copy)}") from error
    except ValueError as error:
        raise DirectoryRefused(
            f"{properties}: directory.id is {found.directory_id!r}, expected 22 characters of URL-safe base64"
            f"{_hint(saved, copy)}"
        ) from error
    if saved is not None and not saved.cluster_id:
        saved = saved._replace(cluster_id=found.cluster_id)  # a crash may have come between the two writes
    if saved is not None and saved != found:
        ((name, one, other), *_) = (
            (name.replace("_", "."), one, other)
            for name, one, other in zip(MetaProperties._fields, found, saved, strict=True)
            if one != other
        )
        raise DirectoryRefused(
            f"{properties} says {name} {one!r}, expected {other!r}, as in its copy {copy}: restore it from the "
            "copy, or remove the copy if the change was meant"
        )
    return found


def _read_copy(vfs: Vfs, copy: str) -> MetaProperties | None:
    """None where there is none, or it is damaged: then there is nothing to compare with."""
    try:
        data = read_file(vfs, copy)
        saved = MetaProperties.decode(data, copy)
    except (FileNotFoundError, BadCheckpoint):
        return None
    return saved if data == _with_sum(saved.encode()) else None


def _with_sum(data: bytes) -> bytes:
    return data + b"crc32c=%08x\n" % crc32c(data)


def _hint(saved: MetaProperties | None, copy: str) -> str:
    return "" if saved is None else f"; the file is damaged: restore it from {copy}"


def _refuse_lost(vfs: Vfs, properties: str, copy: str) -> None:
    if _read_copy(vfs, copy) is not None:
        raise DirectoryRefused(
            f"{properties} is gone, expected it, since {copy} is there: restore it from that copy, or remove "
            "the copy to make the directory a new node's"
        )


def _check_broker_id(vfs: Vfs, layout: Layout, identity: MetaProperties, properties: str) -> None:
    broker_id = f"{layout.meta}/{ck.BROKER_ID}"
    if vfs.stat(broker_id) is None:
        replace_file(vfs, broker_id, b"%d\n" % identity.node_id)
    found = read_file(vfs, broker_id).decode("ascii", "replace").strip()
    if found != str(identity.node_id):
        raise DirectoryRefused(f"{broker_id} says {found}, but node.id in {properties} is {identity.node_id}")
