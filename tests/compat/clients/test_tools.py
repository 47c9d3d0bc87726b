"""Apache Kafka's own command line tools, from its jars, on Penstock. Each start is a JVM: few tests, each whole."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramMechanism
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import Record, read
from tests.compat.clients.servers import Server
from tests.compat.kafka.peer import KafkaError, KafkaPeer

pytestmark = pytest.mark.kafka

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
}


@pytest.fixture
def confluent(server: Server) -> ConfluentDriver:
    return ConfluentDriver(server.bootstrap)


@pytest.fixture
def tool(kafka: KafkaPeer, server: Server):  # type: ignore[no-untyped-def]
    def run(name: str, *arguments: str, bootstrap: str = "--bootstrap-server") -> str:
        return kafka.java(TOOLS[name], *([bootstrap, server.bootstrap] if bootstrap else []), *arguments)

    return run


def test_kafka_topics_creates_describes_and_deletes(tool, confluent: ConfluentDriver, name: str) -> None:  # type: ignore[no-untyped-def]
    tool("topics", "--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=1000")
    described = tool("topics", "--describe", "--topic", name)
    assert re.search(
        rf"Topic: {name}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 1", described
    )
    assert "retention.ms=1000" in described
    assert len(re.findall(r"Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    tool("topics", "--delete", "--topic", name)
    assert name not in confluent.topics()


@pytest.mark.long
def test_kafka_topics_lists_alters_and_tells_what_is_wrong(
    tool, confluent: ConfluentDriver, name: str
) -> None:  # type: ignore[no-untyped-def]
    confluent.create_topic(name)
    assert name in tool("topics", "--list").split()
    tool("topics", "--alter", "--topic", name, "--partitions", "3")
    assert confluent.partition_count(name) == 3
    with pytest.raises(KafkaError, match=r"[Rr]eplication factor"):
        tool("topics", "--create", "--topic", f"{name}-more", "--replication-factor", "3")


def test_kafka_configs_describes_and_alters(tool, confluent: ConfluentDriver, name: str) -> None:  # type: ignore[no-untyped-def]
    confluent.create_topic(name)
    entity = ("--entity-type", "topics", "--entity-name", name)
    tool(
        "configs",
        *entity,
        "--alter",
        "--add-config",
        "max.message.bytes=5000,cleanup.policy=[compact,delete]",
    )
    described = tool("configs", *entity, "--describe")
    assert "max.message.bytes=5000" in described
    assert "cleanup.policy=compact,delete" in described


def test_kafka_configs_makes_and_removes_scram_users(tool, server: Server) -> None:  # type: ignore[no-untyped-def]
    entity = ("--entity-type", "users", "--entity-name", "alice")
    done = tool(
        "configs", *entity, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=s3cret]"
    )
    assert "Completed updating config for user alice" in done
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    described = admin.describe_user_scram_credentials(["alice"])["alice"].result(20)
    [info] = described.scram_credential_infos
    assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    tool("configs", *entity, "--alter", "--delete-config", "SCRAM-SHA-256")
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["alice"])["alice"].result(20)


@pytest.mark.long
def test_kafka_configs_takes_settings_away_and_describes_brokers(  # type: ignore[no-untyped-def]
    tool, confluent: ConfluentDriver, name: str
) -> None:
    confluent.create_topic(name, configs={"max.message.bytes": "5000"})
    entity = ("--entity-type", "topics", "--entity-name", name)
    tool("configs", *entity, "--alter", "--delete-config", "max.message.bytes")
    assert confluent.describe_configs(name)["max.message.bytes"] == "1048588"
    brokers = tool("configs", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    assert "num.partitions=3" in brokers


def test_the_console_producer_and_consumer_pass_lines_on(  # type: ignore[no-untyped-def]
    kafka: KafkaPeer, tool, server: Server, confluent: ConfluentDriver, name: str
) -> None:
    confluent.create_topic(name)
    lines = [f"key{number}\tvalue {number}" for number in range(20)]
    done = subprocess.run(
        [
            *("java", "-cp", f"{kafka.jar_dir}/*", TOOLS["console-producer"], "--topic", name),
            *("--bootstrap-server", server.bootstrap, "--reader-property", "parse.key=true"),
            *("--compression-codec", "zstd"),
        ],
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [(each.key, each.value) for each in read(confluent, name, 20)] == [
        tuple(line.encode().split(b"\t")) for line in lines
    ]
    out = tool(
        "console-consumer",
        *("--topic", name, "--partition", "0", "--offset", "5", "--max-messages", "15"),
        *("--formatter-property", "print.key=true", "--timeout-ms", "20000"),
    )
    assert out.splitlines() == lines[5:]


def test_kafka_get_offsets_and_delete_records_agree(  # type: ignore[no-untyped-def]
    tool, confluent: ConfluentDriver, name: str, tmp_path: Path
) -> None:
    confluent.create_topic(name, partitions=2)
    times = range(1_600_000_000_000, 1_600_000_000_020)
    confluent.produce(name, [Record(b"v", partition=each % 2, timestamp_ms=each) for each in times])
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 4}], "version": 1})
    )
    assert "low_watermark: 4" in tool("delete-records", "--offset-json-file", str(wanted))
    assert tool("get-offsets", "--topic", name).split() == [f"{name}:0:10", f"{name}:1:10"]


@pytest.mark.long
@pytest.mark.parametrize(("asked", "offset"), [("earliest", 0), ("max-timestamp", 9), ("1600000000004", 4)])
def test_kafka_get_offsets_asks_by_time(  # type: ignore[no-untyped-def]
    tool, confluent: ConfluentDriver, name: str, asked: str, offset: int
) -> None:
    confluent.create_topic(name)
    confluent.produce(name, [Record(b"v", timestamp_ms=1_600_000_000_000 + each) for each in range(10)])
    assert tool("get-offsets", "--topic", name, "--time", asked).split() == [f"{name}:0:{offset}"]


def test_the_tools_that_look_at_the_cluster_understand_it(  # type: ignore[no-untyped-def]
    tool, confluent: ConfluentDriver, server: Server, name: str
) -> None:  # type: ignore[no-untyped-def]
    confluent.create_topic(name)
    confluent.produce(name, [Record(b"x" * 500)])
    [broker] = confluent.brokers()

    quorum = tool("metadata-quorum", "describe", "--status")
    assert re.search(rf"LeaderId:\s+{broker}\b", quorum)
    assert re.search(r"MaxFollowerLag:\s+0\b", quorum)
    replication = tool("metadata-quorum", "describe", "--replication")
    assert re.search(rf"^{broker}\s.*Leader", replication, re.MULTILINE)

    features = tool("features", "describe")
    assert re.search(
        r"Feature: metadata.version\s+SupportedMinVersion: \S+\s+SupportedMaxVersion: \S+", features
    )

    sizes = json.loads(tool("log-dirs", "--describe", "--topic-list", name).splitlines()[-1])
    [directory] = sizes["brokers"][0]["logDirs"]
    assert directory["partitions"][0]["partition"] == f"{name}-0"
    assert directory["partitions"][0]["size"] > 500

    versions = tool("broker-api-versions")
    assert re.search(r"Produce\(0\): 0 to \d+ \[usable: \d+\]", versions)
    assert re.search(r"Fetch\(1\): 4 to \d+ \[usable: \d+\]", versions)

    assert "Cluster ID: " in tool(
        "cluster", "cluster-id", "--bootstrap-server", server.bootstrap, bootstrap=""
    )


def test_kafkas_own_producer_writes_without_loss(  # type: ignore[no-untyped-def]
    tool, confluent: ConfluentDriver, server: Server, name: str
) -> None:
    """Its defaults: idempotent, acks=all, five requests in flight."""
    confluent.create_topic(name, partitions=3)
    out = tool(
        "producer-perf-test",
        *("--topic", name, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", f"bootstrap.servers={server.bootstrap}"),
        bootstrap="",
    )
    assert "20000 records sent" in out
    assert sum(confluent.watermarks(name, each)[1] for each in range(3)) == 20_000
