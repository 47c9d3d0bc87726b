"""`penstock log import` and `penstock log export`, as a person types them."""

import json
from pathlib import Path

import pytest
import typer
from tests.storage.legacy.old_files import NOW_MS, kafka_jr_record, minikafka_record
from typer.testing import CliRunner

from penstock.cli.commands.log.transfer import export_command, import_command
from penstock.vfs import RealDisk

app = typer.Typer()
app.command("import")(import_command)
app.command("export")(export_command)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three records of topic orders, in Kafka-JR's format; the file is returned."""
    path = tmp_path / "old/orders/0/00000000000000000000.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        b"".join(kafka_jr_record("orders", 0, each, NOW_MS, b"k", b"value", b"i") for each in range(3))
    )
    return path


def run(tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*arguments, "--data", str(tmp_path / "data")])
    return result.exit_code, result.stdout, result.stderr


def test_in_and_out(tmp_path: Path, source: Path) -> None:
    data, old, out = (str(tmp_path / each) for each in ("data", "old", "out"))
    code, stdout, stderr = run(tmp_path, "import", "--format", "kafka-jr", old)
    assert (code, stdout) == (0, f"imported 3 records in 1 partitions of 1 topics into {data}\n"), stderr
    code, stdout, stderr = run(tmp_path, "export", "--format", "minikafka", out, "--topic", "orders")
    assert (code, stdout) == (0, f"exported 3 records in 1 partitions of 1 topics to {out}\n"), stderr
    assert stderr == "skipped 3 headers of 3 records: the format has none\n"
    written = (tmp_path / "out/logs/orders/0/0.log").read_bytes()
    assert written == b"".join(minikafka_record(each, NOW_MS, b"k", b"value") for each in range(3))


def test_what_was_cut_and_left_is_said(tmp_path: Path, source: Path) -> None:
    size = source.stat().st_size
    source.write_bytes(source.read_bytes()[:-4])
    (tmp_path / "old/consumer_offsets.dat").write_bytes(b"orders:g:0 -> 2")
    code, stdout, stderr = run(tmp_path, "import", "--format", "kafka-jr", str(tmp_path / "old"))
    assert code == 0
    assert "imported 2 records" in stdout
    assert f"truncated the torn end: {source} at position {size // 3 * 2}: " in stderr
    assert f"({size // 3 - 4} bytes)" in stderr
    assert (
        f"skipped {tmp_path}/old/consumer_offsets.dat: committed offsets of groups are not imported yet"
        in stderr
    )


def test_the_result_as_json(tmp_path: Path, source: Path) -> None:
    code, stdout, _ = run(tmp_path, "import", "--format", "kafka-jr", str(tmp_path / "old"), "--json")
    assert code == 0
    found = json.loads(stdout)
    row = {"topic": "orders", "partition": 0, "records": 3, "log_start": 0, "log_end": 3}
    assert (found["records"], found["partitions"], found["cut"]) == (3, [row], [])
    code, stdout, _ = run(tmp_path, "export", "--format", "kafka-jr", str(tmp_path / "out"), "--json")
    assert code == 0
    assert json.loads(stdout)["partitions"] == [row]


def test_damage_is_one_sentence_and_skipping_goes_on(tmp_path: Path, source: Path) -> None:
    data = bytearray(source.read_bytes())
    data[len(data) // 3 + 8] ^= 1
    source.write_bytes(data)
    arguments = ("import", "--format", "kafka-jr", str(tmp_path / "old"))
    code, stdout, stderr = run(tmp_path, *arguments)
    assert (code, stdout) == (1, "")
    assert stderr == (
        f"penstock: {source} at position {len(data) // 3}: topic b'nrders', expected b'orders'; sound records follow\n"
    )
    code, stdout, stderr = run(tmp_path, *arguments, "--skip-corrupt")
    assert code == 0
    assert "imported 2 records" in stdout
    assert f"skipped: {source} at position {len(data) // 3}: topic" in stderr


def test_what_cannot_be_done_is_one_sentence(tmp_path: Path, source: Path) -> None:
    missing = str(tmp_path / "nowhere")
    code, _, stderr = run(tmp_path, "import", "--format", "minikafka", missing)
    assert code == 2
    assert stderr == (
        f"penstock: there is no directory {missing}/logs: "
        "minikafka keeps its records as DIR/logs/<topic>/<partition>/<base offset>.log\n"
    )
    assert not (tmp_path / "data").exists()
    code, _, stderr = run(tmp_path, "export", "--format", "minikafka", missing)
    assert (code, stderr) == (
        2,
        f"penstock: {tmp_path}/data is not a Penstock data directory: it has no logs\n",
    )
    run(tmp_path, "import", "--format", "kafka-jr", str(tmp_path / "old"))
    code, _, stderr = run(tmp_path, "import", "--format", "kafka-jr", str(tmp_path / "old"))
    assert code == 2
    assert stderr.startswith(f"penstock: orders-0 in {tmp_path}/data/logs has offsets 0 to 3 already")
    code, _, stderr = run(
        tmp_path, "export", "--format", "kafka-jr", str(tmp_path / "out"), "--topic", "lost"
    )
    assert (code, stderr) == (2, f"penstock: there is no topic lost in {tmp_path}/data/logs\n")


def test_a_directory_in_use_is_refused(tmp_path: Path, source: Path) -> None:
    run(tmp_path, "import", "--format", "kafka-jr", str(tmp_path / "old"))
    lock = RealDisk().lock(str(tmp_path / "data/meta/lock"))
    try:
        code, _, stderr = run(tmp_path, "export", "--format", "kafka-jr", str(tmp_path / "out"))
    finally:
        lock.release()
    assert code == 2
    assert "is in use by another process" in stderr
