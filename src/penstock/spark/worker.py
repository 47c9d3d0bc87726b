"""What a Python worker of Spark's is told once, before its first task.

Spark has a worker collect garbage after every task, and that looks at every object there is. Nearly all of them are
modules with their functions, which stay as long as the worker does: looking at them takes some 40 ms, as long as
reading 50 MB. What is frozen is not looked at.
"""

import gc
import os
from functools import cache

_REUSED = "SPARK_REUSE_WORKER"
"""Set by Spark for workers that do one task after the other."""


@cache
def settle() -> None:
    """Called when a task or its planning begins, with all that it needs imported; does nothing outside of a worker."""
    if os.environ.get(_REUSED):
        gc.freeze()
