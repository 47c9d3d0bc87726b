"""`penstock demo`: a node, a stream of orders, a pipeline on Spark and its results, in one terminal.

    penstock up              a node on a free port
       ^  orders                       | totals
    this process             makes orders, and reads the pipeline's results
                                       v
    penstock pipeline run    counts and sums orders by product into a topic, and writes each order to a table

The node and the pipeline are child processes. They end with this one, the pipeline first. Their command lines are
printed, so that a user can try them.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

import typer

from penstock.base.extras import install_hint
from penstock.base.ids import TopicPartition
from penstock.cli.child import child_of, stopped_by_signals
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused, complain, print_table
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer, ConsumerSettings, Reset
from penstock.client.errors import ClientError
from penstock.client.offsets import READ_COMMITTED
from penstock.client.producer import Producer
from penstock.client.settings import parse_address
from penstock.spark.errors import SparkMissing
from penstock.spark.java import prepare_java

ORDERS, TOTALS = "demo.orders", "demo.totals"
PRODUCTS: Final = {"espresso": 2.2, "cappuccino": 3.1, "flat white": 3.4, "filter coffee": 2.8, "tea": 2.5}
SECONDS_WITHOUT_TERMINAL: Final = 20
"""How long results are shown if standard output is no terminal."""
PIPELINE_LOG: Final = "pipeline.log"
START_S_MAX: Final = 300.0
CREATE_MS_MAX: Final = 10_000
CATCH_UP_S_MAX: Final = 60.0
LINE_S: Final = 1.0
PIPELINE = """\
# What `penstock demo` runs. It is an ordinary pipeline: docs/pipelines.md.
pipeline: demo
bootstrap: {bootstrap}
checkpoint: state
conf:
  spark.driver.extraJavaOptions: -XX:+UseSerialGC -XX:TieredStopAtLevel=1    # Java is quicker to start so

sources:
  orders:
    topic: {orders}
    value: json
    schema: id BIGINT, product STRING, amount DOUBLE, at TIMESTAMP

views:
  totals: |
    SELECT product, count(*) AS orders, round(sum(amount), 2) AS revenue
    FROM orders
    GROUP BY product

flows:
  totals:
    reads: totals
    mode: update
    to: {{topic: {totals}, key: product}}
  table:
    reads: orders
    to: {{parquet: table}}
"""


def demo_command(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Directory for all files.  [a new temporary directory]"),
    ] = None,
    rate: Annotated[
        int, typer.Option("--rate", metavar="N", min=1, max=100_000, help="Orders per second.")
    ] = 500,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="S",
            min=0,
            help="Stop this long after the first result.  [in a terminal: at Ctrl-C; else 20]",
        ),
    ] = None,
) -> int:
    """Run a node, a stream of orders and a pipeline on Spark.

    The pipeline sums up the orders, and its results are printed as they grow. The commands that the demo runs are
    printed too; all their files are in one directory. Needs the extra `spark` and Java 17 or newer.

    \b
    penstock demo
    penstock demo --rate 5000 --seconds 60 --data ./demo
    """
    data = data or Path(mkdtemp(prefix="penstock-demo-"))
    for module in ("pyspark", "pyarrow", "yaml"):
        if find_spec(module) is None:
            raise Refused(f"penstock demo needs {module}, which is not installed: {install_hint('spark')}")
    try:
        prepare_java()
    except SparkMissing as missing:
        raise Refused(str(missing)) from missing
    if seconds is None and not sys.stdout.isatty():
        seconds = SECONDS_WITHOUT_TERMINAL
    stop = threading.Event()
    data.mkdir(parents=True, exist_ok=True)
    say = _Printer()
    with stopped_by_signals(stop), _node(data, say) as bootstrap:
        file = data / "demo.yaml"
        file.write_text(PIPELINE.format(bootstrap=bootstrap, orders=ORDERS, totals=TOTALS))
        with (
            _Results(bootstrap, data / "table") as results,
            _Shop(bootstrap, rate) as shop,
            _pipeline(file, say) as pipeline,
        ):
            say("Spark takes some seconds to start ...")
            _watch(say, shop, results, pipeline, data, seconds, stop)
            shop.close()
            say(f"stopped after {shop.count:,} orders; waiting for the pipeline to process them all")
            is_complete = _catch_up(shop, results)
    say.summary(shop.count, results, data)
    if not is_complete:
        complain(f"the pipeline did not process all orders within {CATCH_UP_S_MAX:.0f} s")
    return 0 if is_complete else EXIT_WRONG


def _watch(
    say: "_Printer",
    shop: "_Shop",
    results: "_Results",
    pipeline: "subprocess.Popen[str]",
    data: Path,
    seconds: float | None,
    stop: threading.Event,
) -> None:
    """Print the results once a second."""
    until: float | None = None
    give_up = time.monotonic() + START_S_MAX
    while not stop.is_set():
        if pipeline.poll() is not None:
            log = data / PIPELINE_LOG
            raise Refused(
                f"the pipeline ended with exit code {pipeline.returncode}: {_last_line(log)}; the whole log is {log}"
            )
        results.read(LINE_S)
        shop.check()
        now = time.monotonic()
        if not results.totals:
            if now > give_up:
                raise Refused(
                    f"the pipeline gave no result within {START_S_MAX:.0f} s; see {data / PIPELINE_LOG}"
                )
            continue
        if until is None and seconds is not None:
            until = now + seconds
        say.results(shop.count, results)
        if until is not None and now >= until:
            return


def _catch_up(shop: "_Shop", results: "_Results") -> bool:
    """Wait until every order is in the totals and in the table. Return False on timeout."""
    end = time.monotonic() + CATCH_UP_S_MAX
    while results.orders < shop.count or results.table_rows < shop.count:
        if time.monotonic() > end:
            return False
        results.read(0.2)
    return results.orders == results.table_rows == shop.count


# -- parts ----------------------------------------------------------------------------------------------


@contextmanager
def _node(data: Path, say: "_Printer") -> Iterator[str]:
    """Run a node as a child process; yield its address."""
    arguments = ["up", "--data", str(data / "node"), "--kafka", "127.0.0.1:0"]
    arguments += ["--http", "127.0.0.1:0", "--line", "off"]
    say(f"$ penstock {' '.join(arguments)}")
    log_file = data / "node.log"
    with (
        log_file.open("w") as log,
        child_of(arguments, stdout=subprocess.PIPE, stderr=log) as child,
    ):
        assert child.stdout is not None
        ready = child.stdout.readline()
        if not ready:
            raise Refused(f"the node did not start: {_last_line(log_file)}; the whole log is {log_file}")
        say(ready.strip())
        yield ready.split("kafka=")[1].split()[0]


@contextmanager
def _pipeline(file: Path, say: "_Printer") -> Iterator["subprocess.Popen[str]"]:
    arguments = ["pipeline", "run", str(file)]
    say(f"$ penstock {' '.join(arguments)}")
    log = file.with_name(PIPELINE_LOG)
    with log.open("w") as out, child_of(arguments, stdout=out, stderr=out) as child:
        yield child


def _last_line(log: Path) -> str:
    """The last line of a child's log, which is the reason why it ended."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("penstock: ") if lines else "it wrote nothing"


class _Shop:
    """Produces orders at a steady rate, on a thread."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.count = 0
        """Acknowledged orders."""
        self._rate = rate
        self._cluster = Cluster([parse_address(bootstrap)])
        self._closing = threading.Event()
        self._error: ClientError | None = None
        self._thread = threading.Thread(target=self._run, name="orders")

    def __enter__(self) -> "_Shop":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._cluster.close()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        rng, made, began = random.Random(), 0, time.monotonic()
        try:
            self._cluster.topic(ORDERS, create=True, wait_ms=CREATE_MS_MAX)
            producer = Producer(self._cluster)
            while not self._closing.wait(0.1):
                due = int((time.monotonic() - began) * self._rate)
                for number in range(made, due):
                    product = rng.choice(list(PRODUCTS))
                    order = {
                        "id": number,
                        "product": product,
                        "amount": PRODUCTS[product],
                        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    }
                    producer.send(ORDERS, product.encode(), json.dumps(order).encode())
                producer.flush()
                self.count = made = due
        except ClientError as error:
            self._error = error


class _Results:
    """The pipeline's results: totals by product, read from its topic, and the number of rows in its table."""

    def __init__(self, bootstrap: str, table: Path) -> None:
        self.totals: dict[str, tuple[int, float]] = {}
        self.table_rows = 0
        self._cluster = Cluster([parse_address(bootstrap)])
        self._table = table
        self._files_seen: set[str] = set()

    def __enter__(self) -> "_Results":
        partitions = self._cluster.topic(TOTALS, create=True, wait_ms=CREATE_MS_MAX).partitions
        self._consumer = Consumer(
            self._cluster,
            {TopicPartition(TOTALS, number): 0 for number in partitions},
            ConsumerSettings(isolation_level=READ_COMMITTED, reset=Reset.EARLIEST),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    @property
    def orders(self) -> int:
        return sum(orders for orders, _ in self.totals.values())

    def read(self, seconds: float) -> None:
        """Read results for this long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for fetched in self._consumer.poll(left * 1000):
                for record in fetched.records:
                    total = json.loads(record.value or b"{}")
                    self.totals[total["product"]] = total["orders"], total["revenue"]
        self._read_table()

    def _read_table(self) -> None:
        """Count the rows of files in Spark's metadata list: other files may be incomplete."""
        from pyarrow import parquet  # noqa: PLC0415  # loaded when there is a table

        for listed in sorted(self._table.glob("_spark_metadata/[0-9]*")):
            for line in listed.read_text().splitlines():
                if line.startswith("{"):
                    path = unquote(urlsplit(json.loads(line)["path"]).path)
                    if path not in self._files_seen:
                        self._files_seen.add(path)
                        self.table_rows += parquet.read_metadata(path).num_rows


class _Printer:
    """Prints progress."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, line: str) -> None:
        print(line, flush=True)

    def results(self, made: int, results: _Results) -> None:
        best = sorted(results.totals.items(), key=lambda each: -each[1][1])
        shown = "  ".join(f"{product} {revenue:,.2f}" for product, (_, revenue) in best)
        done = f"{results.orders:,} summed up in {TOTALS}, {results.table_rows:,} in the table"
        self(f"{time.monotonic() - self._began:5.0f} s  {made:,} orders made, {done}  |  {shown}")

    def summary(self, made: int, results: _Results, data: Path) -> None:
        rows = [
            (product, f"{orders:,}", f"{revenue:,.2f}")
            for product, (orders, revenue) in sorted(results.totals.items())
        ]
        print_table(["PRODUCT", "ORDERS", "REVENUE"], rows)
        self(f"{made:,} orders made, {results.orders:,} summed up, {results.table_rows:,} in the table")
        self(f"all files are in {data}:")
        self("  node/          the log: penstock log ls, dump, check")
        self("  demo.yaml      the pipeline; its checkpoint is in state/")
        self("  table/         the orders as Parquet")
