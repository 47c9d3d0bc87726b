"""What a node is told before it starts, from every source, and how it refuses what is wrong."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.base.settings import BadSetting
from penstock.handlers.support.context import Endpoint
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.server.config import NodeConfig, config_from, load
from penstock.server.config_sources import NOT_SETTINGS, variable_of


def told(
    tmp_path: Path | None = None,
    *flags: str,
    toml: str | None = None,
    properties: str | None = None,
    environment: Mapping[str, str] | None = None,
    **more: Any,
) -> NodeConfig:
    file = None
    for name, text in (("penstock.toml", toml), ("server.properties", properties)):
        if text is not None:
            assert tmp_path is not None
            (tmp_path / name).write_text(text)
            file = str(tmp_path / name)
    return load(file=file, flags=flags, environment=environment or {}, **more)


def test_without_a_word_a_node_serves_this_machine_only() -> None:
    config = told()
    assert config.data == "./penstock-data"
    assert config.listeners == {"PLAINTEXT": Endpoint("127.0.0.1", 9092)}
    assert config.advertised == {}
    assert config.node_id is None
    assert config.number("num.partitions") == 3


# -- sources -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "log.retention.ms = 1000",
        '"log.retention.ms" = 1000',
        "[log]\nretention.ms = 1000",
        "[log.retention]\nms = 1000",
        "[log]\n'retention.ms' = '1000'",
        "\ufefflog.retention.ms = 1_000",
    ],
)
def test_toml_gives_kafkas_names_however_it_is_nested(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, toml=text).settings["log.retention.ms"] == "1000"


def test_toml_values_become_kafkas_text(tmp_path: Path) -> None:
    config = told(
        tmp_path,
        toml='auto.create.topics.enable = false\nlog.cleanup.policy = ["compact", "delete"]\n'
        "log.cleaner.min.cleanable.ratio = 0.25",
    )
    assert config.settings["auto.create.topics.enable"] == "false"
    assert config.settings["log.cleanup.policy"] == "compact,delete"
    assert config.settings["log.cleaner.min.cleanable.ratio"] == "0.25"


PROPERTIES = r"""
# a comment
! another
log.retention.ms=1000
num.partitions : 7
log.segment.bytes 5000
   message.max.bytes   =   99
log.cleanup.policy=compact,\
    delete
auto.create.topics.enable=tr\u0075e
broker.rack = a\=b \
num.partitions = 9
"""


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    settings = told(tmp_path, properties=PROPERTIES).settings
    assert settings["log.retention.ms"] == "1000"
    assert settings["num.partitions"] == "7"
    assert settings["log.segment.bytes"] == "5000"
    assert settings["message.max.bytes"] == "99"
    assert settings["log.cleanup.policy"] == "compact,delete"
    assert settings["auto.create.topics.enable"] == "true"
    assert settings["broker.rack"] == "a=b num.partitions = 9"


KAFKA_KRAFT = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


NOT_ACTED_ON = """
offsets.topic.compression.codec=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=10000
producer.id.expiration.check.interval.ms=600000
log.cleaner.io.buffer.size=524288
log.cleaner.io.buffer.load.factor=0.9
queued.max.request.bytes=-1
socket.connection.setup.timeout.ms=10000
socket.connection.setup.timeout.max.ms=30000
group.consumer.assignment.interval.ms=1000
group.coordinator.rebalance.protocols=classic,consumer
security.inter.broker.protocol=PLAINTEXT
"""


def test_kafkas_settings_that_change_nothing_here_are_taken_from_wherever_they_come(tmp_path: Path) -> None:
    lines = NOT_ACTED_ON.split()
    for config in (told(tmp_path, properties=NOT_ACTED_ON), told(tmp_path, *lines)):
        assert {f"{name}={text}" for name, text in config.settings.items()} >= set(lines)
        assert config.warnings == ()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("create.topic.policy.class.name", "it names a Java class"),
        ("alter.config.policy.class.name", "it names a Java class"),
        ("config.providers", "it names a Java class"),
        ("listener.name.plaintext.max.connections", "others cannot be set for a single listener yet"),
    ],
)
def test_what_would_forbid_something_is_never_left_out(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(BadSetting, match=f"unknown setting {name} .*: .*{why}"):
        told(tmp_path, properties=f"{name}=x")


def test_the_settings_that_apache_kafka_ships_are_taken(tmp_path: Path) -> None:
    """The lines of Kafka 4's own config/server.properties: one node, both roles."""
    config = told(tmp_path, properties=KAFKA_KRAFT)
    assert config.data == "/tmp/kraft-combined-logs"
    assert config.node_id == 1
    assert config.listeners == {"PLAINTEXT": Endpoint("", 9092)}
    assert config.advertised == {"PLAINTEXT": Endpoint("localhost", 9092)}
    assert config.number("num.partitions") == 1
    assert [each.partition(" ")[0] for each in config.warnings] == [
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ]
    assert config.cluster.controllers == {"CONTROLLER": Endpoint("", 9093)}
    assert config.cluster.advertised == {"CONTROLLER": Endpoint("localhost", 9093)}
    assert config.cluster.is_standalone  # its one bootstrap server is itself


def test_nodes_with_the_same_voters_are_of_one_cluster(tmp_path: Path) -> None:
    voters = ("controller.quorum.voters=2@b:2,1@a:1",)
    one = told(tmp_path, *voters, controller="127.0.0.1:1").cluster
    other = told(tmp_path, "node.id=2", "controller.quorum.voters=1@a:1,2@b:2", controller=":2").cluster
    broker = told(tmp_path, "node.id=3", "process.roles=broker", *voters).cluster
    assert one.voters == ((1, Endpoint("a", 1)), (2, Endpoint("b", 2)))
    assert one.cluster_id == other.cluster_id == broker.cluster_id is not None
    assert (one.is_standalone, broker.is_controller, broker.controllers) == (False, False, {})
    assert told(tmp_path).cluster.is_standalone


def test_a_node_of_a_cluster_says_where_other_machines_find_it(tmp_path: Path) -> None:
    """Its brokers' listener by advertised.listeners, its controllers' by that or by the list of voters."""
    everywhere = "listeners=PLAINTEXT://:9092,CONTROLLER://:9093"
    names = (everywhere, "controller.listener.names=CONTROLLER")
    found = "advertised.listeners=PLAINTEXT://a:9092"
    voters = "controller.quorum.voters=1@a:9093,2@b:9093"
    with pytest.raises(
        BadSetting, match="PLAINTEXT is at :9092, all interfaces, expected an entry in advertised"
    ):
        told(tmp_path, *names, voters)
    assert not told(tmp_path, *names, voters, found).warnings
    bootstrap = "controller.quorum.bootstrap.servers=b:9093"
    with pytest.raises(
        BadSetting, match="CONTROLLER is at :9093, all interfaces, expected an entry in advertised"
    ):
        told(tmp_path, *names, bootstrap, found)
    assert not told(tmp_path, *names, bootstrap, found + ",CONTROLLER://a:9093").warnings
    [warning] = told(tmp_path, "controller.quorum.voters=1@a:9093,2@b:9093", controller=":9093").warnings
    assert (
        warning
        == "listener PLAINTEXT is advertised to other nodes as 127.0.0.1:9092, which only this machine can reach"
    )
    here = "controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9094"
    assert not told(tmp_path, *names, here).warnings, "the others are here as well"


def test_a_controller_alone_serves_no_clients(tmp_path: Path) -> None:
    config = told(
        tmp_path,
        "process.roles=controller",
        "listeners=CONTROLLER://127.0.0.1:9093",
        "controller.listener.names=CONTROLLER",
    )
    assert config.listeners == config.doors == {}
    assert config.cluster.controllers == {"CONTROLLER": Endpoint("127.0.0.1", 9093)}


def test_a_controller_alone_tells_how_it_is_where_it_is_told_to(tmp_path: Path) -> None:
    config = told(
        tmp_path,
        "process.roles=controller",
        "listeners=CONTROLLER://127.0.0.1:9093",
        "controller.listener.names=CONTROLLER",
        "http.listener=127.0.0.1:8081",
    )
    assert config.doors == {"http": Endpoint("127.0.0.1", 8081)}


def test_every_setting_has_a_variable_of_its_own() -> None:
    variables = [variable_of(name) for name in BROKER_SETTINGS]
    assert len(set(variables)) == len(BROKER_SETTINGS)
    assert not set(variables) & NOT_SETTINGS
    config = told(environment={variable_of("log.retention.ms"): "7", "PENSTOCK_LOG": "debug", "PATH": "/bin"})
    assert config.settings["log.retention.ms"] == "7"


def test_what_kubernetes_says_about_a_service_named_penstock_is_no_setting() -> None:
    links = {
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_SERVICE_PORT": "9092",
        "PENSTOCK_SERVICE_PORT_KAFKA": "9092",
        "PENSTOCK_PORT": "tcp://10.0.0.1:9092",
        "PENSTOCK_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "PENSTOCK_PORT_9092_TCP_ADDR": "10.0.0.1",
        "PENSTOCK_0_SERVICE_HOST": "10.0.0.1",
    }
    assert not set(links) & {variable_of(name) for name in BROKER_SETTINGS}
    assert told(environment=links) == told()


def test_a_flag_beats_the_environment_and_that_beats_a_file(tmp_path: Path) -> None:
    name, said = "log.retention.ms", {}
    sources = {
        "toml": {"toml": f"{name} = 1"},
        "environment": {"environment": {variable_of(name): "2"}},
        "flags": {"flags": (f"{name}=3",)},
    }
    for count in (1, 2, 3):
        for chosen in itertools.combinations(sources, count):
            merged: dict[str, Any] = {key: value for each in chosen for key, value in sources[each].items()}
            flags = merged.pop("flags", ())
            said[chosen] = told(tmp_path, *flags, **merged).settings[name]
    assert said == {
        ("toml",): "1",
        ("environment",): "2",
        ("flags",): "3",
        ("toml", "environment"): "2",
        ("toml", "flags"): "3",
        ("environment", "flags"): "3",
        ("toml", "environment", "flags"): "3",
    }


# -- two names for one thing ---------------------------------------------------------------------------


def test_flags_for_directory_and_address_beat_what_a_file_says(tmp_path: Path) -> None:
    text = 'log.dirs = "/old"\nlisteners = "PLAINTEXT://:1234"'
    config = told(tmp_path, toml=text, data="/new", kafka="[::1]:0")
    assert (config.data, config.settings["log.dirs"]) == ("/new", "/new")
    assert config.listeners == {"PLAINTEXT": Endpoint("::1", 0)}
    assert config.settings["listeners"] == "PLAINTEXT://[::1]:0"
    assert config.bound({"PLAINTEXT": Endpoint("::1", 77)}).settings["listeners"] == "PLAINTEXT://[::1]:77"


def test_broker_id_is_another_name_of_node_id() -> None:
    assert told(None, "broker.id=4").node_id == 4
    assert told(None, "broker.id=4", "node.id=4").node_id == 4
    assert told(None, "broker.id=-1").node_id is None


def test_a_program_may_give_listeners_of_its_own() -> None:
    assert config_from("d").listeners == {"PLAINTEXT": Endpoint("127.0.0.1", 0)}
    named = {
        "listeners": "IN://127.0.0.1:0,OUT://:9",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
    }
    assert list(config_from("d", named).listeners) == ["IN", "OUT"]


# -- refusals ------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"flags": ["no.such.thing=1"]}, "unknown setting no.such.thing (--set)"),
    (
        {"flags": ["log.retention.mss=1"]},
        "unknown setting log.retention.mss (--set); did you mean log.retention.ms?",
    ),
    (
        {"flags": ["retention.ms=1"]},
        "unknown setting retention.ms (--set): it is a topic setting; the broker setting for all topics is "
        "log.retention.ms",
    ),
    (
        {"flags": ["ssl.unheard.of=x"]},
        "unknown setting ssl.unheard.of (--set): this setting of access control is not supported yet",
    ),
    ({"flags": ["log.retention.ms"]}, "--set is 'log.retention.ms', expected name=value"),
    ({"flags": ["=5"]}, "--set is '=5', expected name=value"),
    (
        {"flags": ["num.partitions=1", "num.partitions=2"]},
        "--set sets num.partitions twice, to '1' and to '2'",
    ),
    ({"flags": ["log.retention.ms=soon"]}, "log.retention.ms is 'soon', expected a number (--set)"),
    ({"flags": ["num.partitions=0"]}, "num.partitions is 0, expected 1 to 2147483647 (--set)"),
    ({"flags": ["auto.create.topics.enable=maybe"]}, "is 'maybe', expected true or false (--set)"),
    ({"flags": ["durability.fsync=often"]}, "is 'often', expected one of alone, always, never (--set)"),
    (
        {"environment": {"PENSTOCK_LOG_RETENTION_MS": "x"}},
        "log.retention.ms is 'x', expected a number (the environment's PENSTOCK_LOG_RETENTION_MS)",
    ),
    (
        {"environment": {"PENSTOCK_LOG_RETENTON_MS": "1"}},
        "the environment's PENSTOCK_LOG_RETENTON_MS is not a broker setting; did you mean "
        "PENSTOCK_LOG_RETENTION_MS?",
    ),
    ({"toml": "num.partitions = 0"}, "num.partitions is 0, expected 1 to 2147483647 (FILE)"),
    ({"toml": "num.partitions ="}, "FILE is not TOML: "),
    (
        {"toml": "num.partitions = 2026-01-01"},
        "num.partitions in FILE is datetime.date(2026, 1, 1), expected text",
    ),
    ({"toml": '"log.retention.ms" = 1\n[log]\nretention.ms = 2'}, "FILE sets log.retention.ms twice"),
    ({"properties": "\n\nnum.partitions=x"}, "num.partitions is 'x', expected a number (FILE line 3)"),
    (
        {"properties": "sasl.unheard.of=kafka"},
        "unknown setting sasl.unheard.of (FILE line 1): this setting",
    ),
    ({"toml": 'share.coordinator.threads = "x"'}, "unknown setting share.coordinator.threads (FILE)"),
    ({"file": "/no/such/file.toml"}, "cannot read /no/such/file.toml: No such file or directory"),
    ({"kafka": "9092"}, "--kafka is '9092', expected HOST:PORT, such as 127.0.0.1:9092 or :9092"),
    ({"kafka": "localhost:99999"}, "--kafka is 'localhost:99999', expected HOST:PORT"),
    ({"kafka": "::1:9092"}, "--kafka is '::1:9092', expected HOST:PORT"),
    (
        {"kafka": ":1", "flags": ["listeners=PLAINTEXT://:2"]},
        "--kafka is ':1' and listeners is 'PLAINTEXT://:2', expected only one of them",
    ),
    ({"data": "a", "flags": ["log.dirs=b"]}, "--data is 'a' and log.dirs is 'b', expected only one of them"),
    ({"data": ""}, "the data directory is empty"),
    (
        {"flags": ["log.dir=a", "log.dirs=b"]},
        "log.dir is 'a' (--set) and log.dirs is 'b' (--set), expected only one of them, or equal values",
    ),
    (
        {"flags": ["log.dirs=a,b"]},
        "log.dirs has 2 directories (--set), expected one: several are not supported yet",
    ),
    (
        {"flags": ["node.id=1"], "environment": {"PENSTOCK_BROKER_ID": "2"}},
        "node.id is 1 (--set) and broker.id is 2 (the environment's PENSTOCK_BROKER_ID), expected equal values",
    ),
    ({"flags": ["broker.id=-2"]}, "broker.id is -2 (--set), expected 0 or more"),
    (
        {"flags": ["process.roles=broker"]},
        "process.roles is broker (--set), expected controller.quorum.voters or controller.quorum.bootstrap.servers "
        "with it: a broker needs the address of a controller",
    ),
    (
        {"flags": ["process.roles=broker", "controller.quorum.voters=1@a:1"]},
        "expected only controllers there",
    ),
    (
        {"flags": ["process.roles=broker", "controller.quorum.voters=2@a:1"], "controller": ":9"},
        "process.roles is 'broker' (--set), expected no controller listener (CONTROLLER)",
    ),
    (
        {
            "flags": [
                "process.roles=broker",
                "controller.quorum.bootstrap.servers=a:1",
                "controller.quorum.auto.join.enable=true",
            ]
        },
        "controller.quorum.auto.join.enable is true (--set) and process.roles is 'broker', expected it only on "
        "controllers",
    ),
    (
        {"flags": ["controller.quorum.voters=1@a:1,2@b:1"]},
        "the quorum has other nodes, which must reach this one: expected --controller HOST:PORT",
    ),
    (
        {"flags": ["controller.quorum.bootstrap.servers=a:9093"]},
        "the quorum has other nodes, which must reach this one: expected --controller HOST:PORT",
    ),
    (
        {"flags": ["controller.quorum.voters=2@a:1"]},
        "controller.quorum.voters is '2@a:1' (--set), expected it to contain node 1, which is a controller",
    ),
    ({"flags": ["controller.quorum.voters=1@a:1,1@b:1"]}, "has voter 1 twice"),
    ({"flags": ["controller.quorum.voters=one@a:1"]}, "has 'one@a:1', expected ID@HOST:PORT"),
    (
        {"flags": ["controller.quorum.voters=1@:1"]},
        "has '1@:1', expected a host and a port that others can reach",
    ),
    ({"flags": ["controller.quorum.bootstrap.servers=a:1,b:1"]}, "which must reach this one"),
    (
        {"flags": ["cluster.id=nonsense"]},
        "cluster.id is 'nonsense' (--set), expected 22 characters of URL-safe base64",
    ),
    (
        {"flags": ["process.roles=controller"], "controller": ":9", "line": ":1"},
        "line.listener is ':1', expected off: a node that is only a controller serves no clients",
    ),
    (
        {"data": "a", "flags": ["metadata.log.dir=b"]},
        "metadata.log.dir is 'b' (--set), expected 'a': a separate directory",
    ),
    ({"flags": ["listeners="]}, "listeners (--set) is '', expected 1 to 64 entries NAME://HOST:PORT"),
    ({"flags": ["listeners=:9092"]}, "listeners (--set) has ':9092', expected NAME://HOST:PORT"),
    ({"flags": ["listeners=PLAINTEXT://:1,plaintext://:2"]}, "listeners (--set) has PLAINTEXT twice"),
    (
        {"flags": ["listeners=A://:1,B://:1"]},
        "listeners (--set) has :1 twice",
    ),
    (
        {"flags": ["listeners=MINE://:1"]},
        "listener MINE has no protocol (--set), expected an entry in listener.security.protocol.map",
    ),
    (
        {"flags": ["listeners=SASL_SSL://:1"]},
        "the listener SASL_SSL has no certificate, expected ssl.keystore.location, or ssl.keystore.key and",
    ),
    (
        {"flags": ["listeners=PLAINTEXT://:1", "listener.security.protocol.map=PLAINTEXT:SASL"]},
        "listener.security.protocol.map has 'PLAINTEXT:SASL' (--set), expected NAME:PROTOCOL with one of",
    ),
    (
        {"flags": ["listeners=PLAINTEXT://:1", "controller.listener.names=PLAINTEXT"]},
        "listeners is 'PLAINTEXT://:1' (--set), expected at least one that is not in controller.listener.names",
    ),
    (
        {"flags": ["listeners=PLAINTEXT://:1", "inter.broker.listener.name=OTHER"]},
        "inter.broker.listener.name is 'OTHER' (--set), expected one of PLAINTEXT",
    ),
    (
        {"flags": ["advertised.listeners=OTHER://a:1"]},
        "advertised.listeners has OTHER (--set), expected one of the listeners PLAINTEXT",
    ),
    (
        {"flags": ["advertised.listeners=PLAINTEXT://0.0.0.0:1"]},
        "advertised.listeners has PLAINTEXT://0.0.0.0:1 (--set), expected a host and a port that clients can reach",
    ),
    (
        {"flags": ["advertised.listeners=PLAINTEXT://a:0"]},
        "expected a host and a port that clients can reach",
    ),
]


@pytest.mark.parametrize(("given", "sentence"), REFUSED)
def test_what_is_wrong_is_refused_in_one_sentence(
    tmp_path: Path, given: dict[str, Any], sentence: str
) -> None:
    given = dict(given)
    flags = given.pop("flags", ())
    with pytest.raises(BadSetting) as caught:
        load(flags=flags, environment={}, **given) if "file" in given else told(tmp_path, *flags, **given)
    said = str(caught.value)
    for name in ("penstock.toml", "server.properties"):
        said = said.replace(str(tmp_path / name), "FILE")
    assert sentence in said
    assert "\n" not in said


def test_a_file_that_is_no_file_of_settings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(BadSetting, match="is larger than"):
        load(file=str(tmp_path / "big.toml"), environment={})
    (tmp_path / "binary.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(BadSetting, match="is not UTF-8 text"):
        load(file=str(tmp_path / "binary.toml"), environment={})
    with pytest.raises(BadSetting, match="Is a directory"):
        load(file=str(tmp_path), environment={})
