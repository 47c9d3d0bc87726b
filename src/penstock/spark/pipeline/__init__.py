"""Pipelines: one file declares sources, queries and sinks; `penstock pipeline` runs it on Spark.

    load               loads YAML and Python files
    declare            the Python API
    file_keys          the keys of a file (pydantic)
    parse              builds the model of a file
    spec               the model
    graph              finds the tables that a query reads
    ddl                checks schemas without Spark
    errors             problems and exceptions
    build              builds Spark's streaming queries from the model
    codec              converts between record values and columns
    options            options of the Spark source and sink
    tables             writes Delta tables, each micro-batch once
    packaging          creates the session; ships packages to executors
    run                starts, watches and stops all flows in one session
    progress           progress of a query as numbers
    brokers            checks that brokers answer
    lag                lag of the flows
    state              lock and status file of a run
    report             reports a run to a topic
    secrets            keeps secrets out of reports
    checkpoint         reads a flow's position from its checkpoint
    checkpoint_compat  checks that a checkpoint belongs to its flow

A file is checked without Spark, then analysed by Spark, then run. All files of a run are in the
pipeline's checkpoint directory.
"""

from .declare import Pipeline
from .errors import BadPipeline, CannotRun, FlowFailed
from .load import load
from .spec import PipelineSpec

__all__ = ["BadPipeline", "CannotRun", "FlowFailed", "Pipeline", "PipelineSpec", "load"]
