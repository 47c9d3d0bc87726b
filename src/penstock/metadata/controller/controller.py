"""The controller: requests in, answers and records out.

It decides on its image, which includes its own decisions that are not committed yet. The quorum driver appends an
outcome's records to the metadata log in one batch, passes them to `replay` at once, so that the next decision builds
on them, and releases the reply when they are committed. A controller that is deposed is dropped; the next one starts
from the committed records.

    outcome = controller.handle(request, now_ms)
    offset = log.append(outcome.records)
    controller.replay(outcome.records, offset, epoch)

Each kind of request is one function in a module for its role: topics, partitions, reassignments, configs,
features, ACLs, quotas, brokers, producer ids, SCRAM users, delegation tokens. None writes anything; only the
sessions of brokers change with their heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.base.outcome import Outcome
from penstock.metadata import configs as settings_in_force
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.delegation_tokens import TokenKeys, token_keys
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import AnyRecord, BrokerRegistrationChangeRecord

from . import (
    acls,
    balancing,
    brokers,
    configs,
    delegation_tokens,
    features,
    partitions,
    producer_ids,
    quotas,
    reassignments,
    scram_users,
    topics,
)
from . import requests as r
from .view import ControllerView, Validate

if TYPE_CHECKING:
    from random import Random

SESSION_TIMEOUT_MS = 9000
"""Kafka's broker.session.timeout.ms."""

_DECIDE: dict[type, Callable[[ControllerView, Any], Outcome[Any]]] = {
    r.CreateTopics: topics.create_topics,
    r.DeleteTopics: topics.delete_topics,
    r.CreatePartitions: topics.create_partitions,
    r.AlterPartition: partitions.alter_partition,
    r.ElectLeaders: partitions.elect_leaders,
    r.AlterReassignments: reassignments.alter_reassignments,
    r.ListReassignments: reassignments.list_reassignments,
    r.AlterConfigs: configs.alter_configs,
    r.IncrementalAlterConfigs: configs.incremental_alter_configs,
    r.UpdateFeatures: features.update_features,
    r.AlterScramUsers: scram_users.alter_scram_users,
    r.CreateAcls: acls.create_acls,
    r.DeleteAcls: acls.delete_acls,
    r.AlterClientQuotas: quotas.alter_client_quotas,
    r.AllocateProducerIds: producer_ids.allocate_producer_ids,
    r.RegisterController: brokers.register_controller,
}

_DECIDE_TOKENS: dict[type, Callable[[ControllerView, TokenKeys | None, Any, TimestampMs], Outcome[Any]]] = {
    r.CreateDelegationToken: delegation_tokens.create_delegation_token,
    r.RenewDelegationToken: delegation_tokens.renew_delegation_token,
    r.ExpireDelegationToken: delegation_tokens.expire_delegation_token,
}


class Controller:
    def __init__(
        self,
        image: ClusterImage,
        *,
        cluster_id: str,
        rng: Random,
        now_ms: TimestampMs,
        settings: BrokerSettings = settings_in_force.ANY_BROKER,
        validate: Validate = settings_in_force.validate,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self._view = ControllerView(image, settings, validate, rng, cluster_id)
        self._sessions = brokers.Sessions(session_timeout_ms, now_ms)
        self._balancing = balancing.Balancing(self._view, now_ms)
        self._token_keys = token_keys(settings)
        self._tokens_checked_ms = now_ms
        """When expired delegation tokens were last removed."""

    @property
    def image(self) -> ClusterImage:
        """Includes decisions that are not committed yet."""
        return self._view.image

    def handle(self, request: Any, now_ms: TimestampMs) -> Outcome[Any]:
        """Return the reply and the records that make it true. Raises KafkaError if the whole request is rejected."""
        match request:
            case r.BrokerHeartbeat():
                return brokers.heartbeat(self._view, self._sessions, request, now_ms)
            case r.RegisterBroker():
                return brokers.register_broker(self._view, self._sessions, request, now_ms)
            case r.FenceBroker():
                return brokers.fence_broker(self._view, self._sessions, request)
            case r.UnregisterBroker():
                return brokers.unregister_broker(self._view, self._sessions, request)
            case r.CreateDelegationToken() | r.RenewDelegationToken() | r.ExpireDelegationToken():
                return _DECIDE_TOKENS[type(request)](self._view, self._token_keys, request, now_ms)
            case _:
                return _DECIDE[type(request)](self._view, request)

    def tick(self, now_ms: TimestampMs) -> Outcome[int]:
        """Do periodic work: fence silent brokers, elect leaders uncleanly where allowed, restore preferred leaders,
        remove expired delegation tokens. The reply is the number of restored leaders."""
        records = brokers.fence_stale(self._view, self._sessions, now_ms)
        after = self._view.after(records) if records else self._view
        records += partitions.elect_where_unclean_is_allowed(after)
        after = self._view.after(records) if records else self._view
        restored = self._balancing.due(after, now_ms)
        return Outcome(len(restored), (*records, *restored, *self._expired_tokens(now_ms)))

    def _expired_tokens(self, now_ms: TimestampMs) -> list[AnyRecord]:
        """The removal of expired delegation tokens, every `delegation.token.expiry.check.interval.ms`."""
        if not self.image.tokens or (
            now_ms - self._tokens_checked_ms < delegation_tokens.check_interval_ms(self._view)
        ):
            return []
        self._tokens_checked_ms = now_ms
        return delegation_tokens.remove_expired(self._view, now_ms)

    def cut(self, broker_id: int, broker_epoch: int) -> None:
        """The connection that a broker sent heartbeats on was closed."""
        self._sessions.cut(broker_id, broker_epoch)

    def has_reached_brokers(self, offset: Offset) -> bool:
        """Whether every broker has read the metadata log to this offset, or is fenced."""
        return self._sessions.have_read(
            offset, (each for each in self.image.brokers.values() if not each.fenced)
        )

    def next_session_end_ms(self) -> TimestampMs | None:
        """When the next session ends; None if every broker is fenced."""
        ends = [self._sessions.expires_ms(each) for each in self.image.brokers.values() if not each.fenced]
        return min(ends, default=None)

    def replay(self, records: Sequence[AnyRecord], offset: Offset, epoch: LeaderEpoch) -> None:
        """The records are in the log, the last of them at this offset."""
        image = self.image.replay(records, offset, epoch)
        view = self._view
        self._view = ControllerView(image, view.settings, view.validate, view.rng, view.cluster_id)
        for record in records:
            if isinstance(record, BrokerRegistrationChangeRecord) and record.in_controlled_shutdown:
                self._sessions.leaving(record.broker_id, offset)
