"""Changes of finalized features: upgrades that every node supports, and downgrades that lose no metadata."""

from collections.abc import Iterator, Sequence

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import Outcome
from penstock.metadata.configs import broker_setting
from penstock.metadata.image import ALL_BROKERS, ClusterImage, ResourceType
from penstock.metadata.records import AnyRecord, ConfigRecord, FeatureLevelRecord
from penstock.metadata.versions import ELR_FEATURE, FEATURES, KRAFT_VERSION, METADATA_VERSION, loses_metadata

from .configs import MIN_ISR
from .requests import OK, FeatureUpdate, Result, UpdateFeatures, UpgradeType, refused
from .view import ControllerView


def update_features(view: ControllerView, request: UpdateFeatures) -> Outcome[dict[str, Result]]:
    records: list[AnyRecord] = []
    replies = {}
    wanted = dict(view.image.features) | {update.name: update.level for update in request.updates}
    for update in request.updates:
        try:
            _check(view.image, update)
            _check_needs(update, wanted)
        except KafkaError as error:
            replies[update.name] = refused(error)
            continue
        replies[update.name] = OK
        if update.level == view.image.features.get(update.name, 0):
            continue
        if update.name == ELR_FEATURE and update.level:
            records += _agreement_on_min_isr(view)
        records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    failed = any(result.code is not ErrorCode.NONE for result in replies.values())
    return Outcome(replies, () if failed or request.validate_only else tuple(records))


def _refusal(update: FeatureUpdate, why: str) -> KafkaError:
    return KafkaError(
        f"{update.name} cannot be set to {update.level}: {why}", ErrorCode.INVALID_UPDATE_VERSION
    )


def _check(image: ClusterImage, update: FeatureUpdate) -> None:
    if update.upgrade_type not in tuple(UpgradeType):
        raise _refusal(update, f"unknown upgrade type {update.upgrade_type}")
    if update.level < 0:
        raise _refusal(update, "expected a level of 0 or more")
    if update.name == KRAFT_VERSION:
        raise _refusal(update, "the Raft quorum sets it")
    held = image.metadata_version if update.name == METADATA_VERSION else image.features.get(update.name, 0)
    for who, (low, high) in _supporters(image, update.name):
        if not low <= update.level <= high:
            raise _refusal(update, f"{who} supports levels {low} to {high}")
    if update.level < held and update.upgrade_type == UpgradeType.UPGRADE:
        raise _refusal(update, f"it is at {held}, and the request does not allow a downgrade")
    if update.level > held and update.upgrade_type != UpgradeType.UPGRADE:
        raise _refusal(update, f"it is at {held}, so this is not a downgrade")
    if update.name == METADATA_VERSION and update.level < held and loses_metadata(held, update.level):
        raise _refusal(update, "the downgrade would lose metadata")


def _supporters(image: ClusterImage, name: str) -> Iterator[tuple[str, tuple[int, int]]]:
    own = FEATURES.get(name)
    yield "this controller", (0, 0) if own is None else (own.min_level, own.max_level)
    for broker_id, broker in sorted(image.brokers.items()):
        yield f"broker {broker_id}", broker.supported(name)
    for controller_id, controller in sorted(image.controllers.items()):
        yield f"controller {controller_id}", controller.supported(name)


def _check_needs(update: FeatureUpdate, wanted: dict[str, int]) -> None:
    """Check that every feature's level has the metadata.version that it needs."""
    version = wanted.get(METADATA_VERSION, 0)
    for name in FEATURES if update.name == METADATA_VERSION else (update.name,):
        feature = FEATURES.get(name)  # None if an unknown feature is to be disabled
        needed = feature.needs.get(wanted.get(name, 0), 0) if feature is not None else 0
        if needed > version:
            raise _refusal(update, f"{name} at {wanted[name]} needs {METADATA_VERSION} {needed}")


def _agreement_on_min_isr(view: ControllerView) -> Sequence[AnyRecord]:
    """Once ELRs are enabled, `min.insync.replicas` is set for the cluster, and not for single brokers."""
    records: list[AnyRecord] = []
    image = view.image
    if MIN_ISR not in image.config(ALL_BROKERS):
        value = broker_setting(MIN_ISR, image, view.settings)
        records.append(
            ConfigRecord(resource_type=ALL_BROKERS.type, resource_name="", name=MIN_ISR, value=value)
        )
    for resource in sorted(image.configs):
        own = resource.type == ResourceType.BROKER and resource != ALL_BROKERS
        if own and MIN_ISR in image.configs[resource]:
            records.append(
                ConfigRecord(
                    resource_type=resource.type, resource_name=resource.name, name=MIN_ISR, value=None
                )
            )
    return records
