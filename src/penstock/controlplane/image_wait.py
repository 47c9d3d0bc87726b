"""Whether this node's image shows a change that a controller on another node has made.

A client that created a topic asks the same broker for it next, so the broker replies when its own image has the
change. Replies carry no offsets, so only the effect can be looked for. A change that was undone meanwhile is never
seen; callers wait for a limited time.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.metadata.controller import requests as r
from penstock.metadata.controller.requests import Result
from penstock.metadata.image import ClusterImage, ScramUser
from penstock.metadata.records import NO_LEADER
from penstock.records.structs import NO_UUID


def image_shows(request: Any, reply: Any, image: ClusterImage) -> bool:
    """Whether the image shows the changes in a reply; true for requests without a visible change."""
    check = _CHECKS.get(type(request))
    return check is None or getattr(request, "validate_only", False) or check(request, reply, image)


def _is_done(result: Result) -> bool:
    return result.code is ErrorCode.NONE


def _created(_: r.CreateTopics, reply: tuple[r.CreatedTopic, ...], image: ClusterImage) -> bool:
    return all(each.topic_id in image.topic_names for each in reply if _is_done(each.result))


def _deleted(_: r.DeleteTopics, reply: tuple[r.DeletedTopic, ...], image: ClusterImage) -> bool:
    return all(
        each.topic_id == NO_UUID or each.topic_id not in image.topic_names
        for each in reply
        if _is_done(each.result)
    )


def _grown(request: r.CreatePartitions, reply: tuple[r.TopicResult, ...], image: ClusterImage) -> bool:
    totals = {each.topic: each.total for each in request.topics}
    done = [image.topics.get(each.topic) for each in reply if _is_done(each.result)]
    return all(topic is None or len(topic.partitions) >= totals[topic.name] for topic in done)


def _elected(request: r.ElectLeaders, reply: tuple[r.ElectionResult, ...], image: ClusterImage) -> bool:
    for each in reply:
        partition = image.partition(each.topic, each.partition)
        if partition is None or not _is_done(each.result):
            continue
        is_preferred = request.election == r.Election.PREFERRED
        if partition.leader != partition.replicas[0] if is_preferred else partition.leader == NO_LEADER:
            return False
    return True


def _set_whole(request: r.AlterConfigs, reply: dict[Any, Result], image: ClusterImage) -> bool:
    return all(
        dict(image.config(resource)) == dict(request.resources[resource])
        for resource, result in reply.items()
        if _is_done(result)
    )


def _set_each(request: r.IncrementalAlterConfigs, reply: dict[Any, Result], image: ClusterImage) -> bool:
    return all(
        _is_set(change, image.config(resource).get(change.name))
        for resource, result in reply.items()
        if _is_done(result)
        for change in request.resources[resource]
    )


def _is_set(change: r.ConfigChange, held: str | None) -> bool:
    if change.op == r.ConfigOp.SET:
        return held == change.value
    if change.op == r.ConfigOp.DELETE:
        return held is None
    parts = set((held or "").split(","))
    given = {part for part in (change.value or "").split(",") if part}
    return given <= parts if change.op == r.ConfigOp.APPEND else not given & parts


def _moved(request: r.UpdateFeatures, _: Any, image: ClusterImage) -> bool:
    return all(image.features.get(each.name, 0) == each.level for each in request.updates)


def _has_acls(request: r.CreateAcls, reply: tuple[Result, ...], image: ClusterImage) -> bool:
    return all(
        acl.key in image.acl_ids for acl, result in zip(request.acls, reply, strict=True) if _is_done(result)
    )


def _lacks_acls(_: r.DeleteAcls, reply: tuple[r.DeletedAcls, ...], image: ClusterImage) -> bool:
    return not any(acl.key in image.acl_ids for each in reply for acl in each.acls)


def _has_quotas(request: r.AlterClientQuotas, reply: tuple[Result, ...], image: ClusterImage) -> bool:
    return all(
        image.quotas.get(entity, {}).get(key) == value
        for (entity, changes), result in zip(request.alterations, reply, strict=True)
        if _is_done(result)
        for key, value in changes
    )


def _forgotten(request: r.UnregisterBroker, _: None, image: ClusterImage) -> bool:
    return request.broker_id not in image.brokers


def _users_altered(request: r.AlterScramUsers, reply: dict[str, Result], image: ClusterImage) -> bool:
    def is_set(each: r.ScramUpsertion) -> bool:
        found = image.scram_users.get(ScramUser(each.mechanism, each.user))
        return found is not None and found.salt == each.salt

    return all(
        ScramUser(each.mechanism, each.user) not in image.scram_users
        for each in request.deletions
        if _is_done(reply[each.user])
    ) and all(is_set(each) for each in request.upsertions if _is_done(reply[each.user]))


def _token_made(_: r.CreateDelegationToken, reply: r.DelegationToken, image: ClusterImage) -> bool:
    return reply.record.token_id in image.tokens


def _token_moved(
    request: r.RenewDelegationToken | r.ExpireDelegationToken, expiry_ms: int, image: ClusterImage
) -> bool:
    if request.token_id is None:
        return True
    found = image.tokens.get(request.token_id)
    if isinstance(request, r.ExpireDelegationToken) and request.period_ms < 0:
        return found is None
    return found is None or found.expiration_timestamp == expiry_ms


_CHECKS: Final[dict[type, Callable[[Any, Any, ClusterImage], bool]]] = {
    r.CreateTopics: _created,
    r.DeleteTopics: _deleted,
    r.CreatePartitions: _grown,
    r.ElectLeaders: _elected,
    r.AlterConfigs: _set_whole,
    r.IncrementalAlterConfigs: _set_each,
    r.UpdateFeatures: _moved,
    r.AlterScramUsers: _users_altered,
    r.CreateAcls: _has_acls,
    r.AlterClientQuotas: _has_quotas,
    r.CreateDelegationToken: _token_made,
    r.RenewDelegationToken: _token_moved,
    r.ExpireDelegationToken: _token_moved,
    r.DeleteAcls: _lacks_acls,
    r.UnregisterBroker: _forgotten,
}
