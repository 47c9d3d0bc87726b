"""A metadata quorum on a disk in memory, in a world that stands still, with a listener that notes what it hears."""

from collections.abc import Sequence

from tests.worlds import StillWorld

from penstock.base.ids import Offset, uuid_from_text
from penstock.controlplane.quorum import MetadataQuorum, Transport
from penstock.controlplane.quorum_settings import QuorumSettings
from penstock.metadata.image import EMPTY, ClusterImage
from penstock.metadata.records import AnyRecord, ConfigRecord
from penstock.raft.voters import Endpoint
from penstock.storage.open_files import OpenFiles
from penstock.vfs import MemoryDisk, Vfs, make_dirs_durably

LOGS = "/data"
DIRECTORY = f"{LOGS}/__cluster_metadata-0"
CLUSTER = "cGVuc3RvY2stZ29sZGVuMA"
DIRECTORY_ID = uuid_from_text("yeRU_49QQnyJsQ9mc4LBBg")
ALONE = QuorumSettings(endpoints=(Endpoint("CONTROLLER", "localhost", 9093),))


def setting(name: str, value: str = "1") -> AnyRecord:
    """A record that any image takes."""
    return ConfigRecord(resource_type=4, resource_name="", name=name, value=value)


def settings_in(image: ClusterImage) -> dict[str, str]:
    return {name: value for values in image.configs.values() for name, value in values.items()}


class Hearer:
    """A listener that keeps the image, and everything that it was told, in order."""

    def __init__(self) -> None:
        self.now: ClusterImage = EMPTY
        self.heard: list[tuple[object, ...]] = []
        self.batches: dict[Offset, tuple[AnyRecord, ...]] = {}
        """By the offset of the last record."""
        self.epoch: int | None = None
        """While it leads."""
        self.failure: str | None = None

    def loaded(self, image: ClusterImage) -> None:
        self.heard.append(("loaded", image.offset))
        self.now = image

    def committed(self, records: Sequence[AnyRecord], offset: int, epoch: int) -> None:
        self.heard.append(("committed", len(records), offset, epoch))
        assert offset not in self.batches
        self.batches[offset] = tuple(records)
        self.now = self.now.replay(records, offset, epoch)

    def advanced(self, high_watermark: int) -> None:
        self.heard.append(("advanced", high_watermark))

    def leading(self, epoch: int) -> None:
        self.heard.append(("leading", epoch))
        self.epoch = epoch

    def resigned(self, epoch: int) -> None:
        self.heard.append(("resigned", epoch))
        self.epoch = None

    def failed(self, reason: str) -> None:
        self.heard.append(("failed",))
        self.failure = reason

    def image(self) -> ClusterImage:
        return self.now


class Bench:
    """One node. `restart` gives the next life on the same disk, or on what a crash left of it."""

    def __init__(
        self,
        disk: Vfs | None = None,
        settings: QuorumSettings = ALONE,
        *,
        world: StillWorld | None = None,
        node_id: int = 1,
        directory_id: bytes = DIRECTORY_ID,
        logs: str = LOGS,
        listener: Hearer | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self.settings = settings
        self.world = world or StillWorld()
        self.logs = logs
        self.hearer = listener or Hearer()
        make_dirs_durably(self.disk, logs)
        self.disk.make_dirs(f"{logs}.meta")
        self.files = OpenFiles(self.disk)
        self.quorum = MetadataQuorum(
            self.world,
            self.disk,
            self.files,
            logs,
            f"{logs}.meta",
            node_id=node_id,
            directory_id=directory_id,
            settings=settings,
            listener=self.hearer,
            transport=transport,
        )

    def start(self) -> "Bench":
        """Start, and let it come to lead."""
        self.quorum.start()
        self.world.advance(50)
        return self

    def propose(self, *records: AnyRecord) -> int:
        assert self.hearer.epoch is not None
        return self.quorum.propose(records, self.hearer.epoch)

    def commit(self, *records: AnyRecord) -> int:
        offset = self.propose(*records)
        self.world.advance(50)
        assert self.quorum.high_watermark > offset
        return offset

    def stop(self) -> None:
        done: list[bool] = []
        self.quorum.stop(lambda: done.append(True))
        self.world.advance(50)
        assert done == [True]

    def restart(self, disk: Vfs | None = None, settings: QuorumSettings | None = None) -> "Bench":
        self.quorum.abandon()
        return Bench(disk or self.disk, settings or self.settings, logs=self.logs).start()

    def names(self, suffix: str = "") -> list[str]:
        directory = f"{self.logs}/__cluster_metadata-0"
        return [entry.name for entry in self.disk.list_dir(directory) if entry.name.endswith(suffix)]
