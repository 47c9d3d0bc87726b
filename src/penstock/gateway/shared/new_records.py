"""Records as doors hand them in, and what becomes of them."""

from typing import NamedTuple, TypeAlias

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.records.builder import Headers


class Placed(NamedTuple):
    """Where a record is."""

    partition: int
    offset: Offset


Outcome: TypeAlias = Placed | KafkaError


class NewRecord(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    idempotency_key: str | None = None


class Fate(NamedTuple):
    outcome: Outcome
    is_in_doubt: bool = False
    """It is an error, and the record may be written all the same: somebody who writes it again may write it twice,
    unless it has an idempotency key."""
