"""The topics of the metadata image, as group coordinators read them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.metadata.image import ClusterImage
from penstock.metadata.image import Topic as ImageTopic

_NO_RACKS: frozenset[str] = frozenset()


class _Topic(NamedTuple):
    """A topic of the image, with the racks of its replicas."""

    brokers_racks: Mapping[int, str]
    """Racks by broker id, of brokers that have one."""
    topic: ImageTopic

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def topic_id(self) -> bytes:
        return self.topic.id

    @property
    def partitions(self) -> int:
        return len(self.topic.partitions)

    def racks(self, partition: int) -> frozenset[str]:
        known = self.brokers_racks
        if not known:
            return _NO_RACKS  # called for every partition when a member joins or leaves
        return frozenset(known[each] for each in self.topic.partitions[partition].replicas if each in known)


class _ByName(Mapping[str, _Topic]):
    def __init__(self, image: ClusterImage, brokers_racks: Mapping[int, str]) -> None:
        self._image = image
        self._brokers_racks = brokers_racks

    def __getitem__(self, name: str) -> _Topic:
        return _Topic(self._brokers_racks, self._image.topics[name])

    def __iter__(self) -> Any:
        return iter(self._image.topics)

    def __len__(self) -> int:
        return len(self._image.topics)

    def __contains__(self, name: object) -> bool:
        return name in self._image.topics


class ImageTopics:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._brokers_racks = {number: each.rack for number, each in image.brokers.items() if each.rack}
        self.version = image.offset
        self.by_name: Mapping[str, _Topic] = _ByName(image, self._brokers_racks)

    def by_id(self, topic_id: bytes) -> _Topic | None:
        topic = self._image.topic_by_id(topic_id)
        return None if topic is None else _Topic(self._brokers_racks, topic)
