"""Settings of brokers, each in a test in which it changes what happens. Those behind a topic's: `test_settings`."""

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from tests.controlplane.test_quorum_settings import SHOWN as QUORUM
from tests.handlers.cluster import Cluster
from tests.nodes import StillNode
from tests.server.settings_scenes import TOPIC, Scene, fill_with_one_key
from tests.server.test_group_settings import SHOWN as GROUPS
from tests.wire_requests import fetch_body

from penstock.base.settings import BadSetting
from penstock.handlers.support.context import Endpoint
from penstock.metadata.image import Resource, ResourceType
from penstock.records import build_batch
from penstock.server import host
from penstock.server.config import config_from, load
from penstock.server.listeners import Listening, listen
from penstock.storage import DirectoryRefused
from penstock.wire import Api, request_module

Test = TypeVar("Test", bound=Callable[..., None])

SHOWN: set[str] = set()
"""The settings that a test here shows."""

ELSEWHERE = {
    "authorizer.class.name": "tests/server/test_acls.py::test_a_connected_producer_is_denied_and_the_next_one_allowed",
    "super.users": "tests/cli/test_acl_commands.py::test_a_decision_is_explained",
    "allow.everyone.if.no.acl.found": "tests/server/test_acls.py::test_what_may_not_be_described_is_not_listed",
    "audit.file": "tests/server/test_audit.py::test_repetitions_are_written_when_the_node_stops",
    "audit.file.max.bytes": "tests/server/test_audit.py::test_a_full_file_is_renamed_and_the_oldest_goes",
    "audit.log": "tests/server/test_audit.py::test_produce_and_fetch_are_recorded_by_their_names",
    "audit.topic": "tests/server/test_audit.py::test_the_topic_has_the_lines_too_and_is_created",
    "auto.leader.rebalance.enable": "tests/metadata/test_balancing.py::"
    "test_an_operator_may_want_leaders_to_stay_where_they_are",
    "follower.replication.throttled.rate": "tests/replica/test_fetchers.py::"
    "test_a_throttled_replica_is_copied_at_its_rate_and_others_at_theirs",
    "initial.broker.registration.timeout.ms": "tests/controlplane/test_broker_lifecycle.py::"
    "test_a_broker_that_no_controller_takes_gives_up_after_its_time",
    "leader.replication.throttled.rate": "tests/handlers/support/test_follower_fetch.py::"
    "test_throttled_leaders_hold_back_until_what_they_gave_is_paid_for",
    "leader.imbalance.check.interval.seconds": "tests/metadata/test_balancing.py::"
    "test_preferred_leaders_return_when_the_interval_is_over",
    "advertised.listeners": "tests/server/test_node.py::test_an_advertised_address_wins_over_the_dialled_one",
    "client.buffers.max.bytes": "tests/server/test_slow_readers.py::"
    "test_the_bound_for_all_clients_is_a_setting",
    "connections.max.idle.ms": "tests/server/test_node.py::"
    "test_idle_connections_are_closed_and_waiting_ones_are_not",
    "console.mode": "tests/gateway/http/test_session.py::test_the_session_says_the_consoles_mode",
    **dict.fromkeys(
        (f"console.oidc.{each}" for each in ("client.id", "client.secret", "issuer", "scopes")),
        "tests/gateway/http/test_session_oidc.py::"
        "test_the_provider_logs_the_user_in_for_as_long_as_the_token_holds",
    ),
    "console.oidc.redirect.url": "tests/gateway/http/test_session_oidc.py::"
    "test_behind_a_proxy_the_provider_sends_the_browser_to_the_proxy",
    "console.session.idle.ms": "tests/gateway/http/test_session.py::"
    "test_a_session_ends_when_nobody_is_there_and_after_its_longest_time",
    "console.session.max.ms": "tests/gateway/http/test_session.py::"
    "test_a_session_ends_when_nobody_is_there_and_after_its_longest_time",
    "console.session.secret": "tests/gateway/http/test_session.py::"
    "test_nodes_with_one_secret_take_each_others_sessions",
    "http.health.without.login": "tests/server/test_door_security.py::"
    "test_health_is_open_and_metrics_are_not_unless_the_settings_say_so",
    "http.metrics.without.login": "tests/server/test_door_security.py::"
    "test_health_is_open_and_metrics_are_not_unless_the_settings_say_so",
    "http.security.protocol": "tests/server/test_door_security.py::"
    "test_doors_have_tls_with_the_certificates_of_the_node",
    "line.security.protocol": "tests/server/test_door_security.py::"
    "test_doors_have_tls_with_the_certificates_of_the_node",
    "http.hosts": "tests/server/test_door_abuse.py::test_a_proxys_name_may_be_allowed",
    "idempotency.retention.ms": "tests/gateway/idempotency/test_keys.py::test_after_its_time_a_key_is_new_again",
    "max.request.partition.size.limit": "tests/handlers/test_metadata.py::"
    "test_a_page_has_no_more_partitions_than_the_broker_allows",
    "replica.lag.time.max.ms": "tests/replica/test_isr.py::"
    "test_a_setting_says_how_long_a_follower_may_be_behind",
    "replica.selector.class": "tests/handlers/support/test_follower_fetch.py::"
    "test_a_consumer_is_sent_to_the_replica_in_its_rack",
    "replica.fetch.backoff.ms": "tests/replica/test_fetchers.py::"
    "test_an_error_of_one_partition_costs_the_others_nothing",
    "replica.fetch.max.bytes": "tests/replica/test_fetchers.py::"
    "test_what_the_leader_knows_of_the_follower_is_in_each_fetch",
    "replica.fetch.min.bytes": "tests/replica/test_fetchers.py::"
    "test_what_the_leader_knows_of_the_follower_is_in_each_fetch",
    "replica.fetch.response.max.bytes": "tests/replica/test_fetchers.py::"
    "test_what_the_leader_knows_of_the_follower_is_in_each_fetch",
    "replica.fetch.wait.max.ms": "tests/replica/test_fetchers.py::"
    "test_what_the_leader_knows_of_the_follower_is_in_each_fetch",
    "replica.socket.timeout.ms": "tests/replica/test_fetchers.py::"
    "test_a_leader_that_is_silent_is_given_up_after_replica_socket_timeout_ms",
    "security.inter.broker.protocol": "tests/server/test_peer_config.py::"
    "test_the_listener_between_brokers_is_named_or_found_by_its_protocol",
    "bootstrap.scram.users": "tests/cluster/test_secured.py::"
    "test_a_new_cluster_whose_brokers_log_in_with_scram_starts",
    "sasl.jaas.config": "tests/server/test_peer_config.py::"
    "test_what_a_node_logs_in_with_is_that_of_the_listener_or_of_all",
    "sasl.mechanism.controller.protocol": "tests/server/test_peer_config.py::"
    "test_what_a_node_logs_in_with_is_that_of_the_listener_or_of_all",
    "sasl.mechanism.inter.broker.protocol": "tests/server/test_peer_config.py::"
    "test_what_a_node_logs_in_with_is_that_of_the_listener_or_of_all",
    "ssl.endpoint.identification.algorithm": "tests/server/test_peer_security.py::"
    "test_a_certificate_of_another_host_is_refused_unless_hosts_are_not_checked",
    "request.timeout.ms": "tests/handlers/test_configs.py::"
    "test_an_api_without_a_timeout_waits_for_request_timeout_ms",
    "transaction.max.timeout.ms": "tests/handlers/test_transactions.py::"
    "test_the_longest_timeout_is_what_the_setting_says",
    "transaction.partition.verification.enable": "tests/handlers/support/test_txn_verification.py::"
    "test_partitions_are_not_verified_without_need",
    "transactional.id.expiration.ms": "tests/handlers/test_transactions.py::test_an_unused_id_is_forgotten",
    "controller.quorum.bootstrap.servers": "tests/server/test_control_plane.py::"
    "test_who_is_told_whom_to_ask_learns_the_quorum_from_there",
    "controller.quorum.voters": "tests/server/test_control_plane.py::"
    "test_the_voters_that_are_named_elect_one_controller",
    "process.roles": "tests/server/test_control_plane.py::test_a_broker_alone_follows_and_has_no_vote",
    "connection.failed.authentication.delay.ms": "tests/server/test_sasl.py::"
    "test_a_refusal_comes_after_the_delay_and_ends_the_connection",
    "connections.max.reauth.ms": "tests/server/test_sasl.py::"
    "test_a_session_ends_and_a_client_that_logs_in_again_stays",
    "sasl.enabled.mechanisms": "tests/server/test_sasl.py::"
    "test_a_mechanism_that_is_off_is_refused_and_the_connection_is_closed",
    "sasl.oauthbearer.clock.skew.seconds": "tests/server/test_oauth.py::"
    "test_the_clock_of_the_issuer_may_differ",
    "sasl.oauthbearer.expected.audience": "tests/server/test_oauth.py::"
    "test_an_audience_and_an_issuer_that_are_expected",
    "sasl.oauthbearer.expected.issuer": "tests/server/test_oauth.py::"
    "test_an_audience_and_an_issuer_that_are_expected",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "tests/server/test_oauth.py::"
    "test_new_keys_are_used_after_a_refresh_and_removed_ones_no_more",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "tests/server/test_oauth.py::"
    "test_a_failed_fetch_is_repeated_with_longer_pauses_and_the_keys_stay",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "tests/server/test_oauth.py::"
    "test_a_failed_fetch_is_repeated_with_longer_pauses_and_the_keys_stay",
    "sasl.oauthbearer.jwks.endpoint.url": "tests/server/test_oauth.py::"
    "test_a_token_logs_in_and_bounds_the_session",
    "sasl.oauthbearer.scope.claim.name": "tests/server/test_oauth.py::"
    "test_a_refused_token_gets_kafkas_json_and_the_log_the_reason",
    "sasl.oauthbearer.sub.claim.name": "tests/server/test_oauth.py::"
    "test_a_refused_token_gets_kafkas_json_and_the_log_the_reason",
    "delegation.token.expiry.check.interval.ms": "tests/server/test_delegation_tokens.py::"
    "test_expired_tokens_are_removed_from_the_metadata",
    "delegation.token.expiry.time.ms": "tests/server/test_delegation_tokens.py::"
    "test_only_owner_and_renewers_renew",
    "delegation.token.master.key": "tests/server/test_delegation_tokens.py::"
    "test_the_older_name_of_the_secret_key",
    "delegation.token.max.lifetime.ms": "tests/server/test_delegation_tokens.py::"
    "test_only_owner_and_renewers_renew",
    "delegation.token.secret.key": "tests/server/test_delegation_tokens.py::"
    "test_the_key_is_the_one_that_kafka_computes",
    "scram.unknown.users.secret": "tests/security/sasl/test_unknown_users.py::"
    "test_a_name_has_the_same_salt_at_all_brokers_and_another_in_each_cluster",
    "sasl.server.max.receive.size": "tests/server/test_sasl.py::test_a_frame_before_the_log_in_is_small",
    **GROUPS,
    **QUORUM,
    "ssl.cipher.suites": "tests/server/test_tls_config.py::test_versions_and_suites",
    "ssl.enabled.protocols": "tests/server/test_tls_config.py::test_versions_and_suites",
    "ssl.client.auth": "tests/server/test_tls.py::test_expired_and_foreign_certificates_and_none_are_refused",
    "ssl.key.password": "tests/server/test_tls_config.py::test_an_encrypted_key",
    "ssl.keystore.certificate.chain": "tests/server/test_tls_config.py::test_pem_in_the_settings",
    "ssl.keystore.key": "tests/server/test_tls_config.py::test_pem_in_the_settings",
    "ssl.keystore.location": "tests/server/test_tls.py::"
    "test_a_changed_certificate_is_used_for_new_connections",
    "ssl.keystore.password": "tests/server/test_tls_config.py::test_pkcs12_that_cannot_be_opened",
    "ssl.keystore.type": "tests/server/test_tls_config.py::test_the_type_must_be_that_of_the_file",
    "ssl.principal.mapping.rules": "tests/server/test_tls.py::"
    "test_the_principal_is_the_subject_of_the_certificate",
    "ssl.protocol": "tests/server/test_tls_config.py::test_what_cannot_be_is_refused_in_a_sentence",
    "ssl.truststore.certificates": "tests/server/test_tls_config.py::test_pem_in_the_settings",
    "ssl.truststore.location": "tests/server/test_tls.py::"
    "test_a_changed_trust_store_is_used_for_new_connections",
    "ssl.truststore.password": "tests/server/test_tls_config.py::test_pkcs12_also_under_javas_default_name",
    "ssl.truststore.type": "tests/server/test_tls_config.py::test_pkcs12_also_under_javas_default_name",
}

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1000"}


def shows(*names: str) -> Callable[[Test], Test]:
    SHOWN.update(names)
    return lambda test: test


def scene_with(settings: dict[str, str] | None = None, partitions: int = 1, **topic: str) -> Scene:
    node = StillNode(settings=settings)
    node.create_topic(TOPIC, partitions, **topic)
    return Scene(node)


# -- who it is, and where it listens -------------------------------------------------------------------


@shows("node.id", "broker.id", "broker.rack")
@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_a_broker_has_its_number_and_its_rack(name: str) -> None:
    [broker] = Scene(StillNode(settings={name: "7", "broker.rack": "attic"})).metadata().brokers
    assert (broker.node_id, broker.rack) == (7, "attic")
    [broker] = Scene(StillNode()).metadata().brokers
    assert (broker.node_id, broker.rack) == (1, None)


@shows("log.dir", "log.dirs")
@pytest.mark.parametrize("name", ["log.dir", "log.dirs"])
def test_a_broker_has_its_directory(name: str) -> None:
    assert load(flags=[f"{name}=/somewhere"], environment={}).data == "/somewhere"
    assert load(environment={}).data == "./penstock-data"


@shows("listeners", "controller.listener.names")
def test_a_node_listens_where_it_is_told_for_brokers_and_for_controllers() -> None:
    listeners = "PLAINTEXT://:9092,CONTROLLER://:9093"
    config = config_from("/data", {"listeners": listeners, "controller.listener.names": "CONTROLLER"})
    assert dict(config.listeners) == {"PLAINTEXT": Endpoint("", 9092)}
    assert dict(config.cluster.controllers) == {"CONTROLLER": Endpoint("", 9093)}
    both = {"listeners": "PLAINTEXT://:9092,SSL://:9093", "listener.security.protocol.map": ALL_PLAIN}
    assert set(config_from("/data", both).listeners) == {"PLAINTEXT", "SSL"}


ALL_PLAIN = "PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT"


@shows("schema.registry.listener")
def test_the_registry_has_a_port_beside_http_or_where_it_is_told_to() -> None:
    """Port 8081 is opened without being asked for only beside 8080: several nodes of one machine have other ports."""
    default = load(environment={})
    assert default.doors["registry"] == Endpoint("127.0.0.1", 8081)
    assert default.optional_doors == {"registry"}
    assert load(http=":8080", environment={}).doors["registry"] == Endpoint("", 8081)
    for elsewhere in (":8090", "off"):
        assert "registry" not in load(http=elsewhere, environment={}).doors
    told = load(http="off", flags=["schema.registry.listener=:81"], environment={})
    assert told.doors["registry"] == Endpoint("", 81)
    assert not told.optional_doors
    assert told.settings["schema.registry.listener"] == ":81"
    off = load(flags=["schema.registry.listener=off"], environment={})
    assert "registry" not in off.doors
    with pytest.raises(BadSetting, match="only a controller serves no clients"):
        config_from(
            "/data",
            {"process.roles": "controller", "schema.registry.listener": ":81"},
            kafka=None,
            controller="127.0.0.1:0",
        )


@shows("http.listener", "line.listener")
@pytest.mark.parametrize(("door", "port"), [("http", 8080), ("line", 9090)])
def test_a_door_is_where_it_is_told_to_be(door: str, port: int) -> None:
    """Those of `penstock up` are open on this machine alone unless told otherwise; a program has those it asks for."""
    setting = f"{door}.listener"
    assert load(environment={}).doors[door] == Endpoint("127.0.0.1", port)
    assert config_from("/data").doors == {}
    for config in (
        load(environment={f"PENSTOCK_{door.upper()}_LISTENER": ":81"}),
        load(flags=[f"{setting}=:81"], environment={f"PENSTOCK_{door.upper()}_LISTENER": "off"}),
        load(**{door: ":81"}, environment={f"PENSTOCK_{door.upper()}_LISTENER": "off"}),  # type: ignore[arg-type]
        config_from("/data", {setting: ":81"}),
    ):
        assert config.doors[door] == Endpoint("", 81)
        assert config.settings[setting] == ":81"
    off = load(flags=[f"{setting}=off"], environment={})
    assert door not in off.doors
    assert off.settings[setting] == "off"


@shows("inter.broker.listener.name", "listener.security.protocol.map", "metadata.log.dir")
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("controller.quorum.voters", "1@localhost:9093", "1@localhost:9093,2@elsewhere:9093"),
        ("inter.broker.listener.name", "PLAINTEXT", "INTERNAL"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT", "PLAINTEXT:SASL"),
        ("metadata.log.dir", "/data", "/elsewhere"),
        ("process.roles", "broker,controller", "broker"),
    ],
)
def test_what_a_node_cannot_be_stops_the_start(name: str, good: str, bad: str) -> None:
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:9092"}
    assert config_from("/data", {**listeners, name: good}).settings[name] == good
    about = {
        "controller.quorum.voters": "expected --controller HOST:PORT",
        "listener.security.protocol.map": "PLAINTEXT:SASL",
    }
    with pytest.raises(BadSetting, match=about.get(name, name.replace(".", r"\."))):
        config_from("/data", {**listeners, name: bad})


@shows("cluster.id")
def test_a_new_directory_is_of_the_cluster_that_it_is_told_and_an_old_one_of_no_other() -> None:
    first, second = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    made = StillNode(settings={"cluster.id": first})
    assert made.node.context.cluster_id == first
    made.stop()
    again = StillNode(made.disk)
    assert again.node.context.cluster_id == first
    again.stop()
    with pytest.raises(DirectoryRefused, match=f"belongs to cluster {first}, but cluster.id is {second}"):
        StillNode(again.disk, settings={"cluster.id": second})


@shows("socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes")
def test_sockets_are_made_as_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def spy(endpoint: Endpoint, backlog: int, *, send_bytes: int, receive_bytes: int, flag: str) -> Listening:
        asked.append((backlog, send_bytes, receive_bytes))
        return listen(endpoint, backlog, send_bytes=send_bytes, receive_bytes=receive_bytes, flag=flag)

    monkeypatch.setattr(host, "listen", spy)
    told = {
        "socket.listen.backlog.size": "7",
        "socket.send.buffer.bytes": "65536",
        "socket.receive.buffer.bytes": "32768",
    }
    for settings in ({}, told):
        config = config_from(
            "/data", settings, kafka="127.0.0.1:0", http="127.0.0.1:0", controller="127.0.0.1:0"
        )
        kafka, doors, controllers = host._listen_all(config)
        for listening in (*kafka.values(), *doors.values(), *controllers.values()):
            with closing(listening):
                assert listening.endpoint.port
    assert asked == [(1024, -1, -1)] * 3 + [(7, 65536, 32768)] * 3


# -- connections and requests --------------------------------------------------------------------------


@shows("max.connections", "max.connections.per.ip")
@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
@pytest.mark.parametrize("at_run_time", [False, True])
def test_connections_beyond_the_limits_are_closed(name: str, at_run_time: bool) -> None:
    scene = Scene(StillNode(settings={} if at_run_time else {name: "2"}))
    if at_run_time:
        assert scene.alter(4, "", name, "3") == 0  # the connection that asked for it is one of them
    clients = [scene.node.client() for _ in range(3)]
    assert [each.transport.is_closed for each in clients] == [False, False, True]


@shows("max.connections.per.ip.overrides")
def test_an_address_may_have_its_own_limit() -> None:
    settings = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "10.0.0.9:1, 10.0.0.1:3"}
    node = StillNode(settings=settings)
    assert [node.client().transport.is_closed for _ in range(4)] == [False, False, False, True]


@shows("max.connection.creation.rate")
@pytest.mark.parametrize("at_run_time", [False, True])
def test_connections_above_the_rate_wait_for_their_turn(at_run_time: bool) -> None:
    scene = Scene(StillNode(settings={} if at_run_time else {"max.connection.creation.rate": "1"}))
    if at_run_time:
        assert scene.alter(4, "", "max.connection.creation.rate", "1") == 0
    clients = [scene.node.client() for _ in range(14)]
    since = scene.now_ms
    waited = []
    for client in clients:
        client.call(Api.API_VERSIONS, 0)
        waited.append((scene.now_ms - since) // 1000)
    assert waited[:9] == [0] * 9, "ten seconds' worth may come at once"
    assert waited[-1] - waited[-3] == 2
    assert waited[-1] in (3, 4, 5)


@shows("quota.window.num", "quota.window.size.seconds")
@pytest.mark.parametrize(
    ("settings", "burst"),
    [({}, 10), ({"quota.window.num": "3"}, 2), ({"quota.window.size.seconds": "2"}, 20)],
)
def test_rates_are_averages_over_the_samples(settings: dict[str, str], burst: int) -> None:
    node = StillNode(settings={**settings, "max.connection.creation.rate": "1"})
    clients = [node.client() for _ in range(30)]
    for client in clients:
        client.ask(Api.API_VERSIONS, 0)
    node.world.advance(1)
    assert sum(client.raw_reply() is not None for client in clients) in (burst - 1, burst)


@shows("controller.quota.window.num", "controller.quota.window.size.seconds")
@pytest.mark.parametrize(
    ("name", "value", "tokens"),
    [("num", "11", 11), ("num", "3", 3), ("size.seconds", "2", 22)],
)
def test_changes_of_topics_are_measured_over_the_samples(name: str, value: str, tokens: int) -> None:
    node = StillNode(settings={f"controller.quota.window.{name}": value})
    module = request_module(Api.ALTER_CLIENT_QUOTAS, 1)
    entry = module.EntryData(
        entity=(module.EntityData(entity_type="user", entity_name=None),),
        ops=(module.OpData(key="controller_mutation_rate", value=1.0, remove=False),),
    )
    node.client().call(Api.ALTER_CLIENT_QUOTAS, 1, entries=(entry,), validate_only=False)
    made = 0
    for number in range(30):
        topics = (
            request_module(Api.CREATE_TOPICS, 7).CreatableTopic(
                name=f"t{number}", num_partitions=1, replication_factor=1, assignments=(), configs=()
            ),
        )
        reply = node.client().call(
            Api.CREATE_TOPICS, 7, topics=topics, timeout=timedelta(seconds=1), validate_only=False
        )
        made += not reply.topics[0].error_code.value
    assert tokens <= made <= tokens + 2


@shows("socket.request.max.bytes")
def test_a_request_beyond_the_limit_ends_the_connection() -> None:
    for settings, is_closed in (({}, False), ({"socket.request.max.bytes": "1000"}, True)):
        client = StillNode(settings=settings).client()
        client.feed((1001).to_bytes(4, "big"))
        assert client.transport.is_closed is is_closed


@shows("fetch.max.bytes")
def test_a_fetch_answers_with_no_more_than_it_may() -> None:
    for settings, answered in (({}, [True, True]), ({"fetch.max.bytes": "1024"}, [True, False])):
        scene = scene_with(settings, partitions=2)
        for number in range(2):
            scene.produce(value=b"x" * 2000, partition=number)
        client = scene.node.client()
        client.send(Api.FETCH, 12, fetch_body(12, [(TOPIC, [(0, 0), (1, 0)])]))
        assert [bool(each.records) for each in client.wait().responses[0].partitions] == answered


@shows("max.incremental.fetch.session.cache.slots")
def test_fetch_sessions_are_kept_while_there_is_room() -> None:
    for settings, is_kept in (({}, True), ({"max.incremental.fetch.session.cache.slots": "0"}, False)):
        client = scene_with(settings).node.client()
        client.send(Api.FETCH, 12, fetch_body(12, [(TOPIC, [(0, 0)])], session=(0, 0)))
        assert bool(client.wait().session_id) is is_kept


# -- topics --------------------------------------------------------------------------------------------


@shows("auto.create.topics.enable", "num.partitions")
def test_topics_are_created_when_they_are_asked_for() -> None:
    for settings, partitions in (
        ({}, 3),
        ({"num.partitions": "5"}, 5),
        ({"auto.create.topics.enable": "false"}, 0),
    ):
        [topic] = Scene(StillNode(settings=settings)).metadata("new", create=True).topics
        assert len(topic.partitions) == partitions
        assert topic.error_code.value == (0 if partitions else 3)


@shows("default.replication.factor")
def test_a_topic_gets_as_many_replicas_as_it_should() -> None:
    for settings, code in (({}, 0), ({"default.replication.factor": "2"}, 38)):
        module = request_module(Api.CREATE_TOPICS, 7)
        topic = module.CreatableTopic(
            name=TOPIC, num_partitions=1, replication_factor=-1, assignments=(), configs=()
        )
        reply = (
            StillNode(settings=settings)
            .client()
            .call(Api.CREATE_TOPICS, 7, topics=(topic,), timeout=timedelta(seconds=5), validate_only=False)
        )
        assert reply.topics[0].error_code.value == code


@shows("delete.topic.enable")
def test_topics_are_deleted_only_where_they_may_be() -> None:
    for settings, code in (({}, 0), ({"delete.topic.enable": "false"}, 73)):
        assert scene_with(settings).delete_topic() == code


@shows(
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
)
@pytest.mark.parametrize(
    ("name", "prefix"),
    [("__consumer_offsets", "offsets.topic"), ("__transaction_state", "transaction.state.log")],
)
def test_the_clusters_own_topics_are_made_as_they_should_be(name: str, prefix: str) -> None:
    def made(**settings: str) -> tuple[int, int, str, str | None]:
        static = {f"{prefix}.{key.replace('_', '.')}": value for key, value in settings.items()}
        three = Cluster(brokers=(1, 2, 3), static=static)
        [topic] = three.ask(
            Api.METADATA, 9, topics=[{"name": name}], allow_auto_topic_creation=True
        ).value.topics
        config = three.image.config(Resource(ResourceType.TOPIC, name))
        return (
            len(topic.partitions),
            len(topic.partitions[0].replica_nodes),
            config["segment.bytes"],
            config.get("min.insync.replicas"),
        )

    transactional = prefix == "transaction.state.log"
    assert made() == (50, 3, "104857600", "2" if transactional else None)
    told = {"num_partitions": "4", "replication_factor": "2", "segment_bytes": "5000"}
    if transactional:
        told["min_isr"] = "1"
    assert made(**told) == (4, 2, "5000", "1" if transactional else None)


# -- the disk ------------------------------------------------------------------------------------------


@shows("durability.fsync")
@pytest.mark.parametrize(("value", "synced"), [("alone", 1), ("always", 1), ("never", 0)])
def test_acks_all_waits_for_the_disk_as_it_should(value: str, synced: int) -> None:
    scene = scene_with({"durability.fsync": value})
    scene.produce(acks=-1)
    assert scene.log.flushed == synced
    scene.produce(acks=1)
    assert scene.log.flushed == synced


@shows("log.flush.offset.checkpoint.interval.ms")
def test_recovery_points_are_written_as_often_as_they_should_be() -> None:
    for settings, point in (({}, 0), ({"log.flush.offset.checkpoint.interval.ms": "1000"}, 1)):
        scene = scene_with(settings)
        scene.produce(acks=1)
        scene.advance(3000)
        assert scene.log.recovery_point.offset == point


@shows("replica.high.watermark.checkpoint.interval.ms")
def test_high_watermarks_are_written_as_often_as_they_should_be() -> None:
    for settings, is_written in (
        ({}, False),
        ({"replica.high.watermark.checkpoint.interval.ms": "1000"}, True),
    ):
        scene = scene_with(settings)
        scene.produce()
        scene.advance(2000)
        assert ("t 0 1" in read(scene, "replication-offset-checkpoint")) is is_written


def read(scene: Scene, name: str) -> str:
    disk, path = scene.node.disk, f"{scene.node.node.directory.layout.logs}/{name}"
    if disk.stat(path) is None:
        return ""
    with closing(disk.open(path)) as file:
        return file.pread(1 << 16, 0).decode()


@shows("log.retention.check.interval.ms")
def test_old_segments_are_looked_for_as_often_as_they_should_be() -> None:
    for settings, log_start in (({}, 0), ({"log.retention.check.interval.ms": "1000"}, 1)):
        scene = scene_with(settings, **{"retention.ms": "1000"})
        scene.produce()
        scene.advance(5000)
        assert scene.log.log_start == log_start


@shows("producer.id.expiration.ms")
@pytest.mark.parametrize("at_run_time", [False, True])
def test_idle_producers_are_forgotten_in_time(at_run_time: bool) -> None:
    """They are looked for every ten minutes."""
    for value, is_known in (("86400000", True), ("1000", False)):
        scene = scene_with({} if at_run_time else {"producer.id.expiration.ms": value})
        if at_run_time:
            assert scene.alter(4, "", "producer.id.expiration.ms", value) == 0
        batch = build_batch([(None, b"v", scene.now_ms)], producer_id=7, producer_epoch=0, base_sequence=0)
        assert scene.error_of(batch) == 0
        scene.advance(601_000)
        assert (7 in scene.log.producers.by_id) is is_known


# -- cleaning ------------------------------------------------------------------------------------------


@shows("log.cleaner.enable")
def test_logs_are_cleaned_unless_cleaning_is_off() -> None:
    for settings, left in (({}, 3), ({"log.cleaner.enable": "false"}, 8)):
        assert fill_with_one_key(scene_with(settings, **COMPACTED)) == left


@shows("log.cleaner.backoff.ms")
@pytest.mark.parametrize("at_run_time", [False, True])
def test_an_idle_cleaner_looks_again_when_it_should(at_run_time: bool) -> None:
    for value, left in (("15000", 8), ("1000", 3)):
        scene = scene_with({} if at_run_time else {"log.cleaner.backoff.ms": value}, **COMPACTED)
        if at_run_time:
            assert scene.alter(4, "", "log.cleaner.backoff.ms", value) == 0
            scene.advance(15_000)  # the rest that has begun goes on
        scene.produce(count=8)
        scene.advance(5000)
        assert len(scene.records()) == left


class CountingChildren:
    """Counts the rounds of cleaning, and how many run at once."""

    ROUND_MS = 100
    """Longer than it takes to begin another."""

    def __init__(self, scene: Scene) -> None:
        self._world, self._in_child = scene.node.world, scene.node.world.in_child
        self._running = 0
        self.rounds = 0
        self.at_once_max = 0
        scene.node.world.in_child = self.run  # type: ignore[method-assign]

    def run(self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        self.rounds += 1
        self._running += 1
        self.at_once_max = max(self.at_once_max, self._running)

        def finish(result: Any, error: Exception | None) -> None:
            self._running -= 1
            done(result, error)

        self._world.call_later(self.ROUND_MS, lambda: self._in_child(work, finish))


@shows("log.cleaner.threads")
@pytest.mark.parametrize("at_run_time", [False, True])
def test_as_many_logs_are_cleaned_at_once_as_may_be(at_run_time: bool) -> None:
    for value, at_once in (("1", 1), ("3", 3)):
        settings = {} if at_run_time else {"log.cleaner.threads": value}
        scene = scene_with(settings, partitions=4, **COMPACTED)
        if at_run_time:
            assert scene.alter(4, "", "log.cleaner.threads", value) == 0
        children = CountingChildren(scene)
        for number in range(4):
            scene.produce(count=8, partition=number)
        scene.advance(20_000)
        assert (children.rounds, children.at_once_max) == (4, at_once)


@shows("log.cleaner.dedupe.buffer.size")
@pytest.mark.parametrize("at_run_time", [False, True])
def test_a_cleaner_with_little_memory_needs_more_rounds(at_run_time: bool) -> None:
    name = "log.cleaner.dedupe.buffer.size"
    for value, is_one_round in (("134217728", True), ("1", False)):
        scene = scene_with({} if at_run_time else {name: value}, **COMPACTED)
        if at_run_time:
            assert scene.alter(4, "", name, value) == 0
        children = CountingChildren(scene)
        for number in range(12):
            scene.produce(b"%d" % number)
        scene.advance(20_000)
        assert (children.rounds == 1) is is_one_round


# -- the cluster ---------------------------------------------------------------------------------------


@shows("broker.heartbeat.interval.ms", "broker.session.timeout.ms")
@pytest.mark.parametrize(
    ("heartbeat_ms", "session_ms", "is_alive"),
    [(2000, 9000, True), (30_000, 9000, False), (2000, 500, False)],
)
def test_a_broker_without_a_heartbeat_in_time_is_fenced(
    heartbeat_ms: int, session_ms: int, is_alive: bool
) -> None:
    scene = scene_with(
        {"broker.heartbeat.interval.ms": str(heartbeat_ms), "broker.session.timeout.ms": str(session_ms)}
    )
    was_fenced = False
    for _ in range(200):
        scene.advance(100)
        was_fenced |= scene.node.node.context.image.brokers[1].fenced
    assert was_fenced is not is_alive


METADATA_LOG = "__cluster_metadata-0"


def metadata_files(settings: dict[str, str], *, changes: int = 60, wait_ms: int = 0) -> tuple[int, int]:
    """Segments and snapshots of the metadata log after so many changes to a topic."""
    scene = scene_with(settings)
    for number in range(changes):
        assert scene.alter(2, TOPIC, "flush.messages", str(number + 1)) == 0
        scene.advance(wait_ms)
    directory = f"{scene.node.node.directory.layout.logs}/{METADATA_LOG}"
    names = [entry.name for entry in scene.node.disk.list_dir(directory)]
    return sum(each.endswith(".log") for each in names), sum(each.endswith(".checkpoint") for each in names)


SNAPSHOT_BYTES = "metadata.log.max.record.bytes.between.snapshots"


@shows("metadata.log.segment.bytes", "metadata.log.segment.ms")
@pytest.mark.parametrize(
    "settings", [{"metadata.log.segment.bytes": "1000"}, {"metadata.log.segment.ms": "5000"}]
)
def test_the_metadata_log_goes_on_in_a_new_segment(settings: dict[str, str]) -> None:
    assert metadata_files({}, wait_ms=1000)[0] == 1
    assert metadata_files(settings, wait_ms=1000)[0] > 3


@shows(SNAPSHOT_BYTES, "metadata.log.max.snapshot.interval.ms")
@pytest.mark.parametrize(
    "settings", [{SNAPSHOT_BYTES: "1000"}, {"metadata.log.max.snapshot.interval.ms": "5000"}]
)
def test_the_metadata_log_has_its_snapshots_in_time(settings: dict[str, str]) -> None:
    assert metadata_files({}, wait_ms=1000)[1] == 1
    assert metadata_files(settings, wait_ms=1000)[1] > 3


@shows("metadata.max.retention.bytes", "metadata.max.retention.ms")
@pytest.mark.parametrize(
    "settings", [{"metadata.max.retention.bytes": "3000"}, {"metadata.max.retention.ms": "5000"}]
)
def test_old_metadata_goes(settings: dict[str, str]) -> None:
    often = {SNAPSHOT_BYTES: "1000", "metadata.log.segment.bytes": "1000"}
    segments, snapshots = metadata_files(often, wait_ms=1000)
    fewer_segments, fewer_snapshots = metadata_files({**often, **settings}, wait_ms=1000)
    assert fewer_segments < segments // 2
    assert fewer_snapshots < snapshots // 2
