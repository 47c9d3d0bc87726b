"""A range of a topic as a data frame, with one URL: pandas, Polars, DuckDB, pyarrow."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import duckdb
import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.gateway.http.rest import client_of, error_of, producer, write
from tests.processes import Process

from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-data-frames")
"""One broker serves them all."""

START_MS = 1_700_000_000_000
PARQUET = "application/vnd.apache.parquet"
COUNT = 300

PAGE = (Path(__file__).parents[3] / "docs" / "http-rest.md").read_text()
ADDRESS = "http://127.0.0.1:8080"
"""Where the examples of the page find a node."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """`orders` has two partitions: records of every codec, with an aborted transaction among them, and tombstones."""
    with Broker(http=True, data=tmp_path_factory.mktemp("data")) as started:
        started.create_topic("orders", 2, segment_bytes=16_384)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            write(
                started,
                "orders",
                [b'{"codec": "%s", "n": %d}' % (codec.encode(), number) for number in range(COUNT // 5)],
                key=codec.encode(),
                headers=[("codec", codec.encode())],
                timestamps=[START_MS + number * 1000 for number in range(COUNT // 5)],
                **{"compression.type": codec},
            )
        client = producer(started, **{"transactional.id": "t"})
        client.init_transactions(10)
        for end in (client.abort_transaction, client.commit_transaction):
            client.begin_transaction()
            client.produce("orders", end.__name__.encode(), b"txn", partition=1, timestamp=START_MS)
            client.flush(10)
            end(10)
        write(started, "orders", [None, b""], key=b"tomb", partition=1, timestamps=[START_MS] * 2)
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


def expected(broker: Broker) -> list[tuple[int, int, int, bytes, bytes | None]]:
    """What JSON says is there."""
    with client_of(broker) as http:
        records = http.get("/topics/orders/records?limit=10000&decode=text").json()["records"]
    assert len(records) == COUNT + 3
    return [
        (
            each["partition"],
            each["offset"],
            each["timestamp"],
            each["key"].encode(),
            None if each["value"] is None else each["value"].encode(),
        )
        for each in records
    ]


def rows(table: pa.Table) -> list[tuple[int, int, int, bytes, bytes | None]]:
    return [
        (
            each["partition"],
            each["offset"],
            round(each["timestamp"].timestamp() * 1000),
            each["key"],
            each["value"],
        )
        for each in table.to_pylist()
    ]


@pytest.mark.parametrize("ending", ["records?format=parquet", "records.parquet"])
def test_pandas_reads_a_topic_with_one_url(broker: Broker, ending: str) -> None:
    frame = pd.read_parquet(f"{broker.http_url}/topics/orders/{ending}")
    assert list(frame.columns) == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert rows(pa.Table.from_pandas(frame)) == expected(broker)
    assert frame["headers"][0][0] == {"key": "codec", "value": b"none"}


@pytest.mark.parametrize("query", ["", "?decode=text"])
def test_polars_reads_a_topic_with_one_url(broker: Broker, query: str) -> None:
    """Polars asks for the size first, then for parts."""
    frame = pl.read_parquet(f"{broker.http_url}/topics/orders/records.parquet{query}")
    found = [
        value if isinstance(value, bytes | None) else value.encode() for value in frame["value"].to_list()
    ]
    assert found == [each[-1] for each in expected(broker)]
    assert frame["value"].dtype == (pl.String if query else pl.Binary)


def test_polars_scans_only_what_a_query_needs(broker: Broker) -> None:
    lazy = pl.scan_parquet(f"{broker.http_url}/topics/orders/partitions/0/records.parquet")
    assert lazy.select(pl.col("offset").max()).collect().item() == COUNT - 1


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB, with what it reads from HTTP with: loaded from a package, and not downloaded into somebody's home."""
    package = importlib.util.find_spec("duckdb_extension_httpfs")
    assert package is not None
    assert package.origin is not None
    [extension] = Path(package.origin).parent.rglob("*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"load '{extension}'")
        yield connection


def test_duckdb_reads_a_topic_with_one_url(broker: Broker, duck: duckdb.DuckDBPyConnection) -> None:
    """DuckDB asks for the size, then for the end, then for the columns that the query has."""
    url = f"{broker.http_url}/topics/orders/records.parquet"
    counted = duck.execute(f"select partition, count(*) from read_parquet('{url}') group by 1 order by 1")
    assert counted.fetchall() == [(0, COUNT), (1, 3)]
    values = duck.execute(f'select "value" from \'{url}\' order by partition, "offset"').fetchall()
    assert [value for [value] in values] == [each[-1] for each in expected(broker)]
    last = f"{broker.http_url}/topics/orders/partitions/0/records?format=parquet&decode=text&from_end=1"
    assert duck.execute(f"select key from read_parquet('{last}')").fetchall() == [("zstd",)]


def test_documented_query_runs(broker: Broker, duck: duckdb.DuckDBPyConnection) -> None:
    [query] = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    found = duck.execute(query.replace(ADDRESS, broker.http_url)).fetchall()
    assert sorted(found) == [(0, COUNT), (1, 3)]


def test_arrow_stream_and_file_have_the_same_rows(broker: Broker, http: httpx.Client) -> None:
    stream = http.get(
        "/topics/orders/records", headers={"Accept": "application/vnd.apache.arrow.stream"}
    ).content
    assert rows(pa.ipc.open_stream(stream).read_all()) == expected(broker)
    file = http.get("/topics/orders/records.feather").content
    assert rows(pa.ipc.open_file(BytesIO(file)).read_all()) == expected(broker)


def test_range_and_columns_are_as_asked_for(http: httpx.Client) -> None:
    url = "/topics/orders/partitions/0/records?format=parquet&columns=value,offset&decode=text"
    table = parquet.read_table(BytesIO(http.get(f"{url}&offset=100&until=103").content))
    assert table.column_names == ["value", "offset"]
    assert table["offset"].to_pylist() == [100, 101, 102]
    assert table["value"].type == pa.string()
    in_time = parquet.read_table(
        BytesIO(http.get(f"{url}&from={START_MS + 58_000}&to={START_MS + 59_000}").content)
    )
    assert in_time["offset"].to_pylist() == [58]


def test_empty_range_is_a_file_without_rows(http: httpx.Client) -> None:
    response = http.get("/topics/orders/partitions/0/records.parquet?offset=300")
    assert response.headers["x-records"] == "0"
    assert parquet.read_table(BytesIO(response.content)).num_rows == 0


def test_limit_cuts_and_says_where_to_go_on(http: httpx.Client) -> None:
    found, start = [], "0:0"
    while start:
        response = http.get("/topics/orders/records.arrow", params={"limit": 130, "start": start})
        table = pa.ipc.open_stream(response.content).read_all()
        found += list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        start = response.headers.get("x-next", "")
    assert len(found) == len(set(found)) == COUNT + 3
    assert found == sorted(found)


def test_values_that_are_not_text_are_refused_as_text(broker: Broker, http: httpx.Client) -> None:
    broker.create_topic("bytes")
    write(broker, "bytes", [b"\xff"])
    refused = error_of(http.get("/topics/bytes/records.parquet?decode=text"), 409)
    assert "UTF-8" in refused["message"]


# -- parts ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(http: httpx.Client) -> bytes:
    return http.get("/topics/orders/partitions/0/records.parquet").content


@pytest.mark.parametrize(
    ("asked", "first", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=10-10", 10, 11),
        ("bytes=-8", -8, None),
        ("bytes=100-", 100, None),
        ("bytes=0-99999999", 0, None),
        ("bytes=-99999999", 0, None),
    ],
)
def test_part_of_a_file(http: httpx.Client, whole: bytes, asked: str, first: int, end: int | None) -> None:
    response = http.get("/topics/orders/partitions/0/records.parquet", headers={"Range": asked})
    assert response.status_code == 206
    assert response.content == whole[first:end]
    begin = first % len(whole)
    stop = len(whole) if end is None else end
    assert response.headers["content-range"] == f"bytes {begin}-{stop - 1}/{len(whole)}"


@pytest.mark.parametrize("asked", ["bytes=5-2", "lines=0-1", "bytes=0-1,4-5", "bytes=x-y", "bytes=-", "junk"])
def test_range_that_means_nothing_gives_the_whole(http: httpx.Client, whole: bytes, asked: str) -> None:
    response = http.get("/topics/orders/partitions/0/records.parquet", headers={"Range": asked})
    assert response.status_code == 200
    assert response.content == whole


def test_part_behind_the_end_is_refused_with_the_size(http: httpx.Client, whole: bytes) -> None:
    url = "/topics/orders/partitions/0/records.parquet"
    response = http.get(url, headers={"Range": f"bytes={len(whole)}-"})
    error_of(response, 416)
    assert response.headers["content-range"] == f"bytes */{len(whole)}"


def test_head_says_the_size_and_that_parts_can_be_had(http: httpx.Client, whole: bytes) -> None:
    response = http.head("/topics/orders/partitions/0/records.parquet")
    assert int(response.headers["content-length"]) == len(whole)
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["content-type"] == PARQUET
    assert response.content == b""


def test_file_does_not_change_under_its_reader_while_the_topic_grows(
    broker: Broker, http: httpx.Client
) -> None:
    broker.create_topic("growing")
    write(broker, "growing", [b"one"])
    url = "/topics/growing/records.parquet"
    head = http.head(url)
    write(broker, "growing", [b"two"])
    size = int(head.headers["content-length"])
    parts = [http.get(url, headers={"Range": each}) for each in ("bytes=0-99", "bytes=100-")]
    data = b"".join(each.content for each in parts)
    assert len(data) == size
    assert {each.headers["etag"] for each in parts} == {head.headers["etag"]}
    assert parquet.read_table(BytesIO(data)).num_rows == 1
    fresh = http.get(url)
    assert parquet.read_table(BytesIO(fresh.content)).num_rows == 2
    # What another file's tag is named with cannot be a part of this one.
    late = http.get(url, headers={"Range": "bytes=0-9", "If-Range": head.headers["etag"]})
    assert (late.status_code, late.content) == (200, fresh.content)


# -- the node ---------------------------------------------------------------------------------------------


def test_node_itself_never_loads_arrow_and_leaves_no_file_behind(tmp_path: Path) -> None:
    with Process(data=tmp_path, http=True) as node:
        with httpx.Client(base_url=node.http_url, timeout=30) as http:
            assert http.post("/topics", json={"name": "orders"}).status_code == 201
            response = http.get("/topics/orders/records.parquet")
        assert parquet.read_table(BytesIO(response.content)).num_rows == 0
        loaded = Path(f"/proc/{node.pid}/maps").read_text()
        assert "libarrow" not in loaded
        assert "numpy" not in loaded
        exports = tmp_path / "meta" / "exports"
        assert len(list(exports.iterdir())) == 1
        node.stop()
        assert list(exports.iterdir()) == []


def test_node_without_the_extra_says_what_to_install() -> None:
    """In an interpreter that cannot find pyarrow."""
    code = """
import sys
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyarrow" else found(name, *rest)
import httpx
from penstock.testing import Broker
with Broker(http=True) as broker:
    broker.create_topic("orders")
    response = httpx.get(broker.http_url + "/topics/orders/records.parquet")
    assert response.status_code == 501, response.text
    print(response.json()["error"]["message"])
    assert httpx.get(broker.http_url + "/topics/orders/records").status_code == 200
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "install Penstock with its extra `spark`" in ran.stdout, ran.stderr


def test_documented_data_frames_are_what_they_are_said_to_be(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example.replace(ADDRESS, broker.http_url), {})
    shown = capsys.readouterr().out
    assert "commit_transaction" in shown
    assert str(COUNT - 1) in shown
