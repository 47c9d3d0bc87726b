"""kcat, the command line client on librdkafka; skipped where it is not installed."""

import json
import shutil
import subprocess

import pytest
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import CODECS, SECONDS_MAX, Record
from tests.compat.clients.servers import Server

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


@pytest.fixture
def confluent(server: Server) -> ConfluentDriver:
    return ConfluentDriver(server.bootstrap)


def kcat(server: Server, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["kcat", "-b", server.bootstrap, *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_lines_go_in_and_come_out(server: Server, confluent: ConfluentDriver, name: str, codec: str) -> None:
    confluent.create_topic(name)
    lines = [f"k{number}:value {number}" for number in range(100)]
    kcat(server, "-P", "-t", name, "-K", ":", "-z", codec, "-X", "acks=all", text="\n".join(lines) + "\n")
    out = kcat(server, "-C", "-t", name, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert out.splitlines() == lines


def test_an_idempotent_producer_headers_and_tombstones(
    server: Server, confluent: ConfluentDriver, name: str
) -> None:
    confluent.create_topic(name)
    kcat(
        server,
        *("-P", "-t", name, "-K", ":", "-Z", "-H", "a=1", "-H", "a=2", "-X", "enable.idempotence=true"),
        text="k:v\ngone:\n",
    )
    out = kcat(server, "-C", "-t", name, "-p", "0", "-o", "0", "-e", "-q", "-J")
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["key"], first["payload"], first["headers"]) == ("k", "v", ["a", "1", "a", "2"])
    assert (second["key"], second["payload"]) == ("gone", None)


def test_reading_from_an_offset_from_the_end_and_from_a_time(
    server: Server, confluent: ConfluentDriver, name: str
) -> None:
    confluent.create_topic(name)
    confluent.produce(
        name, [Record(b"%d" % each, timestamp_ms=1_600_000_000_000 + each) for each in range(10)]
    )

    def values(start: str) -> list[str]:
        return kcat(server, "-C", "-t", name, "-p", "0", "-o", start, "-e", "-q").split()

    assert values("7") == ["7", "8", "9"]
    assert values("-2") == ["8", "9"]
    assert values("s@1600000000005") == ["5", "6", "7", "8", "9"]
    assert kcat(server, "-Q", "-t", f"{name}:0:1600000000004").strip() == f"{name} [0] offset 4"


def test_metadata_is_listed(server: Server, confluent: ConfluentDriver, name: str) -> None:
    confluent.create_topic(name, partitions=2)
    listing = json.loads(kcat(server, "-L", "-J", "-t", name))
    [broker] = listing["brokers"]
    assert broker["name"] == server.bootstrap
    [topic] = listing["topics"]
    assert [each["partition"] for each in topic["partitions"]] == [0, 1]
