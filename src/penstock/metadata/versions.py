"""Features and their finalized levels, which all nodes of a cluster support.

The level of `metadata.version` decides which versions of records the controller may write; the table is
Kafka 4.3's. The other features each turn on a protocol.
"""

from typing import NamedTuple

from .records import SupportedFeature

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_FEATURE = "eligible.leader.replicas.version"

METADATA_VERSION_MIN = 7
"""Kafka 3.3-IV3: the oldest version that Kafka 4 still reads."""
METADATA_VERSION_LATEST = 30
"""Kafka 4.3-IV0."""


RECORD_CHANGES = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels that added records or fields which the level below cannot hold: a downgrade would lose them."""


class Feature(NamedTuple):
    name: str
    min_level: int
    max_level: int
    default_level: int
    """Level in a new cluster."""
    needs: dict[int, int]
    """The `metadata.version` that a level needs."""


FEATURES = {
    feature.name: feature
    for feature in (
        Feature(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LATEST, METADATA_VERSION_LATEST, {}),
        Feature(ELR_FEATURE, 0, 1, 1, {1: 23}),
        Feature("group.version", 0, 1, 1, {}),
        Feature("share.version", 0, 1, 0, {}),
        Feature("streams.version", 0, 1, 0, {}),
        Feature("transaction.version", 0, 2, 2, {}),
        Feature(KRAFT_VERSION, 0, 1, 0, {}),
    )
}
"""In the order in which a new cluster writes them. The level of kraft.version is in the quorum's control records."""

SUPPORTED: tuple[SupportedFeature, ...] = tuple(
    SupportedFeature(name=each.name, min_level=each.min_level, max_level=each.max_level)
    for each in FEATURES.values()
)
"""Supported levels that a node registers with."""


def loses_metadata(old: int, new: int) -> bool:
    """Return whether a change between two metadata.versions loses records or fields."""
    low, high = sorted((old, new))
    return any(low < level <= high for level in RECORD_CHANGES)


def has_scram_users(metadata_version: int) -> bool:
    return metadata_version >= 11


def has_delegation_tokens(metadata_version: int) -> bool:
    return metadata_version >= 14


def has_directories(metadata_version: int) -> bool:
    return metadata_version >= 17


def has_elr(metadata_version: int) -> bool:
    return metadata_version >= 23


def has_cordoned_dirs(metadata_version: int) -> bool:
    return metadata_version >= 30


def bumps_epoch_on_isr_shrink(metadata_version: int) -> bool:
    """Until 3.6 an ISR shrink bumped the leader epoch (KAFKA-15021)."""
    return metadata_version < 12


def register_broker_version(metadata_version: int) -> int:
    for level, version in ((30, 4), (17, 3), (8, 2)):
        if metadata_version >= level:
            return version
    return 1


def partition_version(metadata_version: int) -> int:
    """Version of PartitionRecord and PartitionChangeRecord."""
    return has_directories(metadata_version) + has_elr(metadata_version)


UNSERVED = frozenset({"share.version", "streams.version"})
"""Features that may be on in a cluster that Kafka created. They are not advertised to clients and cannot be turned
on here."""
