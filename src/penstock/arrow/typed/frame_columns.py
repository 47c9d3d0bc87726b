"""The schema ids before many keys or values, parsed at once."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrow.arrays import as_binary, binary_spans, bytes_of
from penstock.arrow.varints import Ints
from penstock.records.schema_framing import ID_FRAME_BYTES, NotFramed, parse_frame

_ID_WEIGHTS = np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)


class Framed(NamedTuple):
    """Where the values of each schema are."""

    by_schema: dict[int | str, Ints]
    """Positions of values by the schema's id or guid."""
    payloads: list[bytes | None]
    """Values without frames; None for null and for what has no frame."""
    reasons: dict[int, str]


def parse_frames(values: pa.Array) -> Framed:
    values = as_binary(values)
    begins, sizes = binary_spans(values)
    data = bytes_of(values)
    is_id = sizes >= ID_FRAME_BYTES
    heads = np.zeros((len(begins), ID_FRAME_BYTES), np.uint8)
    heads[is_id] = data[begins[is_id, None] + np.arange(ID_FRAME_BYTES)]
    is_id &= heads[:, 0] == 0
    ids: npt.NDArray[Any] = heads[:, 1:] @ _ID_WEIGHTS
    items = values.to_pylist()
    payloads: list[bytes | None] = [None if each is None else each[ID_FRAME_BYTES:] for each in items]
    found: dict[int | str, Ints] = {
        int(each): np.flatnonzero(is_id & (ids == each)) for each in np.unique(ids[is_id])
    }
    others: dict[str, list[int]] = {}
    reasons = {}
    for index in np.flatnonzero(~is_id & (sizes >= 0)).tolist():
        try:
            frame = parse_frame(items[index])
        except NotFramed as error:
            payloads[index], reasons[index] = None, str(error)
            continue
        payloads[index] = items[index][frame.payload_at :]
        others.setdefault(frame.guid or "", []).append(index)
    return Framed(
        found | {guid: np.array(places, np.int64) for guid, places in others.items()}, payloads, reasons
    )
