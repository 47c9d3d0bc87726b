"""The benchmark of searches runs, and its rows measure something. How fast anything is, is not judged here."""

from pathlib import Path

import pytest

from benchmarks import search


def test_every_row_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEGMENT_BYTES", 1 << 20)
    monkeypatch.setattr(search, "TURNS", 1)
    monkeypatch.setattr(search, "TURN_S", 0.1)
    rows = list(search.rows(tmp_path, 30_000))
    assert [row.work for row in rows if row.goal is not None] == [
        "contains, 100 bytes",
        "contains, 1 KB",
        "a node searches 0 million records",
        "the same: first result",
        "produce one record beside a search, p99, acks=1",
        "produce one record beside a search, p99, acks=all, synced",
        "with the index, a word that is nowhere",
    ]
    assert all(row.measured for row in rows)
