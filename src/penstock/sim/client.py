"""A client's connection: finds out versions, sends requests, hears replies, waits so long and no longer.

A client has one connection. When that is lost, whatever was open is lost too, and the client dials again after a
while. Versions are drawn anew for each connection from what the node says it serves, so that over many runs every
version of every request meets every situation.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from penstock.base.errors import ErrorCode
from penstock.sim import history, speech
from penstock.sim.network import Link, Network
from penstock.sim.schedule import Event, Schedule
from penstock.wire import KAFKA_RANGES, Api, parse_response_header, request_frame

REQUEST_TIMEOUT_US = 8_000_000
"""Longer than anything takes that works: a reply that is not there by then never comes."""

METADATA_VERSION_MIN = 10
"""The first that tells a topic's id."""

FRAME_BYTES_MAX = 1 << 24


class BadReply(Exception):
    """A client cannot make sense of what it received."""


class Recorder(Protocol):
    """Where clients put down what they saw."""

    def record(self, event: history.Event) -> None: ...

    def trace(self, line: str) -> None: ...


@dataclass(frozen=True)
class Stage:
    """What all clients share."""

    schedule: Schedule
    network: Network
    recorder: Recorder


@dataclass
class Pending:
    correlation_id: int
    api: Api
    version: int
    heard: Callable[[int, memoryview], None]
    lost: Callable[[], None]
    timer: Event


class Client:
    """Connects by itself once started. What to do with a connection is said by `ready`."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self.stage = stage
        self.rng: Random = stage.schedule.rng(f"client {name}")
        self.link: Link | None = None
        self.versions: dict[Api, int] = {}
        self._pending: deque[Pending] = deque()
        self._received = bytearray()
        self._correlation_id = 0
        self._is_dialling = False
        self._is_over = False

    # -- for subclasses --------------------------------------------------------------------------------

    def ready(self) -> None:
        """There is a connection, and its versions are known."""
        raise NotImplementedError

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        """Of the versions that both sides know, those that this client may use."""
        return low, high

    def disconnected(self) -> None:
        """The connection is gone, and everything that was open on it was told so."""

    # -- connecting ------------------------------------------------------------------------------------

    def start(self) -> None:
        self.stage.schedule.later(self.rng.randrange(1, 30_000), self._dial)

    def end(self) -> None:
        """Do nothing any more."""
        self._is_over = True
        self.hang_up()

    @property
    def incarnation(self) -> int:
        """Which process of the node it talks to."""
        assert self.link is not None
        return self.link.world.incarnation

    def hang_up(self) -> None:
        if self.link is not None:
            link, self.link = self.link, None
            link.close()
            self._lose_all()

    def _dial(self) -> None:
        if self._is_dialling or self._is_over or self.link is not None:
            return
        self._is_dialling = True
        self.stage.network.connect(self)

    def _dial_again(self) -> None:
        if not self._is_over:
            self.later(self.rng.randrange(5_000, 100_000), self._dial)

    def connected(self, link: Link) -> None:
        self._is_dialling = False
        if self._is_over:
            link.close()
            return
        self.link = link
        self._received.clear()
        version = self.rng.randint(*KAFKA_RANGES[Api.API_VERSIONS])
        self._request(Api.API_VERSIONS, version, speech.api_versions(version), self._learn_versions)

    def refused(self) -> None:
        self._is_dialling = False
        self._dial_again()

    def closed(self, link: Link) -> None:
        if link is self.link:
            self.trace("lost its connection")
            self.link = None
            self._lose_all()

    def _lose_all(self) -> None:
        pending, self._pending = self._pending, deque()
        for each in pending:
            each.timer.cancel()
        for each in pending:
            each.lost()
        self.disconnected()
        self._dial_again()

    def _learn_versions(self, version: int, body: memoryview) -> None:
        served = speech.read_api_versions(version, body)
        self.versions = {}
        for api, known in KAFKA_RANGES.items():
            low, high = served.get(api, (1, 0))
            low = max(low, known.min, METADATA_VERSION_MIN if api is Api.METADATA else 0)
            high = min(high, known.max)
            low, high = self.narrow(api, low, high)
            if low <= high:
                self.versions[api] = self.rng.randint(low, high)
        self.ready()

    # -- asking ----------------------------------------------------------------------------------------

    def ask(
        self,
        api: Api,
        body: bytes,
        heard: Callable[[int, memoryview], None],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a request in the version of this connection; then exactly one of the two is called."""
        self._request(api, self.versions[api], body, heard, lost)

    def tell(self, api: Api, body: bytes) -> None:
        """Send a request that has no reply."""
        assert self.link is not None
        self._correlation_id += 1
        self.link.send(request_frame(api, self.versions[api], self._correlation_id, self.name, body))

    def _request(
        self,
        api: Api,
        version: int,
        body: bytes,
        heard: Callable[[int, memoryview], None],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        assert self.link is not None
        self._correlation_id += 1
        what = f"{api.label} {version} with id {self._correlation_id}"
        timer = self.stage.schedule.later(REQUEST_TIMEOUT_US, lambda: self._time_out(what))
        self._pending.append(Pending(self._correlation_id, api, version, heard, lost, timer))
        self.link.send(request_frame(api, version, self._correlation_id, self.name, body))

    def _time_out(self, what: str) -> None:
        assert self.link is not None
        self.record(history.Overdue(self.name, what, self.link.is_node_there))
        self.hang_up()

    # -- hearing ---------------------------------------------------------------------------------------

    def received(self, link: Link, data: bytes) -> None:
        if link is not self.link:
            return
        self._received += data
        while link is self.link and len(self._received) >= 4:
            length = int.from_bytes(self._received[:4], "big", signed=True)
            if not 4 <= length <= FRAME_BYTES_MAX:
                raise BadReply(f"{self.name} received a frame that says it has {length} bytes")
            if len(self._received) < 4 + length:
                return
            frame = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            self._hear(memoryview(frame))

    def _hear(self, frame: memoryview) -> None:
        assert self.link is not None
        found = int.from_bytes(frame[:4], "big", signed=True)
        expected = self._pending[0].correlation_id if self._pending else -1
        self.record(history.Replied(self.name, self.link.number, expected, found))
        pending = self._pending.popleft()
        pending.timer.cancel()
        _, body_at = parse_response_header(frame, pending.api, pending.version)
        pending.heard(pending.version, frame[body_at:])

    # -- small things ----------------------------------------------------------------------------------

    def later(self, delay_us: int, call: Callable[[], None]) -> Event:
        return self.stage.schedule.later(delay_us, call)

    def again_soon(self, call: Callable[[], None]) -> None:
        """Do something a little later, if the connection is the same then."""
        link = self.link

        def again() -> None:
            if link is self.link and link is not None:
                call()

        self.later(self.rng.randrange(2_000, 30_000), again)

    def record(self, event: history.Event) -> None:
        self.stage.recorder.record(event)

    def trace(self, line: str) -> None:
        self.stage.recorder.trace(f"{self.name} {line}")


def code_name(code: int) -> str:
    return ErrorCode(code).name


class TopicClient(Client):
    """A client of one topic: goes on when the topic is there."""

    creates_topic = False
    """Whether asking for the topic may create it."""

    def __init__(self, name: str, stage: Stage, topic: str) -> None:
        super().__init__(name, stage)
        self.topic = speech.TopicName(topic, None)
        self.partitions: list[int] = []

    def topic_ready(self) -> None:
        """There is a connection, and the topic is known."""
        raise NotImplementedError

    def ready(self) -> None:
        self._find_topic()

    def _find_topic(self) -> None:
        if self.link is None:
            return
        version = self.versions[Api.METADATA]
        body = speech.metadata(version, [self.topic.name], create=self.creates_topic)
        self.ask(Api.METADATA, body, self._found_topic)

    def _found_topic(self, version: int, body: memoryview) -> None:
        (seen,) = speech.read_metadata(version, body)
        if seen.code or not seen.partitions:
            self.trace(f"finds {self.topic.name}: {code_name(seen.code)}")
            self.again_soon(self._find_topic)
            return
        self.topic, self.partitions = seen.topic, seen.partitions
        self.record(history.TopicMet(seen.topic.name, seen.topic.id, len(seen.partitions)))
        self.topic_ready()


class Admin(Client):
    """Creates the topics of a run, and has done its part."""

    def __init__(self, stage: Stage, topics: list[tuple[str, int, dict[str, str]]]) -> None:
        super().__init__("admin", stage)
        self._topics = topics

    @property
    def is_done(self) -> bool:
        return not self._topics

    def ready(self) -> None:
        if self._topics and self.link is not None:
            body = speech.create_topics(self.versions[Api.CREATE_TOPICS], self._topics)
            self.ask(Api.CREATE_TOPICS, body, self._created)

    def _created(self, version: int, body: memoryview) -> None:
        for name, code in speech.read_create_topics(version, body).items():
            self.trace(f"creates {name}: {code_name(code)}")
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._topics = [each for each in self._topics if each[0] != name]
            elif code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST):
                raise ValueError(f"the topic {name} of the scenario is refused: {code_name(code)}")
        if self._topics:
            self.later(20_000, self.ready)
