"""The audit of a node: its file and its topic, and what clients do at the Kafka port."""

import json
import logging
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.nodes import StillClient, StillNode
from tests.server.test_sasl import SECURED, authenticate, handshake, logged_in, set_password
from tests.wire_requests import fetch_body, produce_body
from tests.worlds import StillWorld

from penstock.base.metrics import AuditMeter
from penstock.base.settings import BadSetting
from penstock.metadata.config_table import STANDARD_AUTHORIZER
from penstock.records import build_batch, iter_batches
from penstock.security.audit import WINDOW_MS
from penstock.server.audit_file import FILES_KEPT, WAITING_BYTES_MAX, AuditFile
from penstock.server.config import config_from
from penstock.vfs import FaultyDisk, MemoryDisk
from penstock.vfs.files import read_file
from penstock.wire import Api, request_module

FILE = "/data/audit.json"
AUDITED = {
    **SECURED,
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "audit.log": "denied",
    "audit.file": FILE,
}


def node(**more: str) -> StillNode:
    return StillNode(settings={**AUDITED, **{name.replace("_", "."): value for name, value in more.items()}})


def lines(made: StillNode, event: str | None = None) -> list[dict[str, Any]]:
    made.world.advance(20)
    found = [json.loads(each) for each in read_file(made.disk, FILE).splitlines()]
    return [each for each in found if event in (None, each["event"])]


def the_fields(line: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in names)


def allow_alice(made: StillNode, operation: int = 3) -> None:
    module = request_module(Api.CREATE_ACLS, 3)
    acl = module.AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=operation,
        permission_type=3,
    )
    reply = made.client().call(Api.CREATE_ACLS, 3, creations=(acl,))
    assert not reply.results[0].error_code


# -- what clients do -----------------------------------------------------------------------------------


def test_a_failed_log_in_a_log_in_and_a_denied_operation_are_recorded() -> None:
    made = node()
    made.create_topic("orders")
    wrong = made.client("OUTSIDE")
    handshake(wrong)
    authenticate(wrong, b"\0alice\0wrong")
    client = logged_in(made)
    module = request_module(Api.LIST_OFFSETS, 6)
    topic = module.ListOffsetsTopic(name="orders", partitions=())
    client.call(Api.LIST_OFFSETS, 6, replica_id=-1, isolation_level=0, topics=(topic,))
    failed, good, denied = lines(made)
    assert the_fields(
        failed, "event", "listener", "client", "principal", "operation", "result", "reason"
    ) == (
        "login",
        "OUTSIDE",
        "10.0.0.1",
        "User:alice",
        "PLAIN",
        "denied",
        "unknown user or wrong password",
    )
    assert the_fields(good, "event", "principal", "result") == ("login", "User:alice", "allowed")
    assert the_fields(denied, "request", "client_id", "operation", "resource_type", "resource_name") == (
        "ListOffsets",
        "test",
        "Describe",
        "Topic",
        "orders",
    )
    assert denied["result"] == "denied"
    assert "allow.everyone.if.no.acl.found is false" in denied["reason"]


def test_what_a_client_did_not_name_is_not_denied_to_it() -> None:
    """Lists leave out what may not be described."""
    made = node()
    for number in range(10):
        made.create_topic(f"topic-{number}")
    client = logged_in(made)
    client.call(
        Api.METADATA,
        12,
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    client.call(Api.LIST_GROUPS, 4, states_filter=())
    assert not lines(made, "operation")


def test_produce_and_fetch_are_recorded_by_their_names() -> None:
    made = node(audit_log="all")
    made.create_topic("orders")
    client = logged_in(made)
    client.send(Api.FETCH, 11, fetch_body(11, [("orders", [(0, 0)])]))
    client.wait()
    for each in (client, made.client()):
        produce(each, "orders")
    found = [
        the_fields(each, "principal", "client_id", "request", "operation", "resource_name", "result")
        for each in lines(made, "operation")
        if each["request"] != "CreateTopics"
    ]
    assert found == [
        ("User:alice", "test", "Fetch", "Read", "orders", "denied"),
        ("User:alice", "test", "Produce", "Write", "orders", "denied"),
        ("User:ANONYMOUS", "test", "Produce", "Write", "orders", "allowed"),
    ]


def produce(client: StillClient, topic: str) -> Any:
    """The error code."""
    batch = build_batch([(None, b"value", client.node.world.now_ms())])
    client.send(Api.PRODUCE, 12, produce_body(12, [(topic, [(0, batch)])], -1))
    return client.wait().responses[0].partition_responses[0].error_code


# -- changes -------------------------------------------------------------------------------------------


def test_changes_of_acls_are_recorded_with_the_acl() -> None:
    made = node()
    allow_alice(made)
    module = request_module(Api.DELETE_ACLS, 3)
    every = module.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    made.client().call(Api.DELETE_ACLS, 3, filters=(every,))
    created, deleted = lines(made, "change")
    acl = "ALLOW READ on TOPIC orders for User:alice from *"
    assert the_fields(created, "operation", "resource_type", "resource_name", "result", "change") == (
        "CreateAcl",
        "Topic",
        "orders",
        "done",
        {"new": acl},
    )
    assert the_fields(deleted, "operation", "request", "change") == ("DeleteAcl", "DeleteAcls", {"old": acl})


def test_changes_of_quotas_are_recorded_with_both_limits() -> None:
    made = node()
    module = request_module(Api.ALTER_CLIENT_QUOTAS, 1)
    for value in (5.0, 9.0, 9.0, -1.0):
        entry = module.EntryData(
            entity=(module.EntityData(entity_type="user", entity_name=None),),
            ops=(module.OpData(key="producer_byte_rate", value=value, remove=False),),
        )
        made.client().call(Api.ALTER_CLIENT_QUOTAS, 1, entries=(entry,), validate_only=False)
    assert [the_fields(each, "operation", "resource_name", "change") for each in lines(made, "change")] == [
        ("AlterQuota", "default user", {"name": "producer_byte_rate", "old": None, "new": 5.0}),
        ("AlterQuota", "default user", {"name": "producer_byte_rate", "old": 5.0, "new": 9.0}),
    ]


def test_changes_of_users_are_recorded_without_their_passwords() -> None:
    made = node()
    for password in ("first-planted", "second-planted"):
        set_password(made, "carol", password)
    module = request_module(Api.ALTER_USER_SCRAM_CREDENTIALS, 0)
    made.client().call(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=(module.ScramCredentialDeletion(name="carol", mechanism=1),),
        upsertions=(),
    )
    found = lines(made, "change")
    assert [each["operation"] for each in found] == [
        "CreateUserCredential",
        "ChangeUserCredential",
        "DeleteUserCredential",
    ]
    assert found[0]["change"] == {"iterations": 4096, "mechanism": "SCRAM-SHA-256"}
    assert b"planted" not in read_file(made.disk, FILE)


def test_changes_of_settings_have_the_old_and_the_new_value() -> None:
    made = node()
    made.create_topic("orders", retention_ms="1000")
    module = request_module(Api.INCREMENTAL_ALTER_CONFIGS, 1)

    def alter(kind: int, resource: str, name: str, value: str | None, *, validate_only: bool = False) -> int:
        config = module.AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
        row = module.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=(config,))
        reply = made.client().call(
            Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=(row,), validate_only=validate_only
        )
        return int(reply.responses[0].error_code)

    assert not alter(2, "orders", "retention.ms", "2000")
    assert not alter(2, "orders", "retention.ms", "3000", validate_only=True)
    assert alter(2, "orders", "retention.ms", "many"), "refused, and so no change"
    assert not alter(2, "orders", "retention.ms", None)
    assert not alter(4, "", "scram.unknown.users.secret", "planted-secret")
    found = [the_fields(each, "resource_type", "resource_name", "change") for each in lines(made, "change")]
    assert found == [
        ("Topic", "orders", {"name": "retention.ms", "old": "1000", "new": "2000"}),
        ("Topic", "orders", {"name": "retention.ms", "old": "2000", "new": None}),
        ("Broker", "", {"name": "scram.unknown.users.secret", "new": "(hidden)"}),
    ]


def test_changes_of_tokens_are_recorded_without_their_keys() -> None:
    made = node(delegation_token_secret_key="a-secret")
    client = logged_in(made)
    token = client.call(
        Api.CREATE_DELEGATION_TOKEN,
        3,
        owner_principal_type=None,
        owner_principal_name=None,
        renewers=(),
        max_lifetime=-1,
    )
    assert not token.error_code
    client.call(Api.EXPIRE_DELEGATION_TOKEN, 2, hmac=token.hmac, expiry_time_period=-1)
    created, expired = lines(made, "change")
    assert the_fields(created, "operation", "principal", "resource_name") == (
        "CreateToken",
        "User:alice",
        token.token_id,
    )
    assert created["change"]["owner"] == "User:alice"
    assert the_fields(expired, "operation", "resource_name") == ("ExpireToken", token.token_id)
    written = read_file(made.disk, FILE)
    assert token.hmac not in written
    assert token.hmac.hex().encode() not in written


# -- where lines go ------------------------------------------------------------------------------------


def test_without_a_file_lines_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    settings = {name: value for name, value in AUDITED.items() if name != "audit.file"}
    made = StillNode(settings=settings)
    with caplog.at_level(logging.INFO, "penstock.audit"):
        logged_in(made)
        made.world.advance(10)
    [line] = [json.loads(each.getMessage()) for each in caplog.records if each.name == "penstock.audit"]
    assert line["principal"] == "User:alice"


def test_a_node_without_an_audit_has_none_and_does_not_load_it() -> None:
    made = StillNode(settings=SECURED)
    assert made.node.context.audit is None
    assert made.node.context.metrics.audit is None


def test_repetitions_are_written_when_the_node_stops() -> None:
    made = node()
    for _ in range(5):
        logged_in(made)
    made.stop()
    assert [each["count"] for each in lines(made)] == [1, 4]


def test_a_file_that_cannot_be_written_stops_the_start() -> None:
    with pytest.raises(BadSetting, match=r"audit\.file is '/no/such/directory/audit\.json', expected a file"):
        node(audit_file="/no/such/directory/audit.json")


def test_a_topic_without_an_audit_is_warned_of() -> None:
    assert (
        "audit.topic (settings) has no effect: audit.log is off"
        in config_from("/data", {"audit.topic": "t"}).warnings
    )


class Written:
    def __init__(self, bytes_max: int = 1 << 20, disk: Any = None) -> None:
        self.world, self.meter = StillWorld(), AuditMeter()
        self.disk = disk or MemoryDisk()
        self.disk.make_dirs("/logs")
        self.file = AuditFile(self.world, self.disk, "/logs/audit", bytes_max, self.meter)


def test_a_full_file_is_renamed_and_the_oldest_goes() -> None:
    made = Written(bytes_max=100)
    for number in range(30):
        made.file([f"{number:02}" + "x" * 50])
        made.world.advance(10)
    names = [each.name for each in made.disk.list_dir("/logs")]
    assert names == sorted(["audit", *(f"audit.{number}" for number in range(1, FILES_KEPT + 1))])
    assert read_file(made.disk, "/logs/audit").startswith(b"29")
    assert read_file(made.disk, "/logs/audit.1").startswith(b"28")


def test_while_the_disk_is_slow_lines_wait_in_bounded_memory() -> None:
    made = Written(bytes_max=1 << 30)
    made.world.beside_ms = 10_000
    line = "x" * 9_999
    for _ in range(1000):
        made.file([line])
    assert made.meter.dropped["file"] == 1000 - 1 - WAITING_BYTES_MAX // 10_000
    made.world.advance(30_000)
    assert made.disk.stat("/logs/audit").size == (1 + WAITING_BYTES_MAX // 10_000) * 10_000


def test_a_disk_that_is_full_in_the_middle_of_a_line_spoils_no_other_line() -> None:
    disk = FaultyDisk(MemoryDisk())
    made = Written(disk=disk)
    made.file(["one"])
    made.world.advance(10)
    disk.capacity = disk.used + 3
    made.file(["twotwotwo"])
    made.world.advance(10)
    disk.capacity = None
    made.file(["three"])
    made.world.advance(10)
    assert read_file(disk, "/logs/audit") == b"one\nthree\n"
    assert made.meter.dropped["file"] == 1


def test_lines_that_the_disk_does_not_take_are_counted_and_the_next_are_written() -> None:
    disk = FaultyDisk(MemoryDisk())
    made = Written(disk=disk)
    disk.fail("write", path="/logs/audit")
    made.file(["one", "two"])
    made.world.advance(10)
    assert made.meter.dropped["file"] == 2
    disk.clear()
    made.file(["three"])
    made.world.advance(10)
    assert read_file(disk, "/logs/audit") == b"three\n"


# -- the topic -----------------------------------------------------------------------------------------


def records_of(made: StillNode, topic: str) -> list[dict[str, Any]]:
    partition = made.node.context.replicas.led(topic, 0)
    assert partition is not None
    data = partition.log.reader.read(0, 1 << 20)
    return [
        json.loads(record.value or b"")
        for batch in iter_batches(memoryview(data))
        for record in batch.records()
    ]


def test_the_topic_has_the_lines_too_and_is_created() -> None:
    made = node(audit_topic="audit", audit_log="all")
    logged_in(made)
    made.world.advance(1000)
    allow_alice(made)
    made.world.advance(WINDOW_MS)
    assert records_of(made, "audit") == lines(made)
    assert made.node.context.metrics.audit.dropped == {"queue": 0, "file": 0, "topic": 0}


def test_clients_cannot_write_to_the_topic() -> None:
    made = node(audit_topic="audit")
    logged_in(made)
    made.world.advance(1000)
    assert produce(made.client(), "audit") is ErrorCode.invalid_topic_exception
