"""A search process loads little: its first result comes the sooner."""

import subprocess
import sys
from pathlib import Path

from tests.search.logs import ORDERS, T, opened, span_of

from penstock.records import build_batch

SCRIPT = """
import sys
from penstock.search.query import SearchQuery, SearchSpan
from penstock.search.planning import plan
from penstock.search.scanning import search
from penstock.vfs import RealDisk
span = SearchSpan(*eval(sys.argv[1]))
for query in (
    SearchQuery(contains=b"eed", regex="e+"),
    SearchQuery(contains=b"t", field="headers", where="value == 'needle' && headers.trace == 't'"),
):
    work = [(span, each) for each in plan(RealDisk(), query, span).chunks]
    assert len(search(RealDisk(), query, work, 10).matches) == 1
print(*(each for each in ("pandas", "pyspark", "kio", "asyncio") if each in sys.modules))
"""


def test_a_search_imports_neither_pandas_nor_spark(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        log = directory.create(ORDERS, now_ms=T)
        records = [(None, b"needle", T, [("trace", b"t")]), (b"k", None, T)]
        log.append(build_batch(records), leader_epoch=0, now_ms=T)
        arguments = [sys.executable, "-c", SCRIPT, repr(tuple(span_of(log)))]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")
