"""The last fault of a run with rollbacks: all nodes lose their metadata at once, or get an older state of it.

Everything was read, and all nodes are down. The metadata log of each node is removed, or put back as it was at an
earlier stop; the record of its end (`meta/metadata-synced`) is removed or kept. Then all nodes start, and a client
creates the topics again. Rule `RecordsAreKept`: every record that was on a disk before is still on it, in its
partition or in a stray, even if nodes refuse to start.
"""

from collections.abc import Callable, Iterable
from random import Random

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition
from penstock.controlplane.synced_end import METADATA_SYNCED
from penstock.server.node import Node
from penstock.sim.checkers.disks import DATA, read_records
from penstock.sim.checkers.violation import Violation
from penstock.sim.clients import messages
from penstock.sim.clients.client import Client, ClientContext, code_name
from penstock.sim.faults.rollbacks import METADATA, Files, forget_boot, put_back, take_away
from penstock.sim.scenario import TopicPlan
from penstock.sim.world.machine import Machine
from penstock.storage import names
from penstock.storage.layout import layout_of
from penstock.vfs import MemoryDisk

LASTS_US = 100_000_000
"""How long the nodes run: longer than a broker waits for a controller, and than deleted files are kept."""

Records = set[tuple[Offset, bytes]]


class AllMetadataLost:
    def __init__(
        self,
        machines: list[Machine],
        copies: dict[Machine, list[dict[str, Files]]],
        topics: Iterable[str],
        rng: Random,
        trace: Callable[[str], None],
    ) -> None:
        """`topics` have neither compaction nor retention, and no client deletes their records."""
        self._machines = machines
        self._copies = copies
        self._topics = frozenset(topics)
        self._rng = rng
        self._trace = trace
        self._before: dict[Machine, dict[TopicPartition, Records]] = {}

    def begin(self) -> None:
        """Remove or roll back the metadata of all nodes, which are down, and start them."""
        rng = self._rng
        goes_back, knows_end = rng.random() < 0.5, rng.random() < 0.3
        for machine in self._machines:
            self._before[machine] = self._records_on(machine.disk)
            copies = self._copies[machine]
            done = put_back(machine.disk, METADATA, rng.choice(copies)) if goes_back and copies else None
            done = done or take_away(machine.disk, METADATA)
            self._trace(f"{machine.host}: {done}, and {'knows' if knows_end else 'does not know'} of its end")
            forget_boot(machine.disk)
            path = f"{layout_of(machine.disk, DATA).meta}/{METADATA_SYNCED}"
            if not knows_end and machine.disk.stat(path) is not None:
                machine.disk.remove(path)
            machine.make_unwatched(Node)
            machine.start()

    def check(self) -> None:
        """RecordsAreKept: raise if a record that was on a disk is missing."""
        for machine, before in self._before.items():
            after = self._records_on(machine.disk)
            for at, records in before.items():
                gone = sorted(records - after.get(at, set()))
                if gone:
                    raise Violation(
                        f"RecordsAreKept: {machine.host} had {len(records)} records of {at} and lost {len(gone)} "
                        f"with its metadata, the first at {gone[0][0]}"
                    )

    def _records_on(self, disk: MemoryDisk) -> dict[TopicPartition, Records]:
        """Return the records of each partition, including those in its strays."""
        logs = layout_of(disk, DATA).logs
        found: dict[TopicPartition, Records] = {}
        for entry in disk.list_dir(logs):
            at = names.parse_partition_dir(entry.name) or names.parse_stray_dir(entry.name)
            if entry.is_dir and at is not None and at.topic in self._topics:
                found.setdefault(at, set()).update(read_records(disk, f"{logs}/{entry.name}").items())
        return found


class TopicCreator(Client):
    """Creates topics once, unless they exist."""

    def __init__(self, topics: Iterable[TopicPlan], context: ClientContext) -> None:
        super().__init__("creator", context)
        self._topics = [
            messages.NewTopic(each.name, each.partition_count, {}, each.replication) for each in topics
        ]

    def ready(self) -> None:
        self.call(messages.create_topics(self._topics), self._created)

    def _created(self, created: dict[str, messages.TopicCreated]) -> None:
        codes = [each.code for each in created.values()]
        self.trace(f"creates the topics again: {', '.join(map(code_name, codes))}")
        if any(code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) for code in codes):
            self.again_soon(self.ready)
