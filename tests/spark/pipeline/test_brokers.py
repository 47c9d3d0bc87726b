"""Brokers are looked for before Spark is started."""

import socket
from pathlib import Path

import pytest

from penstock.spark.pipeline import CannotRun, load
from penstock.spark.pipeline.brokers import check_brokers
from penstock.spark.pipeline.options import Brokers
from penstock.testing import Broker

FILE = """
pipeline: p
sources:
  s: {topic: t}
  unused: {topic: t, bootstrap: "127.0.0.1:1"}
flows:
  f: {sql: SELECT value FROM s, to: {topic: out, value: raw, bootstrap: "SINK"}}
"""


def test_brokers_that_do_not_answer_are_reported_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
        file = tmp_path / "p.yaml"
        file.write_text(FILE.replace("SINK", nowhere))
        spec = load(file)
        with Broker() as broker:
            with pytest.raises(
                CannotRun,
                match=rf"p.yaml:7: no broker answers at {nowhere} \(.*\): start one with `penstock up`, or set its "
                "address with `bootstrap` in the file or with --server",
            ):
                check_brokers(spec, Brokers(broker.bootstrap))
            file.write_text(FILE.replace("SINK", broker.bootstrap))
            check_brokers(load(file), Brokers(broker.bootstrap))
        with pytest.raises(CannotRun, match=rf"p.yaml:4: no broker answers at {nowhere}"):
            check_brokers(spec, Brokers(nowhere))
