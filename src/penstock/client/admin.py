"""Changes topics and configs. Each function returns an outcome per name: done, or the error."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

from .cluster import Cluster
from .errors import RETRIABLE, BrokerRefused, refused
from .topology import TopicInfo

BROKER_DEFAULT: Final = -1
"""As the partitions or replicas of a new topic: the broker's default."""

SETTLE_MS: Final = 10_000
"""How long to wait until a change is in a broker's metadata. After that the call returns anyway."""

CONFIGS_SETTLE_MS: Final = 2_000
"""The same for settings. Shorter, since a broker may return a value in another form than it was set."""


class NewTopic(NamedTuple):
    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = {}


class Outcome(NamedTuple):
    name: str
    error: BrokerRefused | None = None
    topic_id: Uuid | None = None
    partitions: int = -1
    replication_factor: int = -1
    """Set for a created topic, if the broker returns it."""


def list_topics(cluster: Cluster) -> list[TopicInfo]:
    return sorted(cluster.refresh(None).topics.values())


def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicInfo]:
    """Topics by name; a missing topic has an error code."""
    latest = cluster.refresh(names).topics
    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [
        latest.get(name) or TopicInfo(name, None, False, {}, int(absent)) for name in dict.fromkeys(names)
    ]


def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> list[Outcome]:
    """Create topics; return once the metadata has them, with leaders."""

    def build(make: Any) -> Any:
        return make.CreateTopicsRequest(
            topics=tuple(
                make.CreatableTopic(
                    name=each.name,
                    num_partitions=each.partitions,
                    replication_factor=each.replication_factor,
                    assignments=(),
                    configs=tuple(
                        make.CreatableTopicConfig(name=name, value=value)
                        for name, value in each.configs.items()
                    ),
                )
                for each in topics
            ),
            timeout=_timeout(cluster),
            validate_only=validate_only,
        )

    has_defaults = any(BROKER_DEFAULT in (each.partitions, each.replication_factor) for each in topics)
    request = through_kio(Api.CREATE_TOPICS, build, version_min=4 if has_defaults else 1)
    reply = cluster.ask_controller(request, worst_code(lambda reply: reply.topics))
    outcomes = []
    for each in reply.topics:
        topic_id = getattr(each, "topic_id", None)
        outcomes.append(
            Outcome(
                each.name,
                error_of(f"topic {each.name}", each),
                None if topic_id is None else topic_id.bytes,
                getattr(each, "num_partitions", -1),
                getattr(each, "replication_factor", -1),
            )
        )
    if not validate_only:
        _settle(cluster, [each.name for each in outcomes if each.error is None], is_there=True)
    return outcomes


def delete_topics(cluster: Cluster, names: Sequence[str]) -> list[Outcome]:
    """Delete topics; return once the metadata no longer has them."""

    def build(make: Any) -> Any:
        if make.version >= 6:
            states = tuple(make.DeleteTopicState(name=name, topic_id=None) for name in names)
            return make.DeleteTopicsRequest(topics=states, timeout=_timeout(cluster))
        return make.DeleteTopicsRequest(topic_names=tuple(names), timeout=_timeout(cluster))

    reply = cluster.ask_controller(
        through_kio(Api.DELETE_TOPICS, build), worst_code(lambda reply: reply.responses)
    )
    outcomes = [Outcome(each.name, error_of(f"topic {each.name}", each)) for each in reply.responses]
    _settle(cluster, [each.name for each in outcomes if each.error is None], is_there=False)
    return outcomes


def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> list[Outcome]:
    """Give topics more partitions: the count is the new total."""

    def build(make: Any) -> Any:
        return make.CreatePartitionsRequest(
            topics=tuple(
                make.CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in counts.items()
            ),
            timeout=_timeout(cluster),
            validate_only=False,
        )

    request = through_kio(Api.CREATE_PARTITIONS, build)
    reply = cluster.ask_controller(request, worst_code(lambda reply: reply.results))
    outcomes = [Outcome(each.name, error_of(f"topic {each.name}", each)) for each in reply.results]
    done = {each.name: counts[each.name] for each in outcomes if each.error is None}
    _settle(cluster, list(done), is_there=True, counts=done)
    return outcomes


def _settle(
    cluster: Cluster, names: Sequence[str], *, is_there: bool, counts: Mapping[str, int] | None = None
) -> None:
    """Wait until a broker's metadata has the change, so that the next command sees it."""
    backoff = cluster.backoff(SETTLE_MS)
    left = list(names)
    while left:
        latest = cluster.refresh(left).topics
        left = [
            name for name in left if _is_whole(latest.get(name), (counts or {}).get(name, 1)) is not is_there
        ]
        pause_ms = backoff.next_pause_ms()
        if left and pause_ms < backoff.left_ms:
            cluster.clock.sleep_ms(pause_ms)
        else:
            return


def _is_whole(topic: TopicInfo | None, partitions: int) -> bool:
    if topic is None or topic.error_code:
        return False
    return len(topic.partitions) >= partitions and all(each.leader >= 0 for each in topic.partitions.values())


# -- configs ----------------------------------------------------------------------------------------------


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    type: ResourceType
    name: str
    """A topic's name or a broker's id; empty for the default of all brokers."""

    def __str__(self) -> str:
        if self.type is ResourceType.TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "brokers"


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are the protocol's."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, _: object) -> "ConfigSource":
        return cls.UNKNOWN


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None if it is sensitive or unset."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    """Sources of the value, the one in force first."""
    documentation: str | None = None


def describe_configs(
    cluster: Cluster, resource: Resource, names: Sequence[str] | None = None, *, documentation: bool = False
) -> list[ConfigEntry]:
    def build(make: Any) -> Any:
        return make.DescribeConfigsRequest(
            resources=(
                make.DescribeConfigsResource(
                    resource_type=int(resource.type),
                    resource_name=resource.name,
                    configuration_keys=None if names is None else tuple(names),
                ),
            ),
            include_synonyms=True,
            include_documentation=documentation,
        )

    reply = _ask_about(cluster, resource, through_kio(Api.DESCRIBE_CONFIGS, build, version_min=1))
    (result,) = reply.results
    problem = error_of(str(resource), result)
    if problem is not None:
        raise problem
    return sorted(
        ConfigEntry(
            each.name,
            each.value,
            ConfigSource(each.config_source),
            each.read_only,
            each.is_sensitive,
            tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in each.synonyms),
            getattr(each, "documentation", None),
        )
        for each in result.configs
    )


class ConfigChange(NamedTuple):
    name: str
    value: str | None
    """None removes the setting."""


_SET, _DELETE = 0, 1


def alter_configs(cluster: Cluster, resource: Resource, changes: Sequence[ConfigChange]) -> None:
    """Set and remove settings of one resource, all or none. Return once a broker shows them."""

    def build(make: Any) -> Any:
        return make.IncrementalAlterConfigsRequest(
            resources=(
                make.AlterConfigsResource(
                    resource_type=int(resource.type),
                    resource_name=resource.name,
                    configs=tuple(
                        make.AlterableConfig(
                            name=each.name,
                            config_operation=_DELETE if each.value is None else _SET,
                            value=each.value,
                        )
                        for each in changes
                    ),
                ),
            ),
            validate_only=False,
        )

    request = through_kio(Api.INCREMENTAL_ALTER_CONFIGS, build)
    if _is_one_broker(resource):
        reply = cluster.ask_node(int(resource.name), request)
    else:
        reply = cluster.ask_controller(request, worst_code(lambda reply: reply.responses))
    for each in reply.responses:
        problem = error_of(str(resource), each)
        if problem is not None:
            raise problem
    names = [each.name for each in changes]
    own = _own_source(resource)
    await_shown(cluster, lambda: _has_taken(describe_configs(cluster, resource, names), changes, own))


def await_shown(cluster: Cluster, is_shown: Callable[[], bool]) -> None:
    """Wait until a broker shows a change, for no longer than CONFIGS_SETTLE_MS."""
    backoff = cluster.backoff(CONFIGS_SETTLE_MS)
    while not is_shown():
        pause_ms = backoff.next_pause_ms()
        if pause_ms >= backoff.left_ms:
            return
        cluster.clock.sleep_ms(pause_ms)


def _has_taken(entries: Sequence[ConfigEntry], changes: Sequence[ConfigChange], own: ConfigSource) -> bool:
    """Whether the settings have their new values. A sensitive one counts as changed."""
    latest = {each.name: each for each in entries}
    for name, value in changes:
        entry = latest.get(name)
        if value is None:
            if entry is not None and entry.source is own:
                return False
        elif entry is None or (entry.value != value and not entry.is_sensitive):
            return False
    return True


def _own_source(resource: Resource) -> ConfigSource:
    if resource.type is ResourceType.TOPIC:
        return ConfigSource.TOPIC
    return ConfigSource.BROKER if resource.name else ConfigSource.BROKERS


def _ask_about(cluster: Cluster, resource: Resource, request: Request[Any]) -> Any:
    """Send a request about a broker's configs to that broker, others to any broker."""
    return (
        cluster.ask_node(int(resource.name), request)
        if _is_one_broker(resource)
        else cluster.ask_any(request)
    )


def _is_one_broker(resource: Resource) -> bool:
    return resource.type is ResourceType.BROKER and bool(resource.name)


# -- replies ----------------------------------------------------------------------------------------------


def _timeout(cluster: Cluster) -> timedelta:
    return timedelta(milliseconds=cluster.settings.request_timeout_ms)


def worst_code(items: Callable[[Any], Any]) -> Callable[[Any], int]:
    """The first retriable code of a reply, if all its codes are retriable."""

    def code_of(reply: Any) -> int:
        codes = [int(each.error_code) for each in items(reply)]
        return codes[0] if codes and all(code in RETRIABLE for code in codes) else 0

    return code_of


def error_of(what: str, result: Any) -> BrokerRefused | None:
    code = int(result.error_code)
    return refused(what, code, getattr(result, "error_message", None)) if code else None
