"""Data frames of a topic that changes: a read is of one moment, and the next one is of what is there then."""

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO

import httpx
import pytest
from pyarrow import parquet
from tests.gateway.http.between import Between
from tests.gateway.http.rest import client_of, error_of, write

from penstock.testing import Broker

pytestmark = pytest.mark.xdist_group("http-reading-again")
"""One broker serves them all."""

VALUE_BYTES = 4_000
COUNT = 100
"""Of records at first. They do not compress, and are more than readers fetch with the file's end."""

DUCK = """
import pathlib, duckdb, duckdb_extension_httpfs
[extension] = pathlib.Path(duckdb_extension_httpfs.__file__).parent.rglob("*.duckdb_extension")
with duckdb.connect() as connection:
    connection.execute(f"load '{extension}'")
    [(count, size)] = connection.execute(f"select count(*), sum(octet_length(value)) from '{url}.parquet'").fetchall()
"""
FSSPEC = """
import fsspec
from pyarrow import compute, parquet
with fsspec.open(f"{url}.parquet", block_size=65536) as file:
    values = parquet.read_table(file, columns=["value"])["value"]
    count, size = len(values), compute.sum(compute.binary_length(values)).as_py()
"""
POLARS = """
import polars
values = polars.FRAME["value"]
count, size = len(values), values.bin.size().sum()
"""
READERS = {
    "duckdb": DUCK,
    "fsspec": FSSPEC,
    "pandas": """
import pandas
values = pandas.read_parquet(f"{url}.parquet")["value"]
count, size = len(values), sum(map(len, values))
""",
    "polars": POLARS.replace("FRAME", "read_parquet(f'{url}.parquet')"),
    "polars that scans": POLARS.replace("FRAME", "scan_parquet(f'{url}.parquet').select('value').collect()"),
    "polars with arrow": POLARS.replace("FRAME", "read_ipc(f'{url}.feather')"),
}
"""What users write, with a URL without its ending; each leaves the number of records and the size of their values."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True) as started:
        yield started


@pytest.fixture
def http(broker: Broker) -> Iterator[httpx.Client]:
    with client_of(broker) as client:
        yield client


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> str:
    code: str = READERS[request.param]
    return code


def read(code: str, url: str) -> int:
    """How many records there are, as a reader in this process says."""
    found = {"url": url}
    exec(code, found)
    assert found["size"] == int(found["count"]) * VALUE_BYTES
    return int(found["count"])


def read_elsewhere(code: str, url: str) -> int:
    """The same in a process of its own. It ends at once: how the reader's threads end is not for us to judge."""
    program = f"import os\nurl = {url!r}\n{code}\nprint(count, flush=True)\nos._exit(0)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr.decode()
    return int(ran.stdout)


def fill(broker: Broker, topic: str, count: int) -> None:
    write(broker, topic, [os.urandom(VALUE_BYTES) for _ in range(count)])


def test_reader_sees_what_was_written_since_and_a_topic_that_was_made_anew(
    broker: Broker, http: httpx.Client, reader: str
) -> None:
    topic = f"again-{abs(hash(reader))}"
    url = f"{broker.http_url}/topics/{topic}/records"
    broker.create_topic(topic)
    fill(broker, topic, COUNT)
    assert read(reader, url) == COUNT
    fill(broker, topic, 1)
    assert read(reader, url) == COUNT + 1
    fill(broker, topic, 1)
    assert read_elsewhere(reader, url) == COUNT + 2
    assert http.delete(f"/topics/{topic}").is_success
    broker.create_topic(topic)
    fill(broker, topic, COUNT - 1)
    assert read(reader, url) == COUNT - 1


def test_reader_has_one_file_however_the_topic_grows_between_its_requests(
    broker: Broker, http: httpx.Client, reader: str
) -> None:
    topic = f"growing-{abs(hash(reader))}"
    broker.create_topic(topic)
    fill(broker, topic, COUNT)

    def grow() -> None:
        value = b64encode(os.urandom(VALUE_BYTES)).decode()
        assert http.post("/produce", json={"topic": topic, "partition": 0, "value": value}).status_code == 200

    with Between(broker.http_url, grow) as between:
        url = f"{between.url}/topics/{topic}/records"
        for _ in range(2):
            before = COUNT + len(between.requests)
            assert read(reader, url) == before + 1, between.requests
        if "pandas" not in reader:
            assert len(between.requests) >= 4, between.requests


# -- by hand --------------------------------------------------------------------------------------------


class Topic:
    """A topic with one record, and a program that reads it."""

    def __init__(self, broker: Broker, http: httpx.Client, name: str) -> None:
        self._broker = broker
        self.http = http
        self.name = name
        self.url = f"/topics/{name}/records.parquet"
        broker.create_topic(name)
        self.grow()

    def grow(self) -> None:
        write(self._broker, self.name, [b"value"])

    def make_anew(self) -> None:
        assert self.http.delete(f"/topics/{self.name}").is_success
        self._broker.create_topic(self.name)

    def ask(self, part: str, **headers: str) -> httpx.Response:
        """HEAD, the whole, or a part."""
        if part == "HEAD":
            return self.http.head(self.url, headers=headers)
        return self.http.get(
            self.url, headers={**headers, **({} if part == "whole" else {"Range": f"bytes={part}"})}
        )


@pytest.fixture
def topic(broker: Broker, http: httpx.Client, request: pytest.FixtureRequest) -> Topic:
    return Topic(broker, http, f"hand-{abs(hash(request.node.name))}")


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("HEAD", ["0-3", "-4", "0-3"]),
        ("-100", ["-100"]),
        ("-100", ["HEAD", "whole"]),
        ("0-3", ["0-3"]),
        ("0-3", ["HEAD"]),
        ("4-7", ["0-3"]),
        ("whole", ["0-3"]),
        ("whole", ["-4"]),
    ],
)
def test_last_of_these_begins_a_read(topic: Topic, first: str, then: list[str]) -> None:
    tag = topic.ask(first).headers["etag"]
    topic.grow()
    found = [topic.ask(each).headers["etag"] for each in then]
    assert found[-1] != tag
    assert topic.ask("4-7").headers["etag"] == found[-1]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("HEAD", ["0-3", "4-7", "0-3"]),
        ("-8", ["-100", "HEAD", "0-3", "4-7"]),
        ("0-3", ["4-7", "8-"]),
        ("whole", ["4-"]),
        ("4-7", ["8-11"]),
    ],
)
def test_these_are_one_read(topic: Topic, first: str, then: list[str]) -> None:
    tag = topic.ask(first).headers["etag"]
    for each in then:
        topic.grow()
        assert topic.ask(each).headers["etag"] == tag


def test_nothing_is_made_anew_while_the_topic_stays_as_it_is(topic: Topic) -> None:
    asked = ("HEAD", "whole", "-8", "-8", "0-3", "0-3")
    assert len({topic.ask(each).headers["etag"] for each in asked}) == 1


def test_tag_says_which_file_is_meant(topic: Topic) -> None:
    tag = topic.ask("HEAD").headers["etag"]
    topic.grow()
    for part in ("0-3", "-4", "4-7"):
        for name in ("If-Range", "If-Match"):
            response = topic.ask(part, **{name: tag})
            assert (response.status_code, response.headers["etag"]) == (206, tag)
    assert topic.ask("-4", **{"If-Match": f'"other", {tag}'}).status_code == 206
    assert topic.ask("HEAD", **{"If-Match": "*"}).status_code == 200
    # That began a read: the tag is not of its file.
    assert error_of(topic.ask("4-7", **{"If-Match": tag}), 412)["code"] == "changed"
    whole = topic.ask("4-7", **{"If-Range": tag})
    assert whole.status_code == 200
    assert parquet.read_table(BytesIO(whole.content)).num_rows == 2


def test_part_of_a_topic_that_was_made_anew_is_not_taken_for_one_of_the_old(topic: Topic) -> None:
    old = topic.ask("HEAD")
    topic.make_anew()
    assert error_of(topic.ask("4-7"), 410)["code"] == "file_gone"
    # Who reads it anew has it.
    assert topic.ask("4-7").headers["etag"] != old.headers["etag"]
    assert parquet.read_table(BytesIO(topic.ask("whole").content)).num_rows == 0
    topic.grow()
    topic.make_anew()
    assert topic.ask("0-3").status_code == 206
    assert topic.ask("HEAD").headers["x-records"] == "0"
