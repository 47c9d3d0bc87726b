"""Users of the REST side: records written by a Kafka client, and read over HTTP."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from confluent_kafka import Producer

from penstock.testing import Broker


def producer(broker: Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, **settings})


def write(
    broker: Broker,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamps: Sequence[int] | None = None,
    **settings: Any,
) -> None:
    """Write records as a Kafka client does, and wait until all are acknowledged."""
    failed: list[Any] = []
    client = producer(broker, **settings)
    for index, value in enumerate(values):
        client.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            headers=list(headers),
            timestamp=0 if timestamps is None else timestamps[index],
        )
    assert client.flush(30) == 0
    assert not failed


@contextmanager
def client_of(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=30) as client:
        yield client


def error_of(response: httpx.Response, status: int) -> Mapping[str, Any]:
    """What is wrong, as every error says it."""
    assert response.status_code == status, response.text
    error: Mapping[str, Any] = response.json()["error"]
    assert error["message"]
    return error
