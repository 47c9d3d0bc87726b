"""Whether a broker that did not stop cleanly has lost anything: not if it was killed, and its machine went on.

What a process has written is in the kernel's cache, and stays there when the process is killed. It is gone, as far as
it was not synced, when the machine restarts; and it is in doubt when a sync fails. So `meta/boot` says:

    {"bootId": "...", "directory": "...", "brokerEpoch": 42, "incarnationId": ""}

in this boot, in this directory, all that the life with this broker epoch has written is there. It is written when the
broker is registered, and removed when a sync fails. A directory that was copied to another place, or to another
machine, is not believed, nor is a file that says anything else: then the stop was unclean.

A broker may be killed after the controller has registered it and before it hears of that. So before it asks it notes
the incarnation that it registers as; whoever comes after it in this boot, and finds that, goes on as the same, and the
controller has one registration to it, answered twice.

Nothing here is synced: after a power cut there is another boot, whatever is left of the file.
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
"""Much more than a path can make it: a longer file is none of ours."""


class PreviousRun(NamedTuple):
    """What is known of the life before this one."""

    broker_epoch: int = -1
    """Of the last registration that a broker heard of; all that was written since is there. -1: unknown."""
    incarnation_id: Uuid | None = None
    """Of a registration that was asked for, and perhaps made, but not heard of."""


class _Note(msgspec.Struct, frozen=True, rename="camel"):
    boot_id: str
    directory: str
    broker_epoch: int
    incarnation_id: str = ""


class BootMarker:
    """`meta/boot` of a directory. Where the system tells no boot id, it says nothing and is not written."""

    def __init__(self, vfs: Vfs, meta: str, boot_id: str | None) -> None:
        self._vfs = vfs
        self._meta = meta
        self._path = f"{meta}/{BOOT}"
        self._boot_id = boot_id
        self.is_doubted = False
        """A sync has failed in this life: the next one must not believe that everything is there."""

    def read(self) -> PreviousRun:
        """The former life, if it has lost nothing; nothing of it where that cannot be said."""
        try:
            stat = self._vfs.stat(self._path)
            if stat is None or stat.size > BYTES_MAX:
                return PreviousRun()
            note = msgspec.json.decode(read_file(self._vfs, self._path), type=_Note)
            incarnation_id = uuid_from_text(note.incarnation_id) if note.incarnation_id else None
        except (OSError, ValueError):  # unreadable, torn, not UTF-8, or not of this shape
            return PreviousRun()
        is_here = note.boot_id == self._boot_id and note.directory == self._meta
        return PreviousRun(max(note.broker_epoch, -1), incarnation_id) if is_here else PreviousRun()

    def write(self, life: PreviousRun) -> None:
        """From now on, all that is written stays as long as this boot lasts."""
        if self._boot_id is None or self.is_doubted or life == PreviousRun():
            return
        incarnation = "" if life.incarnation_id is None else uuid_text(life.incarnation_id)
        note = msgspec.json.encode(_Note(self._boot_id, self._meta, life.broker_epoch, incarnation))
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
            self.remove()  # what it says is of the past
        if self.is_doubted:  # a sync failed on another thread meanwhile
            self.remove()

    def doubt(self) -> None:
        """A sync has failed: the kernel may show what the disk does not have, and drop it. Called on any thread."""
        if not self.is_doubted:
            self.is_doubted = True
            self.remove()

    def remove(self) -> None:
        try:
            with suppress(FileNotFoundError):
                self._vfs.remove(self._path)
        except OSError as error:
            logger.error("cannot remove %s: %s; restart the machine before this node", self._path, error)
