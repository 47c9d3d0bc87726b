"""`penstock search`: through a node, on a directory, with log-ins and TLS, and its errors."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.cli.conftest import Command
from tests.cli.test_main import PENSTOCK
from tests.gateway.http.rest import producer, write

from penstock.server.ports import hold_port
from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("cli-search")
"""One broker serves them all."""

START_MS = 1_767_225_600_000
"""2026-01-01."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(http=True, data=tmp_path_factory.mktemp("data")) as started:
        started.create_topic("orders", 2)
        for number in range(2):
            write(
                started,
                "orders",
                [b'{"n": %d, "p": %d}' % (each, number) for each in range(50)],
                partition=number,
                key=b"\xffkey",
                headers=[("trace", b"t")],
                timestamps=[START_MS + each * 60_000 for each in range(50)],
            )
        client = producer(started, **{"transactional.id": "search"})
        client.init_transactions()
        client.begin_transaction()
        client.produce("orders", b'{"n": "aborted"}', partition=0)
        client.flush()
        client.abort_transaction()
        yield started


@pytest.fixture(params=["node", "directory"])
def search(request: pytest.FixtureRequest, penstock: Command, broker: Broker) -> Command:
    """The same searches both ways."""
    where = ("--http", broker.http_url) if request.param == "node" else ("--path", str(broker.data))
    return lambda *arguments: penstock("search", "orders", *arguments, *where)


def test_matches_are_printed_newest_first(search: Command) -> None:
    found = search("--contains", '"n": 7,')
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines() == [
        f'orders-{number}:7 2026-01-01 00:07:00.000Z \\xffkey {{"n": 7, "p": {number}}} [trace=t]'
        for number in (0, 1)
    ]
    rows = search("--regex", '"n": 4[0-9]', "--partition", 1, "--json").json_lines()
    assert [each["offset"] for each in rows] == list(range(49, 39, -1))
    assert rows[0]["keyBase64"] == "/2tleQ=="
    assert rows[0]["value"] == '{"n": 49, "p": 1}'
    rows = search("--where", "value.n == 3 && partition == 1", "--format", "%p:%o")
    assert rows.out.split() == ["1:3"]
    assert search(
        "--contains-hex", b"\xffkey".hex(), "--in", "key", "--to", 1, "--format", "%o"
    ).out.split() == ["0", "0"]


def test_ranges_of_offsets_and_times(search: Command) -> None:
    assert search("-c", "n", "-p", 0, "--from", 10, "--to", 12, "--format", "%o").out.split() == ["11", "10"]
    times = ("--from", "2026-01-01T00:20:00Z", "--to", f"@{START_MS + 22 * 60_000}")
    assert search("-c", "n", "-p", 0, *times, "--format", "%o").out.split() == ["21", "20"]
    assert search("-c", "n", "--from", "-1h").out == ""


def test_aborted_records_are_found_only_on_request(search: Command) -> None:
    assert search("-c", "aborted").out == ""
    assert "aborted" in search("-c", "aborted", "--isolation", "uncommitted").out


def test_what_a_user_should_know_is_on_standard_error(search: Command) -> None:
    limited = search("-c", "n", "--limit", 2)
    assert (limited.code, limited.out.count("\n")) == (0, 2)
    assert limited.err == "penstock: stopped after 2 results; --limit allows more\n"
    failed = search("--where", "value.m == 1")
    assert (failed.code, failed.out) == (0, "")
    assert re.fullmatch(r'penstock: --where had no result for 100 records: .*"m".*\n', failed.err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to search for"),
        (("--regex", "("), "missing )"),
        (("--where", "value.n ="), "where is not a CEL expression"),
        (("--contains-hex", "xy"), "expected pairs of hexadecimal digits"),
        (("-c", "x", "--contains-hex", "00"), "expected one of them"),
        (("-c", "x", "--in", "nowhere"), "expected one of any, key, value, headers"),
        (("-c", "x", "--from", "latest"), "expected an offset from 0 on"),
        (("-c", "x", "--from", "-5"), "expected an offset from 0 on"),
        (("-c", "x", "--from", "soon"), "is not a position in a log"),
        (("-c", "x", "--partition", 7), "partition"),
    ],
)
def test_bad_input_is_one_sentence(search: Command, arguments: tuple[str, ...], words: str) -> None:
    refused = search(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert words in refused.err
    assert refused.err.count("\n") == 1


def test_a_topic_node_or_directory_that_is_not_there_is_one_sentence(
    penstock: Command, broker: Broker, tmp_path: Path
) -> None:
    with hold_port() as held:  # and nothing listens there
        address = f"127.0.0.1:{held.getsockname()[1]}"
        refused = penstock("search", "orders", "-c", "x", "--http", address)
        assert refused.err.startswith(f"penstock: cannot search through {address}: Connection refused; ")
    for arguments in (("--http", "nowhere"), ("--path", tmp_path / "none"), ("--path", tmp_path)):
        refused = penstock("search", "orders", "-c", "x", *arguments)
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
    for where in (("--http", broker.http_url), ("--path", broker.data)):
        refused = penstock("search", "none", "-c", "x", *where)
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err


def test_a_damaged_part_is_named_and_the_exit_code_is_1(penstock: Command, tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        broker.create_topic("orders", segment_bytes=1000)
        for each in range(20):
            write(broker, "orders", [b"needle %d " % each * 10])
    first = min(tmp_path.glob("logs/orders-0/*.log"))
    raw = bytearray(first.read_bytes())
    raw[raw.index(b"needle 1")] = ord("N")
    first.write_bytes(raw)
    found = penstock("search", "orders", "-c", "eedle", "--path", tmp_path)
    assert found.code == 1
    assert "needle 19" in found.out
    assert found.err.startswith("penstock: partition 0 was not searched completely: ")


def test_log_in_and_tls_come_from_the_client_config(penstock: Command, tmp_path: Path) -> None:
    authority = trustme.CA()
    store, trusted = tmp_path / "node.pem", tmp_path / "ca.pem"
    store.write_bytes(authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    authority.cert_pem.write_to_path(str(trusted))
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "http.security.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.http.plain.sasl.jaas.config": f'{plain} user_alice="secret";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    config = tmp_path / "client.properties"
    lines = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "ssl.truststore.type=PEM"]
    lines += [f"ssl.truststore.location={trusted}", "sasl.username=alice", "sasl.password=secret"]
    config.write_text("\n".join(lines))
    with Broker(http=True, settings=settings) as broker:
        broker.create_topic("orders")
        write(broker, "orders", [b"needle"])
        address = broker.http_url.removeprefix("http://").removeprefix("https://")
        found = penstock("search", "orders", "-c", "needle", "--http", address, "--client-config", config)
        assert (found.code, found.out.count("needle")) == (0, 1), found.err
        config.write_text(config.read_text().replace("sasl.password=secret", "sasl.password=wrong"))
        refused = penstock("search", "orders", "-c", "needle", "--http", address, "--client-config", config)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        refused = penstock("search", "orders", "-c", "needle", "--http", f"https://{address}")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "certificate" in refused.err


def test_the_reader_of_a_pipe_may_leave(broker: Broker) -> None:
    command = shlex.join([*PENSTOCK, "search", "orders", "-c", "n", "--http", broker.http_url, "--json"])
    done = subprocess.run(
        ["sh", "-c", f"{command} | head -1"], capture_output=True, text=True, timeout=60, check=False
    )
    assert json.loads(done.stdout)["topic"] == "orders"
    assert "Traceback" not in done.stderr
