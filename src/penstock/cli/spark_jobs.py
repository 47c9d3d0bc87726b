"""Shared by `penstock archive`, `audit` and `replay`: options, a Spark session, and failures as one sentence."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.errors import KafkaError
from penstock.base.extras import install_hint
from penstock.cli.connecting import Target
from penstock.cli.output import Refused
from penstock.spark.pipeline.errors import CannotRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ArchiveDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="The archive's directory.")]
Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="A Spark master; its executors need DIR under the same path."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; repeatable."),
]
ResultAsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@contextmanager
def spark_session(name: str, master: str, conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """A session like a pipeline's: executors get the packages they need. Java's output goes to a temporary file."""
    from penstock.spark.pipeline.packaging import session  # noqa: PLC0415  # help works without the extra
    from penstock.spark.pipeline.spec import PipelineSpec  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="penstock-") as scratch:
        at = Path(scratch)
        spec = PipelineSpec(name, at, None, scratch, at, {}, (), (), ())
        with session(spec, master=master, conf=conf, log=at / "spark.log") as spark:
            yield spark


def client_options(target: Target) -> dict[str, str]:
    """The security of a command's connections as options of the source and the sink, without secrets."""
    if target.config is None:
        return {}
    options = {f"kafka.{name}": text for name, text in target.config.properties.from_environment.items()}
    return options if target.file is None else {"clientConfig": os.path.abspath(target.file), **options}


@contextmanager
def refusing() -> Iterator[None]:
    """Turn errors of brokers, Spark and missing packages into Refused."""
    try:
        yield
    except (KafkaError, CannotRun) as error:
        raise Refused(str(error)) from error
    except ImportError as error:
        raise Refused(
            f"this command needs {error.name or error}, which is not installed: {install_hint('spark')}"
        ) from error
