"""Pipelines: one file declares sources, queries and sinks; `penstock pipeline` runs it on Spark.

    spec      what a file says                   build     from the model to Spark's streaming queries
    checker   values of a file, key by key       codec     values of records to columns, and back
    parse     from plain data to the model       tables    Delta tables, each micro-batch in once
    graph     what a query reads                 fit       whether a checkpoint belongs to the file as it is now
    load      YAML and Python files              state     the runner's lock and its status, for other processes
    declare   a pipeline in Python               progress  what Spark tells of a query, as numbers for people
    errors    sentences                          run       all flows in one session: started, watched, stopped
    ship      what executors need                lag       how far the flows are behind, asked of the brokers
    values    what several parts have            checkpoint  where a flow is, by its files
    ddl       schemas, without Spark             brokers   whether they are there, before Spark is started
    options   for the Spark source and sink

A file is checked without Spark, then analysed by Spark, then run. Everything that a run leaves behind is under the
pipeline's checkpoint directory.
"""

from .declare import Pipeline
from .errors import BadPipeline, CannotRun, FlowFailed
from .load import load
from .spec import PipelineSpec

__all__ = ["BadPipeline", "CannotRun", "FlowFailed", "Pipeline", "PipelineSpec", "load"]
