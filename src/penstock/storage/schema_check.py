"""What a log needs to check that records have a schema: with `schema.validation`, the schema registry's part of
validation.

The registry is above this layer; it gives each log of such a topic a `SchemaCheck`. Ids that are known are checked on
the event loop. A batch with others is inspected (`storage.inspection`), after the registry was asked for what is new.
"""

from typing import Protocol

from penstock.base.promise import Promise
from penstock.records import RecordBatch
from penstock.records.validate import Faults


class RecordCheck(Protocol):
    """What is valid at a moment; may be pickled."""

    def faults(self, batch: RecordBatch, unpacked_max: int) -> Faults:
        """Index and error of each record that is refused."""


class SchemaCheck(RecordCheck, Protocol):
    """The same as far as it is known here now. What it refuses may be valid by now."""

    is_full: bool
    """Whether records must be decoded, which is not done on the event loop."""

    def passes(self, batch: memoryview, last_offset_delta: int) -> bool:
        """Whether a batch is valid for sure: for the fast path of Produce, which knows that its header is."""

    def refreshed(self) -> Promise[RecordCheck]:
        """With everything that was registered before the call."""
