"""groups and transactions, against a broker of Penstock's in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli import group_tour
from tests.cli.conftest import Command
from tests.cli.wire_tour import Shell

from penstock.base.hashing import partition_for
from penstock.base.ids import TopicPartition
from penstock.cli.commands import groups
from penstock.cli.offset_resets import read_file
from penstock.cli.output import Refused
from penstock.cli.positions import parse_duration
from penstock.cli.selection import Selection, parse_partition, parse_selection, show_partitions
from penstock.server.ports import hold_port
from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture
def shell(penstock: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(penstock, broker.bootstrap, monkeypatch)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_and_deleted(shell: Shell, protocol: str) -> None:
    group_tour.describing(shell, protocol)


def test_offsets_are_reset_in_every_way(shell: Shell, tmp_path: Path) -> None:
    group_tour.resetting(shell, tmp_path)


def test_transactions_are_listed_described_and_aborted(shell: Shell) -> None:
    group_tour.transacting(shell)


def test_a_transaction_that_hangs_is_found_and_ended(shell: Shell) -> None:
    group_tour.hanging(shell)


def test_a_broker_without_groups_says_so(penstock: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as fresh:
        group_tour.absent(Shell(penstock, fresh.bootstrap, monkeypatch))


def test_groups_that_a_coordinator_cannot_tell_are_not_left_out_without_a_word(
    penstock: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One partition of the topic of offsets is damaged; who lists the others is told so."""
    few = {"offsets.topic.num.partitions": 4}
    lost, kept = "billing", "audit"
    damaged = partition_for(lost, 4)
    assert partition_for(kept, 4) != damaged
    with Broker(data=tmp_path, settings=few) as broker:
        shell = Shell(penstock, broker.bootstrap, monkeypatch)
        shell("topics", "create", "t", "--partitions", 1)
        for name in (lost, kept):
            shell("groups", "reset-offsets", name, "--to", "latest", "--topic", "t", "--execute")
        assert [each["groupId"] for each in shell.json("groups", "list")["groups"]] == [kept, lost]
    log = tmp_path / "logs" / f"__consumer_offsets-{damaged}" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-3] ^= 0xFF
    log.write_bytes(data)
    with Broker(data=tmp_path, settings=few) as broker:
        shell = Shell(penstock, broker.bootstrap, monkeypatch)
        sentence = (
            f"penstock: groups of 1 of 4 partitions of __consumer_offsets cannot be listed ({damaged}): "
            "COORDINATOR_NOT_AVAILABLE. The broker's log says why\n"
        )
        for command in ("list", "describe"):
            outcome = shell.try_("groups", command, "--json")
            assert (outcome.code, outcome.err) == (2, sentence)
            assert [each["groupId"] for each in outcome.json()["groups"]] == [kept]
        monkeypatch.setattr(groups, "COORDINATOR_MS_MAX", 300)
        outcome = shell.try_("groups", "describe", lost, kept)
        assert outcome.code == 2
        assert "COORDINATOR_NOT_AVAILABLE" in outcome.err
        assert outcome.out.startswith(f"{kept}: Empty")


def test_a_name_does_nothing_to_a_terminal(shell: Shell) -> None:
    shell("topics", "create", "t", "--partitions", 1, "--if-not-exists")
    odd = "a\x1b[2Jb"
    shell("groups", "reset-offsets", odd, "--to", "latest", "--topic", "t", "--execute")
    for arguments in (("list",), ("describe", odd), ("reset-offsets", odd, "--to", "earliest")):
        page = shell("groups", *arguments)
        assert "\x1b" not in page
        assert "a\\x1b[2Jb" in page
    assert odd in [each["groupId"] for each in shell.json("groups", "list")["groups"]]
    shell("groups", "delete", odd)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("groups", "reset-offsets", "g"), "expected one of --to, --shift-by and --from-file"),
        (("groups", "reset-offsets", "g", "--to", "1", "--shift-by", "1"), "expected one of --to"),
        (
            ("groups", "reset-offsets", "g", "--to", "soon", "--topic", "t"),
            "not a position in a log: expected earliest, latest, current",
        ),
        (("groups", "reset-offsets", "g", "--to", "1", "--topic", "t:x"), "'t:x' names no partitions"),
        (
            ("groups", "reset-offsets", "g", "--from-file", "f", "--topic", "t"),
            "the file names the partitions",
        ),
        (("groups", "reset-offsets", "g", "--from-file", "no.csv"), "no.csv: No such file or directory"),
        (
            ("groups", "reset-offsets", "g", "--to", "1", "--export", "--json"),
            "--export and --json exclude",
        ),
        (("groups", "list", "--state", "Stabel"), "'Stabel' is not a group state, expected one of Empty, "),
        (
            ("groups", "list", "--type", "new"),
            "'new' is not a group type, expected one of classic, consumer",
        ),
        (("groups", "delete", "a", "b", "--topic", "t"), "--topic needs one group, and 2 are named"),
        (("transactions", "describe"), "expected either transactional ids or --partition"),
        (("transactions", "describe", "a", "--partition", "t:0"), "expected either transactional ids"),
        (
            ("transactions", "describe", "--partition", "t"),
            "'t' is not a partition: expected TOPIC:PARTITION",
        ),
        (("transactions", "abort"), "expected either a transactional id or --partition"),
        (("transactions", "abort", "--partition", "t:0"), "--partition and --start-offset go together"),
        (("transactions", "abort", "a", "--start-offset", "1"), "--partition and --start-offset go together"),
        (("transactions", "list", "--older", "long"), "--older is 'long', expected a duration"),
        (("transactions", "list", "--hanging", "--state", "Empty"), "it allows only --older"),
    ],
)
def test_a_mistake_is_one_sentence(shell: Shell, arguments: tuple[str, ...], sentence: str) -> None:
    shell("topics", "create", "t", "--partitions", 1, "--if-not-exists")
    outcome = shell.try_(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_server_that_is_not_there_is_one_sentence(penstock: Command) -> None:
    with hold_port() as held:  # and nothing listens there
        port = held.getsockname()[1]
        for command in (
            ("groups", "list"),
            ("groups", "describe", "g"),
            ("groups", "delete", "g"),
            ("transactions", "list"),
            ("transactions", "abort", "t"),
        ):
            outcome = penstock(*command, "--server", f"127.0.0.1:{port}")
            assert (outcome.code, outcome.out) == (2, "")
            assert outcome.err.startswith(f"penstock: cannot reach 127.0.0.1:{port}: connection refused; ")
            assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("groups",),
        *(("groups", each) for each in ("list", "describe", "reset-offsets", "delete")),
        ("transactions",),
        *(("transactions", each) for each in ("list", "describe", "abort")),
    ],
)
def test_every_command_has_help_with_an_example(penstock: Command, command: tuple[str, ...]) -> None:
    outcome = penstock(*command, "--help")
    assert outcome.code == 0
    assert f"\n  penstock {' '.join(command)}" in outcome.out


# -- files of offsets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"orders,0\n", "line 1: expected topic,partition,offset"),
        (b"orders,0,1\n,1,1\n", "line 2: expected topic,partition,offset"),
        (b"orders,0,1,2,3\n", "line 1: expected topic,partition,offset"),
        (b"orders,zero,1\n", "line 1: found 'zero', expected a number from 0 to 2147483647"),
        (b"orders,0,-1\n", "line 1: found '-1', expected a number from 0 to 9223372036854775807"),
        (b"orders,0,9223372036854775808\n", "expected a number from 0 to 9223372036854775807"),
        (b"orders,0,1\norders,0,2\n", "line 2: orders-0 is listed twice"),
        (b"other,orders,0,1\n", "has no offsets of group g"),
        (b"", "has no offsets of group g"),
        (b"orders,0,\xff\n", "is not UTF-8 at byte 9"),
    ],
)
def test_a_file_that_is_wrong_is_reported_with_its_line(tmp_path: Path, text: bytes, sentence: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_bytes(text)
    with pytest.raises(Refused, match=sentence.replace("(", "\\(")) as refused:
        read_file(str(path), "g")
    assert str(refused.value).startswith(str(path))


def test_names_with_commas_and_quotes_are_read_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text('"a,""g",orders,0,7\n"orders",1,8\n')
    assert read_file(str(path), 'a,"g') == {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 8}


# -- names of partitions ----------------------------------------------------------------------------------


def test_partitions_are_named_in_kafkas_way() -> None:
    assert parse_selection("orders") == Selection("orders", None)
    assert parse_selection("orders:2, 0,2") == Selection("orders", (0, 2))
    assert parse_partition("orders:12") == TopicPartition("orders", 12)
    several = [TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)]
    assert show_partitions(several) == "a:0,2 b:1"


@pytest.mark.parametrize("text", ["", ":0", "a:", "a:-1", "a:1;2", "a:0,", "a:99999999999", "a:²"])
def test_what_names_no_partition_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_selection(text)
    with pytest.raises(Refused):
        parse_partition(text)


def test_durations_are_milliseconds() -> None:
    assert parse_duration("15m", "--older") == 900_000
    assert parse_duration("1.5s", "--older") == 1500
    for text in ("", "-1h", "1", "h", "1y"):
        with pytest.raises(Refused, match="--older is"):
            parse_duration(text, "--older")
