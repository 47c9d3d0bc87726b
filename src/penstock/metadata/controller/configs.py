"""Changes of topic and broker settings: AlterConfigs and IncrementalAlterConfigs.

The changes of one resource are applied together or not at all; different resources are independent.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import Outcome
from penstock.base.settings import BadSetting
from penstock.metadata.configs import default_of, is_list
from penstock.metadata.image import ALL_BROKERS, ClusterImage, Resource, ResourceType
from penstock.metadata.records import AnyRecord, ClearElrRecord, ConfigRecord, PartitionChangeRecord

from .requests import (
    OK,
    AlterConfigs,
    ConfigChange,
    ConfigOp,
    IncrementalAlterConfigs,
    Result,
    refused,
)
from .view import ControllerView

T = TypeVar("T")

VALUE_BYTES_MAX = 32_767
"""Maximum length of a string in a Kafka record."""
MIN_ISR = "min.insync.replicas"


def alter_configs(view: ControllerView, request: AlterConfigs) -> Outcome[dict[Resource, Result]]:
    def whole(resource: Resource, wanted: Mapping[str, str | None]) -> Sequence[AnyRecord]:
        changes = [ConfigChange(name, ConfigOp.SET, value) for name, value in wanted.items()]
        gone = [name for name in sorted(view.image.config(resource)) if name not in wanted]
        changes += [ConfigChange(name, ConfigOp.DELETE) for name in gone]
        _check_exists(view.image, resource)
        return altered(view, resource, changes)

    return _each(request.resources, whole, request.validate_only)


def incremental_alter_configs(
    view: ControllerView, request: IncrementalAlterConfigs
) -> Outcome[dict[Resource, Result]]:
    def one_by_one(resource: Resource, changes: Sequence[ConfigChange]) -> Sequence[AnyRecord]:
        _check_exists(view.image, resource)
        return altered(view, resource, changes)

    return _each(request.resources, one_by_one, request.validate_only)


def _each(
    resources: Mapping[Resource, T],
    decide: Callable[[Resource, T], Sequence[AnyRecord]],
    validate_only: bool,
) -> Outcome[dict[Resource, Result]]:
    records: list[AnyRecord] = []
    replies = {}
    for resource, wanted in resources.items():
        try:
            records += decide(resource, wanted)
            replies[resource] = OK
        except KafkaError as error:
            replies[resource] = refused(error)
    return Outcome(replies, () if validate_only else tuple(records))


def _check_exists(image: ClusterImage, resource: Resource) -> None:
    if resource.type == ResourceType.TOPIC and resource.name not in image.topics:
        raise KafkaError(f"topic {resource.name} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if resource.type == ResourceType.BROKER and resource.name:
        if not resource.name.isdecimal():
            raise KafkaError(f"{resource.name!r} is not a broker id", ErrorCode.INVALID_REQUEST)
        if int(resource.name) not in image.brokers:
            raise KafkaError(f"broker {resource.name} is not registered", ErrorCode.BROKER_ID_NOT_REGISTERED)


def altered(view: ControllerView, resource: Resource, changes: Sequence[ConfigChange]) -> list[AnyRecord]:
    """Return the records of the changes; an error in one rejects all."""
    held = view.image.config(resource)
    for name, count in Counter(change.name for change in changes).items():
        if count > 1:
            raise KafkaError(f"the request changes {name} twice", ErrorCode.INVALID_REQUEST)
    records: list[AnyRecord] = []
    after = dict(held)
    for change in changes:
        value = _changed_value(resource, change, held.get(change.name))
        after.pop(change.name, None)
        if value is not None:
            after[change.name] = value
        if view.image.elr_enabled and change.name == MIN_ISR:
            _check_min_isr(resource, value)
        if value != held.get(change.name) or resource.type == ResourceType.BROKER:
            # Setting an unchanged value makes a broker reload the files that it names: KAFKA-14136.
            records.append(
                ConfigRecord(
                    resource_type=resource.type, resource_name=resource.name, name=change.name, value=value
                )
            )
    view.validate(resource, after)
    records += _cleared(view.image, resource, records)
    return records


def _changed_value(resource: Resource, change: ConfigChange, held: str | None) -> str | None:
    if change.op == ConfigOp.DELETE:
        return None
    if change.value is None:
        raise BadSetting(f"{change.name} has no value")
    value = change.value
    if change.op in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
        if not is_list(resource, change.name):
            raise BadSetting(f"{change.name} is not a list: it can only be set or deleted")
        old = default_of(resource, change.name) if held is None else held
        parts = [part for part in (old or "").split(",") if part]
        given = [part for part in value.split(",") if part]
        if change.op == ConfigOp.APPEND:
            parts += [part for part in dict.fromkeys(given) if part not in parts]
        else:
            parts = [part for part in parts if part not in given]
        value = ",".join(parts)
    elif change.op != ConfigOp.SET:
        raise KafkaError(f"unknown config operation {change.op}", ErrorCode.INVALID_REQUEST)
    if len(value.encode()) > VALUE_BYTES_MAX:
        raise BadSetting(f"{change.name} is longer than {VALUE_BYTES_MAX} bytes")
    return value


def _check_min_isr(resource: Resource, value: str | None) -> None:
    """Reject per-broker values while ELRs are enabled: all brokers must agree on `min.insync.replicas`."""
    if resource.type == ResourceType.BROKER and resource != ALL_BROKERS:
        if value is not None:
            raise BadSetting(
                f"{MIN_ISR} cannot be set for one broker while eligible leader replicas are enabled"
            )
    elif resource == ALL_BROKERS and value is None:
        raise BadSetting(
            f"the cluster's {MIN_ISR} cannot be removed while eligible leader replicas are enabled"
        )


def _cleared(image: ClusterImage, resource: Resource, records: Sequence[AnyRecord]) -> Iterator[AnyRecord]:
    """Clear the ELRs that were computed with another `min.insync.replicas`.

    Except where the ISR is empty: nothing was written since, so eligible replicas stay eligible. Clearing them, as
    Kafka does, would leave a partition that no replica may lead again.
    """
    touched = any(isinstance(each, ConfigRecord) and each.name == MIN_ISR for each in records)
    counts = resource.type == ResourceType.TOPIC or resource == ALL_BROKERS
    if not (image.elr_enabled and touched and counts):
        return
    name = resource.name if resource.type == ResourceType.TOPIC else ""
    topics = [image.topics.get(name)] if name else [topic for _, topic in sorted(image.topics.entries())]
    held = [
        (topic, number, partition)
        for topic in topics
        if topic is not None
        for number, partition in sorted(topic.partitions.entries())
        if partition.elr or partition.last_known_elr
    ]
    if all(partition.isr for _, _, partition in held):
        yield ClearElrRecord(topic_name=name)
        return
    for topic, number, partition in held:
        if partition.isr:
            yield PartitionChangeRecord(
                topic_id=topic.id, partition_id=number, eligible_leader_replicas=(), last_known_elr=()
            )
