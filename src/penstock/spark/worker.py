"""Sets up a Python worker of Spark, once, before its first task.

Spark makes a worker collect garbage after every task, which visits every object. Nearly all objects are modules and
their functions, which live as long as the worker: visiting them takes some 40 ms, as long as reading 50 MB. Frozen
objects are not visited.
"""

import gc
import os
from functools import cache

_REUSED = "SPARK_REUSE_WORKER"
"""Set by Spark for workers that do one task after the other."""


@cache
def settle() -> None:
    """Freeze the objects that exist now. Call when a task begins, after its imports; a no-op outside a worker."""
    if os.environ.get(_REUSED):
        gc.freeze()
