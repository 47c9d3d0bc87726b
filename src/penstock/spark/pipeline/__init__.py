"""Pipelines: one file declares sources, queries and sinks; `penstock pipeline` runs it on Spark.

    load        YAML and Python files            build       from the model to Spark's streaming queries
    declare     a pipeline in Python             codec       values of records to columns, and back
    file_keys   the keys of a file (pydantic)    options     options of the Spark source and sink
    parse       from the file to the model       tables      Delta tables, each micro-batch once
    spec        the model                        packaging   what executors need
    graph       what a query reads               run         all flows in one session: start, watch, stop
    ddl         schemas, without Spark           progress    a query's progress as numbers
    brokers     whether brokers answer           lag         how far the flows are behind
    errors      problems and exceptions          state       the lock and the status of a run
    checkpoint  a flow's position by its files   checkpoint_compat  whether a checkpoint fits the file

A file is checked without Spark, then analysed by Spark, then run. Everything that a run leaves behind is under the
pipeline's checkpoint directory.
"""

from .declare import Pipeline
from .errors import BadPipeline, CannotRun, FlowFailed
from .load import load
from .spec import PipelineSpec

__all__ = ["BadPipeline", "CannotRun", "FlowFailed", "Pipeline", "PipelineSpec", "load"]
