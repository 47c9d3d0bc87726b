"""The keys of one topic that are in memory and in the log, and in no file yet.

recent --freeze--> frozen --thaw--> gone: a file has them
                          `-------> recent again: they could not be saved
"""

from penstock.base.ids import Offset
from penstock.gateway.idempotency.entries import PLACE, KeyPlace, unpack_place
from penstock.gateway.idempotency.replay import Found
from penstock.gateway.idempotency.shared import Shared

RECENT_MAX = 8192
"""Keys of a topic in memory: some 1.5 MB. Then they are saved, which takes a thread some twenty milliseconds."""

RECENT_LIMIT = 16 * RECENT_MAX
"""Keys that cannot be saved: no more are taken."""


class RecentKeys:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._recent: dict[bytes, bytes] = {}
        """Digest to packed place, as in files."""
        self._frozen: dict[bytes, bytes] = {}
        """Those on their way into a file."""

    def __len__(self) -> int:
        """How many a next file would have."""
        return len(self._recent)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._recent or digest in self._frozen

    def find(self, digest: bytes) -> KeyPlace | None:
        packed = self._recent.get(digest) or self._frozen.get(digest)
        return unpack_place(packed) if packed else None

    def are_many(self, failures: int = 0) -> bool:
        """Whether it is time for a file; after attempts that failed, later each time."""
        return len(self._recent) >= RECENT_MAX * (1 + failures)

    @property
    def is_full(self) -> bool:
        return len(self._recent) + len(self._frozen) >= RECENT_LIMIT

    # -- keys that come --------------------------------------------------------------------------------

    def note(self, digest: bytes, place: KeyPlace) -> None:
        """A record with a new key was written."""
        self._recent[digest] = PLACE.pack(*place)
        self._shared.noted(1)

    def take(self, number: int, found: Found) -> None:
        """Note keys that the log has: of two records with one key the first counts, while it does."""
        retention_ms = self._shared.retention_ms()
        expired_ms = self._shared.world.now_ms() - retention_ms
        recent = self._recent
        before = len(recent)
        for digest, offset, timestamp in found.keys:
            if timestamp < expired_ms:
                continue
            known = recent.get(digest)
            if known is None or timestamp - unpack_place(known).timestamp > retention_ms:
                recent[digest] = PLACE.pack(number, offset, timestamp)
        self._shared.noted(len(recent) - before)

    # -- keys that go ----------------------------------------------------------------------------------

    def forget_from(self, number: int, offset: Offset) -> None:
        """Forget what there is of a partition from an offset on: the log says it anew."""
        before = len(self._recent)
        self._recent = _without(self._recent, number, offset)
        self._frozen = _without(self._frozen, number, offset)  # a thread may be at the old one
        self._shared.noted(len(self._recent) - before)

    def freeze(self) -> dict[bytes, bytes]:
        """What is to be saved now; it does not change."""
        self._frozen, self._recent = self._recent, {}
        return self._frozen

    def thaw(self, *, is_saved: bool) -> None:
        """The frozen ones are in a file; otherwise they are among the recent ones again."""
        frozen, self._frozen = self._frozen, {}
        if is_saved:
            self._shared.noted(-len(frozen))
        else:
            self._recent = frozen | self._recent


def _without(keys: dict[bytes, bytes], number: int, offset: Offset) -> dict[bytes, bytes]:
    """The keys but those of a partition from an offset on."""
    kept = {}
    for digest, packed in keys.items():
        place = unpack_place(packed)
        if place.partition != number or place.offset < offset:
            kept[digest] = packed
    return kept
