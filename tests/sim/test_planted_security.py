"""Secured clusters whose users and ACLs change, and brokers that take such changes wrongly."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.base.ids import Offset
from penstock.base.promise import Promise
from penstock.handlers.support.latest_metadata import LatestMetadata
from penstock.metadata.controller.controller import Controller
from penstock.metadata.maps import FrozenMap
from penstock.metadata.scram import ScramMechanism
from penstock.security.authorizer import Authorizer
from penstock.security.client_quotas import ClientQuotas
from penstock.security.sasl.scram import KnownUser
from penstock.server.logins import MetadataUsers
from penstock.server.node import Node
from penstock.sim.cluster_extras import Extra, with_extras
from penstock.sim.run import Simulation
from penstock.sim.secured import SecurityPlan

SECURED = replace(
    with_extras(replace(BUSY, crash_us_mean=4_000_000, producers=BUSY.producers[:1]), [Extra.SECURITY]),
    duration_us=10_000_000,
    security=SecurityPlan(guests=3, change_us_mean=80_000, pace_us=80_000),
    cluster=replace(BUSY.cluster, down_us=(10_000, 1_000_000), cut_us_mean=8_000_000),
)
QUIET = replace(
    SECURED,
    crash_us_mean=0,
    reset_us_mean=0,
    cluster=replace(SECURED.cluster, cut_us_mean=0, pause_us_mean=0),
)
"""Nothing fails."""


def test_guests_are_granted_and_denied_in_turns_while_nodes_fail() -> None:
    told = "\n".join(Simulation(replace(SECURED, seed=1)).run().trace)
    assert "security operator removes guest" in told
    assert "security operator deletes ALLOW" in told
    for code in ("NONE", "SASL_AUTHENTICATION_FAILED"):
        assert any("logs in" in line and line.endswith(code) for line in told.splitlines())
    for code in ("NONE", "TOPIC_AUTHORIZATION_FAILED"):
        assert any("tries WRITE on TOPIC" in line and line.endswith(code) for line in told.splitlines())
    for code in ("GROUP_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        assert code in told


def test_an_authorizer_that_keeps_deleted_acls_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with_acls = Authorizer.with_acls

    def keeping(authorizer: Authorizer, acls: FrozenMap[Any, Any]) -> Authorizer:
        return with_acls(authorizer, FrozenMap({**dict(authorizer.acls.entries()), **dict(acls.entries())}))

    plant(monkeypatch, with_acls, keeping)
    assert_caught(SECURED, by="RevokedDenied", first=5)


def test_a_controller_that_answers_before_brokers_know_new_acls_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Kafka's does: a broker that has not read the metadata log so far decides by the old ones."""
    plant(monkeypatch, Controller.has_reached_brokers, lambda *_: True)
    assert_caught(SECURED, by="RevokedDenied", first=1)


@pytest.mark.long
def test_a_decision_that_outlives_its_acls_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with_acls = Authorizer.with_acls

    def remembering(authorizer: Authorizer, acls: FrozenMap[Any, Any]) -> Authorizer:
        other = with_acls(authorizer, acls)
        other._decisions = authorizer._decisions
        return other

    plant(monkeypatch, with_acls, remembering)
    assert_caught(SECURED, by="GrantedAllowed", first=1)


@pytest.mark.long
def test_a_broker_that_remembers_removed_users_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    find = MetadataUsers.user
    known: dict[tuple[MetadataUsers, str], KnownUser] = {}

    def remembering(users: MetadataUsers, mechanism: ScramMechanism, name: str) -> KnownUser | None:
        return (
            known.setdefault((users, name), found)
            if (found := find(users, mechanism, name))
            else known.get((users, name))
        )

    plant(monkeypatch, find, remembering)
    assert_caught(SECURED, by="RevokedDenied", first=3)


def test_log_ins_that_flake_after_a_user_was_made_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka refuses a new user at brokers that have not read the metadata log so far."""

    def at_once(_: LatestMetadata) -> Promise[bool]:
        promise: Promise[bool] = Promise()
        promise.resolve(True)
        return promise

    plant(monkeypatch, LatestMetadata.reached, at_once)
    assert_caught(SECURED, by="GrantedAllowed", first=1)


@pytest.mark.long
def test_a_quota_that_outlives_its_removal_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = ClientQuotas.follow
    former: dict[ClientQuotas, dict[Any, Any]] = {}

    def remembering(quotas: ClientQuotas, new: Mapping[Any, Any]) -> None:
        former[quotas] = {**former.get(quotas, {}), **{entity: new[entity] for entity in new}}
        follow(quotas, former[quotas])

    plant(monkeypatch, follow, remembering)
    assert_caught(QUIET, by="NotThrottled", first=5)


@pytest.mark.long
def test_a_broker_in_touch_that_applies_no_metadata_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    advanced = Node.advanced

    def stuck(node: Node, high_watermark: Offset) -> None:
        if node.context.node_id != 2 or node.context.world.clock_ns() < 4_000_000_000:
            advanced(node, high_watermark)

    plant(monkeypatch, advanced, stuck)
    rarely = SecurityPlan(guests=3, change_us_mean=400_000, pace_us=80_000)
    assert_caught(replace(QUIET, duration_us=20_000_000, security=rarely), by="GrantedAllowed", first=6)
