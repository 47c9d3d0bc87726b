"""Topics made, found and deleted over the wire: what a row needs before it can be measured."""

import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any

from benchmarks.broker.frames import PRODUCE_VERSION
from benchmarks.broker.load import receive_frame
from penstock.wire import (
    Api,
    parse_response_header,
    read_response,
    request_frame,
    request_module,
    write_request,
)

CREATE_VERSION, DELETE_VERSION, LIST_VERSION, API_VERSIONS_VERSION = 7, 6, 7, 3
FIND_VERSION, DESCRIBE_GROUPS_VERSION = 3, 5
LATEST_TIMESTAMP = -1
SECONDS_MAX = 30.0
LEADER_WAIT_SECONDS = 0.02


class AdminError(RuntimeError):
    """A server refused what a row needs."""


class Admin:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)

    def __enter__(self) -> "Admin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, api: Api, version: int, message: Any) -> Any:
        self._socket.sendall(request_frame(api, version, 1, "bench", write_request(api, version, message)))
        reply = memoryview(receive_frame(self._socket))[4:]
        _, body_at = parse_response_header(reply, api, version)
        return read_response(api, version, reply[body_at:])

    def send(self, frame: bytes) -> bytes:
        """A request that was made before, and its reply with its length."""
        self._socket.sendall(frame)
        return receive_frame(self._socket)

    def produce(self, frame: bytes) -> None:
        """Send a Produce that was made before, and see that it succeeded."""
        reply = memoryview(self.send(frame))[4:]
        _, body_at = parse_response_header(reply, Api.PRODUCE, PRODUCE_VERSION)
        for topic in read_response(Api.PRODUCE, PRODUCE_VERSION, reply[body_at:]).responses:
            for each in topic.partition_responses:
                _refuse(each.error_code, f"partition {each.index} of {topic.name} took no records")

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> bytes:
        """Make a topic and wait until all its partitions are led. Its id."""
        module = request_module(Api.CREATE_TOPICS, CREATE_VERSION)
        topic = module.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=tuple(module.CreatableTopicConfig(name=key, value=configs[key]) for key in configs),
        )
        request = module.CreateTopicsRequest(
            topics=(topic,), timeout=timedelta(seconds=SECONDS_MAX), validate_only=False
        )
        [made] = self.ask(Api.CREATE_TOPICS, CREATE_VERSION, request).topics
        _refuse(made.error_code, f"topic {name} was not made: {made.error_message}")
        ends_at = time.monotonic() + SECONDS_MAX
        while not self._is_led(name, partitions):
            if time.monotonic() > ends_at:
                raise AdminError(f"topic {name} has no leaders after {SECONDS_MAX:.0f} s")
            time.sleep(LEADER_WAIT_SECONDS)  # the protocol has no way to be told
        return bytes(made.topic_id.bytes)

    def delete_topic(self, name: str) -> None:
        module = request_module(Api.DELETE_TOPICS, DELETE_VERSION)
        request = module.DeleteTopicsRequest(
            topics=(module.DeleteTopicState(name=name, topic_id=None),),
            timeout=timedelta(seconds=SECONDS_MAX),
        )
        [gone] = self.ask(Api.DELETE_TOPICS, DELETE_VERSION, request).responses
        _refuse(gone.error_code, f"topic {name} was not deleted: {gone.error_message}")

    def await_coordinator(self, group: str) -> None:
        """Ask for a group's coordinator, which makes the topic that groups are kept in, until it answers."""
        finding = request_module(Api.FIND_COORDINATOR, FIND_VERSION).FindCoordinatorRequest(key=group)
        module = request_module(Api.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION)
        describing = module.DescribeGroupsRequest(groups=(group,), include_authorized_operations=False)
        ends_at = time.monotonic() + SECONDS_MAX
        while True:
            code = self.ask(Api.FIND_COORDINATOR, FIND_VERSION, finding).error_code
            if not code:
                [found] = self.ask(Api.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, describing).groups
                code = found.error_code
            if not code:
                return
            if time.monotonic() > ends_at:
                _refuse(code, f"group {group} has no coordinator after {SECONDS_MAX:.0f} s")
            time.sleep(LEADER_WAIT_SECONDS)

    def _is_led(self, name: str, partitions: int) -> bool:
        """Whether the leader of each partition says so itself: the metadata may be ahead of it."""
        module = request_module(Api.LIST_OFFSETS, LIST_VERSION)
        wanted = tuple(
            module.ListOffsetsPartition(
                partition_index=each, current_leader_epoch=-1, timestamp=LATEST_TIMESTAMP
            )
            for each in range(partitions)
        )
        request = module.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=(module.ListOffsetsTopic(name=name, partitions=wanted),),
        )
        [topic] = self.ask(Api.LIST_OFFSETS, LIST_VERSION, request).topics
        return all(each.error_code == 0 for each in topic.partitions)


def api_versions_frame() -> bytes:
    """What every client sends first."""
    module = request_module(Api.API_VERSIONS, API_VERSIONS_VERSION)
    request = module.ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    body = write_request(Api.API_VERSIONS, API_VERSIONS_VERSION, request)
    return request_frame(Api.API_VERSIONS, API_VERSIONS_VERSION, 1, "bench", body)


def _refuse(error_code: int, sentence: str) -> None:
    if error_code:
        raise AdminError(f"{sentence} (error {error_code!r})")
