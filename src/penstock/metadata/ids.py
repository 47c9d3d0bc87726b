"""Ids that mean something special."""

from penstock.base.ids import Uuid
from penstock.records.structs import NO_UUID

DIRECTORY_MIGRATING: Uuid = NO_UUID
"""From before directories were recorded."""
DIRECTORY_UNASSIGNED: Uuid = (1).to_bytes(16, "big")
"""The broker has not reported yet which directory holds the replica."""
DIRECTORY_LOST: Uuid = (2).to_bytes(16, "big")
"""The directory failed, and which one it was is not known."""
