"""The boot marker: proves that a killed broker has lost no write, because its machine did not restart.

Writes of a killed process stay in the kernel's page cache. Unsynced ones are lost when the machine restarts, and may
be lost when a sync fails. `meta/boot` therefore records the boot in which the broker ran:

    {"bootId": "...", "directory": "...", "brokerEpoch": 42, "incarnationId": ""}

It is written when the broker is registered and removed when a sync fails. A marker with another boot id or directory
(a copy, another machine) is ignored: then the stop counts as unclean.

A broker may be killed after the controller has registered it and before it receives the reply. So it saves its
incarnation id before it registers. After a kill in the same boot the broker registers with the same incarnation id,
and the controller treats both requests as one registration.

The file is not synced: a power cut changes the boot id in any case.
"""

import logging
from contextlib import suppress
from typing import NamedTuple

import msgspec

from penstock.base.ids import Uuid, uuid_from_text, uuid_text
from penstock.vfs import Vfs, read_file
from penstock.vfs.files import DRAFT

logger = logging.getLogger(__name__)

BOOT = "boot"
BYTES_MAX = 8192
"""More than any path needs: a longer file is not ours."""


class PreviousRun(NamedTuple):
    """What is known of the broker's previous run."""

    broker_epoch: int = -1
    """Epoch of the last confirmed registration, since which no write was lost; -1 if unknown."""
    incarnation_id: Uuid | None = None
    """Of a registration that was sent and not confirmed."""


class _Note(msgspec.Struct, frozen=True, rename="camel"):
    boot_id: str
    directory: str
    broker_epoch: int
    incarnation_id: str = ""


class BootMarker:
    """The file `meta/boot`. Without a boot id it is neither read nor written."""

    def __init__(self, vfs: Vfs, meta: str, boot_id: str | None) -> None:
        self._vfs = vfs
        self._meta = meta
        self._path = f"{meta}/{BOOT}"
        self._boot_id = boot_id
        self.is_doubted = False
        """A sync has failed in this run: the next one must assume that writes were lost."""

    def read(self) -> PreviousRun:
        """The previous run, if it has certainly lost no write; otherwise empty."""
        try:
            stat = self._vfs.stat(self._path)
            if stat is None or stat.size > BYTES_MAX:
                return PreviousRun()
            note = msgspec.json.decode(read_file(self._vfs, self._path), type=_Note)
            incarnation_id = uuid_from_text(note.incarnation_id) if note.incarnation_id else None
        except (OSError, ValueError):  # unreadable, torn, not UTF-8 or not this format
            return PreviousRun()
        is_here = note.boot_id == self._boot_id and note.directory == self._meta
        return PreviousRun(max(note.broker_epoch, -1), incarnation_id) if is_here else PreviousRun()

    def write(self, run: PreviousRun) -> None:
        """Record that every write from now on survives until the machine restarts."""
        if self._boot_id is None or self.is_doubted or run == PreviousRun():
            return
        incarnation = "" if run.incarnation_id is None else uuid_text(run.incarnation_id)
        note = msgspec.json.encode(_Note(self._boot_id, self._meta, run.broker_epoch, incarnation))
        try:
            file = self._vfs.open(self._path + DRAFT, write=True, create=True)
            try:
                file.truncate(0)
                file.pwrite([note], 0)
            finally:
                file.close()
            self._vfs.rename(self._path + DRAFT, self._path)
        except OSError as error:
            logger.warning("cannot write %s: %s; a kill will count as lost data", self._path, error)
            self.remove()  # its contents are outdated
        if self.is_doubted:  # a sync failed on another thread meanwhile
            self.remove()

    def doubt(self) -> None:
        """Remove the marker after a failed sync: the page cache may have bytes that the disk lacks. Called on any
        thread."""
        if not self.is_doubted:
            self.is_doubted = True
            self.remove()

    def remove(self) -> None:
        try:
            with suppress(FileNotFoundError):
                self._vfs.remove(self._path)
        except OSError as error:
            logger.error("cannot remove %s: %s; restart the machine before this node", self._path, error)
