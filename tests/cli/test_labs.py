"""`penstock lab segments`, `indexes` and `isr`: what they say is what lies in the directory, or what was seen."""

import struct
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command

from penstock.cli.commands.lab import indexes as lab_indexes
from penstock.cli.commands.lab import segments as lab_segments
from penstock.cli.commands.lab.indexes import search
from penstock.cli.commands.lab.isr import ClusterState, IsrExperiment, PartitionState, judge


def sizes(directory: Path, ending: str) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in sorted(directory.glob(f"*{ending}"))}


def test_segments_are_shown_as_they_lie_on_disk(penstock: Command, tmp_path: Path) -> None:
    outcome = penstock("lab", "segments", "--keep", tmp_path / "lab", "--json")

    assert (outcome.code, outcome.err) == (0, "")
    told = outcome.json()
    small, default = told["topics"]
    for topic in (small, default):
        directory = tmp_path / "lab" / "logs" / f"{topic['topic']}-0"
        assert {each["file"]: each["logBytes"] for each in topic["segments"]} == sizes(directory, ".log")
        assert [each["indexBytes"] for each in topic["segments"]] == list(sizes(directory, ".index").values())
        assert topic["files"] == len(list(directory.iterdir()))
    assert (small["segmentBytes"], default["segmentBytes"]) == (10_000, 2**30)
    assert len(small["segments"]) > 10
    assert len(default["segments"]) == 1
    assert all(each["holds"] for each in told["claims"])
    assert penstock("log", "check", tmp_path / "lab", "--deep").code == 0


def test_a_lookup_is_shown_as_the_index_file_has_it(penstock: Command, tmp_path: Path) -> None:
    outcome = penstock("lab", "indexes", "--keep", tmp_path / "lab", "--json")

    assert (outcome.code, outcome.err) == (0, "")
    told = outcome.json()
    lookup = told["lookup"]
    index = tmp_path / "lab/logs/lab.indexed-0" / lookup["segment"].replace(".log", ".index")
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    base = int(lookup["segment"].removesuffix(".log"))
    last_below = max(number for number, (relative, _) in enumerate(entries) if base + relative <= 777)
    assert lookup["indexEntries"] == len(entries)
    assert lookup["foundEntry"] == last_below
    assert lookup["scanFrom"] == entries[last_below][1]
    for probe in lookup["probes"]:
        assert (probe["offset"] - base, probe["position"]) == entries[probe["entry"]]
    assert lookup["record"]["key"] == "key-777"
    assert [each["isIt"] for each in lookup["steps"]][-1:] == [True]
    assert told["sanity"]["afterDamage"]["errors"] == 2
    assert told["sanity"]["afterRebuild"]["errors"] == 0
    assert penstock("log", "check", tmp_path / "lab", "--deep").code == 0


@pytest.mark.parametrize("offset", [0, 999])
def test_the_ends_of_the_log_are_found_too(penstock: Command, offset: int) -> None:
    """Offset 0 lies before all entries of its index; 999 is in the active segment."""
    outcome = penstock("lab", "indexes", "--offset", offset)

    assert (outcome.code, outcome.err) == (0, "")
    assert f"offset {offset}, key key-{offset}, 200 bytes" in outcome.out
    assert "the index is missing" in outcome.out
    assert outcome.out.count("no errors") == 1


def test_an_offset_that_is_not_written_is_refused(penstock: Command) -> None:
    outcome = penstock("lab", "indexes", "--offset", "1000")
    assert outcome.code == 2
    assert "'--offset'" in outcome.err
    assert "999" in outcome.err


@pytest.mark.parametrize("lab", ["segments", "indexes", "isr"])
def test_a_directory_with_other_things_is_refused(penstock: Command, tmp_path: Path, lab: str) -> None:
    (tmp_path / "mine").write_text("")
    outcome = penstock("lab", lab, "--keep", tmp_path)
    assert outcome.code == 2
    assert "is not empty" in outcome.err
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_a_claim_that_the_files_contradict_fails_the_lab(
    penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = lab_segments.read_files

    def one_missing(data: str, topic: str, segment_bytes: int) -> Any:
        found = honest(data, topic, segment_bytes)
        return found._replace(segments=[found.segments[0], *found.segments[2:]])

    monkeypatch.setattr(lab_segments, "read_files", one_missing)
    outcome = penstock("lab", "segments")
    assert outcome.code == 1
    assert "the files contradict this: A segment is named after its first offset" in outcome.err


def test_damage_that_goes_unseen_fails_the_lab(penstock: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_indexes, "_spoil", lambda *_: None)
    outcome = penstock("lab", "indexes")
    assert outcome.code == 1
    assert "found nothing before the damage" in outcome.err


def test_the_search_ends_at_the_last_entry_that_is_not_above() -> None:
    entries = [(number * 10, number) for number in range(1, 50)]
    for sought in range(500):
        probes = search(entries, sought)
        found = max((each.entry for each in probes if not each.is_above), default=None)
        below = [number for number, (offset, _) in enumerate(entries) if offset <= sought]
        assert found == (below[-1] if below else None)
        assert len(probes) <= len(entries).bit_length()


@pytest.mark.long
def test_a_broker_that_stops_and_returns_is_seen_to_leave_the_isr_and_to_catch_up(penstock: Command) -> None:
    outcome = penstock("lab", "isr", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    told = outcome.json()
    assert all(each["holds"] for each in told["claims"])
    before, without, written, back = told["steps"]
    stopped = told["stopped"]
    assert [each["isr"] for each in before["partitions"]] == [[1, 2, 3]] * 3
    assert all(stopped not in each["isr"] and len(each["isr"]) == 2 for each in without["partitions"])
    assert sum(each["highWatermark"] for each in written["partitions"]) == 600
    assert all(str(stopped) not in each["logEnds"] for each in written["partitions"])
    for each in back["partitions"]:
        assert each["isr"] == [1, 2, 3]
        assert set(each["logEnds"].values()) == {each["highWatermark"]}


def test_what_was_not_seen_fails_the_lab_of_replicas() -> None:
    """Each claim is about what was seen: with one broker fewer in sync at the end, it does not hold."""
    seen = [PartitionState(0, 1, 0, [1, 2, 3], [1, 2, 3], 300, {"1": 300, "2": 300, "3": 300})]
    without = [PartitionState(0, 2, 1, [1, 2, 3], [2, 3], 300, {"2": 300, "3": 300})]
    written = [PartitionState(0, 2, 1, [1, 2, 3], [2, 3], 600, {"2": 600, "3": 600})]
    back = [PartitionState(0, 2, 1, [1, 2, 3], [1, 2, 3], 600, {"1": 600, "2": 600, "3": 600})]
    story = IsrExperiment(
        1,
        ClusterState("a", seen),
        ClusterState("b", without),
        ClusterState("c", written),
        ClusterState("d", back),
        0.1,
        0.1,
    )
    assert all(each.holds for each in judge(story))
    lame = story._replace(back=ClusterState("d", written))
    assert [each.holds for each in judge(lame)] == [True, True, True, True, False, True]
    lost = story._replace(back=ClusterState("d", [back[0]._replace(log_ends={"1": 599, "2": 600, "3": 600})]))
    assert not judge(lost)[-1].holds
    stuck = story._replace(without=ClusterState("b", seen))
    assert [each.holds for each in judge(stuck)][1:3] == [False, False]
