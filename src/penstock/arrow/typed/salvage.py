"""Decodes many values at once, and one by one where that fails.

A decoder of many values fails for all of them if one is bad. Then the values are split, and each part is decoded, down
to pieces of `PIECE` values, which are decoded one by one. One bad value among a million costs about one more decoding
of all.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.arrow.typed.errors import NotDecodable

PIECE: Final = 64
PARTS: Final = 16

Reasons = dict[int, str]
"""Why values did not decode, by their positions."""


class Decoded(NamedTuple):
    array: pa.Array
    reasons: Reasons


AllAtOnce = Callable[[Sequence[bytes]], pa.Array]
"""Raises anything if one of the values is bad."""
OneByOne = Callable[[bytes], Any]
"""A Python value for Arrow. Raises NotDecodable."""


Piecewise = Callable[[Sequence[bytes]], Decoded]
"""Decodes each of a few values, with the reasons of those that fail."""


def decode_all(payloads: Sequence[bytes], fast: AllAtOnce | None, slow: Piecewise) -> Decoded:
    pieces: list[pa.Array] = []
    reasons: Reasons = {}

    def decode(first: int, last: int) -> None:
        some = payloads[first:last]
        if fast is not None:
            try:
                pieces.append(fast(some))
                return
            except Exception:  # whatever a library raises; the reason is found below
                pass
            except BaseException as error:
                if type(error).__name__ != "PanicException":  # of Rust: the library names no class for it
                    raise
            if last - first > PIECE:
                step = max(PIECE, -(-(last - first) // PARTS))
                for start in range(first, last, step):
                    decode(start, min(start + step, last))
                return
        found = slow(some)
        pieces.append(found.array)
        reasons.update((first + index, why) for index, why in found.reasons.items())

    decode(0, len(payloads))
    return Decoded(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces), reasons)


class Slow:
    """Decodes values one by one."""

    def __init__(
        self, one: OneByOne, decoded_type: pa.DataType, finish: Callable[[pa.Array], pa.Array]
    ) -> None:
        self._one = one
        self._type = decoded_type
        self._finish = finish
        """From the decoder's type to the column's."""

    def __call__(self, payloads: Sequence[bytes]) -> Decoded:
        values: list[Any] = []
        reasons: Reasons = {}
        for index, payload in enumerate(payloads):
            try:
                values.append(self._one(payload))
            except NotDecodable as error:
                values.append(None)
                reasons[index] = str(error)
        try:
            return Decoded(self._array(values), reasons)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass
        for index, value in enumerate(values):
            try:
                self._array([value])
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                values[index] = None
                reasons[index] = f"a value does not fit its column: {error}"
        return Decoded(self._array(values), reasons)

    def _array(self, values: list[Any]) -> pa.Array:
        return self._finish(pa.array(values, self._type))
