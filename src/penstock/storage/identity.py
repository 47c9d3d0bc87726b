"""Ids of a data directory: `meta.properties`, with a copy in `meta/`.

The file has no checksum: a flipped bit would turn an id into another valid one. So a copy with a checksum is kept
(`identity.properties`), and a directory is refused if the two differ. A damaged copy is rewritten. `broker.id` has the
node id alone, for humans.

A new node that joins an existing cluster has an empty cluster id until it has read the id in the metadata log
(`join_cluster`). Afterwards the id never changes.
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
    """The ids of a directory; a new one gets them here."""
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
    """Save the cluster id in a new directory. Durable when this returns; the copy is written last."""
    joined = identity._replace(cluster_id=cluster_id)
    replace_file(vfs, f"{layout.logs}/{ck.META_PROPERTIES}", joined.encode())
    replace_file(vfs, f"{layout.meta}/{IDENTITY_COPY}", _with_sum(joined.encode()))
    return joined


def _read(vfs: Vfs, properties: str, copy: str) -> MetaProperties:
    """Read the file; refused if it is invalid or differs from its copy."""
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
        saved = saved._replace(
            cluster_id=found.cluster_id
        )  # a crash may have happened between the two writes
    if saved is not None and saved != found:
        ((name, one, other), *_) = (
            (name.replace("_", "."), one, other)
            for name, one, other in zip(MetaProperties._fields, found, saved, strict=True)
            if one != other
        )
        raise DirectoryRefused(
            f"{properties} has {name} {one!r}, expected {other!r} as in its copy {copy}: restore it from the "
            "copy, or remove the copy if the change was intended"
        )
    return found


def _read_copy(vfs: Vfs, copy: str) -> MetaProperties | None:
    """The copy; None if it is missing or damaged."""
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
            f"{properties} is missing, but its copy {copy} exists: restore it from the copy, or remove "
            "the copy to use the directory for a new node"
        )


def _check_broker_id(vfs: Vfs, layout: Layout, identity: MetaProperties, properties: str) -> None:
    broker_id = f"{layout.meta}/{ck.BROKER_ID}"
    if vfs.stat(broker_id) is None:
        replace_file(vfs, broker_id, b"%d\n" % identity.node_id)
    found = read_file(vfs, broker_id).decode("ascii", "replace").strip()
    if found != str(identity.node_id):
        raise DirectoryRefused(f"{broker_id} has {found}, but node.id in {properties} is {identity.node_id}")
