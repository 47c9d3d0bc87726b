"""The first records of a new cluster: its features, and the settings that they require."""

from collections.abc import Iterator, Mapping

from .image import ALL_BROKERS
from .records import AnyRecord, BeginTransactionRecord, ConfigRecord, EndTransactionRecord, FeatureLevelRecord
from .versions import ELR_FEATURE, FEATURES, KRAFT_VERSION

TRANSACTION_NAME = "Bootstrap records"
"""As in Kafka."""


def default_features() -> dict[str, int]:
    return {name: feature.default_level for name, feature in FEATURES.items() if name != KRAFT_VERSION}


def feature_records(levels: Mapping[str, int] | None = None) -> Iterator[FeatureLevelRecord]:
    """The content of `bootstrap.checkpoint`."""
    for name, level in (default_features() if levels is None else levels).items():
        if level:
            yield FeatureLevelRecord(name=name, feature_level=level)


def bootstrap_records(
    levels: Mapping[str, int] | None = None, min_insync_replicas: int = 1
) -> Iterator[AnyRecord]:
    """Return the records that the first controller of a cluster writes, in one transaction.

    All brokers must agree on `min.insync.replicas` while ELRs are enabled, so it is set for the whole cluster.
    """
    features = default_features() if levels is None else levels
    yield BeginTransactionRecord(name=TRANSACTION_NAME)
    yield from feature_records(features)
    if features.get(ELR_FEATURE, 0):
        yield ConfigRecord(
            resource_type=ALL_BROKERS.type,
            resource_name=ALL_BROKERS.name,
            name="min.insync.replicas",
            value=str(min_insync_replicas),
        )
    yield EndTransactionRecord()
