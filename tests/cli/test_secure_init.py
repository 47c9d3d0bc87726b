"""`penstock secure init`: the files that it makes, and that nodes and Kafka's settings understand them."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from tests.cli.conftest import Command

from penstock.base.properties import parse_properties
from penstock.client.client_config import ClientConfig
from penstock.server.config import load
from penstock.server.ports import free_ports


def properties(file: Path) -> dict[str, str]:
    return {name: value for _, name, value in parse_properties(file.read_text())}


def names_in(store: Path) -> tuple[str, list[str]]:
    """The subject and the names of hosts in a certificate."""
    pem = store.read_bytes()
    certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return certificate.subject.rfc4514_string(), [str(each.value) for each in hosts]


def test_a_node_for_this_machine(penstock: Command, tmp_path: Path) -> None:
    place = tmp_path / "new" / "secured"
    made = penstock("secure", "init", place, "--json").json()
    assert sorted(each.name for each in place.iterdir()) == [
        "admin.properties",
        "ca.key",
        "ca.pem",
        "node.pem",
        "node.properties",
    ]
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in place.iterdir()} == {0o600}
    subject, hosts = names_in(place / "node.pem")
    assert subject == "CN=node"
    assert hosts[:2] == ["localhost", "127.0.0.1"]
    assert made["clientConfig"] == str(place / "admin.properties")
    client = ClientConfig.load(made["clientConfig"], {})
    assert (client.servers, client.security().protocol) == ("localhost:9092", "SASL_SSL")
    password = properties(place / "admin.properties")["sasl.jaas.config"].split('password="')[1].split('"')[0]
    assert len(password) == 24
    assert password not in (place / "node.properties").read_text()
    node = load(data=None, file=str(place / "node.properties"), flags=[])
    assert properties(place / "node.properties")["listeners"] == "CLIENTS://127.0.0.1:9092"
    assert node.protocols["CLIENTS"] == "SASL_SSL"


def test_a_cluster_and_a_password_of_ones_own(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "password").write_text('planted-"x\\y\n')
    place = tmp_path / "secured"
    hosts = [word for name in ("one.example", "two.example:9192", "10.0.0.3") for word in ("--host", name)]
    options = ("--user", "root", "--days", 30, "--password-file", tmp_path / "password")
    made = penstock("secure", "init", place, *hosts, *options)
    assert made.code == 0
    assert made.out.count("penstock up --config") == 3
    assert names_in(place / "node-2.pem") == ("CN=node-2", ["two.example", "localhost", "127.0.0.1"])
    settings = properties(place / "node-2.properties")
    assert settings["controller.quorum.voters"] == "1@one.example:9094,2@two.example:9194,3@10.0.0.3:9094"
    assert settings["super.users"] == "User:root;User:node-1;User:node-2;User:node-3"
    for number in (1, 2, 3):
        load(data=None, file=str(place / f"node-{number}.properties"), flags=[])
    client = ClientConfig.load(str(place / "root.properties"), {})
    assert client.servers == "one.example:9092,two.example:9192,10.0.0.3:9092"
    assert 'planted-\\\\"x' in (place / "root.properties").read_text()
    assert client.security().login is not None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "exists and is not empty, expected a new directory: nothing was written"),
        (("--host", "a:b"), "'a:b' is no server, expected HOST:PORT"),
        (("--host", "a", "--host", "a"), "a node is named twice with --host"),
        (("--user", "a b"), "--user is 'a b', expected letters"),
        (("--user", "node"), "the name of a node"),
        (("--password-file", "/nowhere"), "cannot read /nowhere"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_nothing_is_written(
    penstock: Command, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "mine").write_text("mine")
    place = tmp_path if not words else tmp_path / "secured"
    done = penstock("secure", "init", place, *words)
    assert done.code == 2
    assert sentence in done.err
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_without_cryptography_a_sentence_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['cryptography'] = None; from penstock.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "secure", "init", str(tmp_path / "x")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert (
        "needs the package cryptography, which is not installed: install Penstock with its extra `tls`"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_a_cluster_of_three_runs(tmp_path: Path) -> None:
    """Each node a process, on this machine."""
    ports = free_ports(9)
    hosts = [f"--host=localhost:{port}" for port in _starts(ports)]
    command = [sys.executable, "-m", "penstock"]
    subprocess.run(
        [*command, "secure", "init", "secured", *hosts], cwd=tmp_path, check=True, capture_output=True
    )
    nodes = [
        subprocess.Popen(
            [*command, "up", "--config", f"secured/node-{number}.properties"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2, 3)
    ]
    try:
        for node in nodes:
            assert node.stdout is not None
            assert node.stdout.readline().startswith("penstock ready ")

        def run(*words: str, given: str = "") -> str:
            done = subprocess.run(
                [*command, *words, "--client-config", "secured/admin.properties"],
                cwd=tmp_path,
                input=given,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        run("topics", "create", "orders", "--partitions", "3", "--replication-factor", "3")
        run("produce", "orders", given="an order\n")
        assert run("consume", "orders") == "an order\n"
        run("users", "add", "alice", given="planted\n")
        assert "alice" in run("users", "list")
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.communicate(timeout=60)


def _starts(ports: list[int]) -> list[int]:
    """Ports of clients; each node also uses the two after its own."""
    found: list[int] = []
    for port in sorted(ports):
        if not found or port >= found[-1] + 3:
            found.append(port)
    return found[:3]
