"""A process of its own: a Spark job with secured connections, whose plans, logs and event log a test searches.

Arguments: the directory for all that it writes, the options of its connections as JSON, and wrong ones.
"""

import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.spark.session import QUICK_START, light_session

LOGGING = """rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {}/spark.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c %m%n%ex
"""


def main(directory: Path, options: dict[str, str], wrong: dict[str, str]) -> None:
    (directory / "events").mkdir()
    (directory / "log4j2.properties").write_text(LOGGING.format(directory))
    spark = light_session(
        "secured",
        "local[2]",
        {
            **QUICK_START,
            "spark.driver.extraJavaOptions": f"{QUICK_START.get('spark.driver.extraJavaOptions', '')} "
            f"-Dlog4j2.configurationFile=file:{directory}/log4j2.properties",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file:{directory}/events",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
        },
    )

    def rows_of(topic: str, given: dict[str, str]) -> Any:
        return spark.read.format("penstock").options(**given).option("subscribe", topic).load()

    def copy(given: dict[str, str]) -> None:
        sink = orders.select("value").write.format("penstock").options(**given)
        sink.option("topic", "copies").mode("append").save()

    orders = rows_of("orders", options)
    modes: Any = spark._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[union-attr]
    shown = [
        orders._jdf.queryExecution().explainString(modes.fromString(each))
        for each in ("simple", "extended", "formatted", "cost", "codegen")
    ]
    assert orders.count() == 3
    copy(options)
    stream = spark.readStream.format("penstock").options(**options)
    stream = stream.option("subscribe", "orders").option("startingOffsets", "earliest")
    writer = stream.load().select("value").writeStream.format("penstock").options(**options)
    writer = writer.option("topic", "copies").option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    shown += [str(query.lastProgress), query._jsq.explainInternal(True)]
    rows_of("copies", options).createOrReplaceTempView("copies")
    shown.append(str(spark.sql("EXPLAIN EXTENDED SELECT count(*) FROM copies").collect()))
    assert spark.sql("SELECT count(*) FROM copies").collect()[0][0] >= 6
    for bad in (
        wrong,
        {**options, "kafka.sasl.mechanism": "PLAINS"},
        {**options, "kafka.sasl.jaas.confg": "x"},
    ):
        shown.append(failure(lambda bad=bad: rows_of("orders", bad).count()))  # type: ignore[misc]
        shown.append(failure(lambda bad=bad: copy(bad)))  # type: ignore[misc]
    api = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    for page in (
        "/environment/",
        "/SQL/",
        "/SQL/execution/?id=0",
        "/SQL/execution/?id=1",
        "/StreamingQuery/",
        "/jobs/",
        f"{api}/sql?details=true&planDescription=true",
        f"{api}/environment",
    ):
        with urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}{page}") as answer:
            shown.append(answer.read().decode())
    spark.stop()
    (directory / "shown.txt").write_text("\n".join(shown))


def failure(act: Callable[[], object]) -> str:
    try:
        act()
    except Exception as error:
        return f"{error!r} {error}"
    raise AssertionError("wrong options were accepted")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
