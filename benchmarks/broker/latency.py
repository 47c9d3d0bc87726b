"""End to end: from a producer's call to the consumer's hands, both of them librdkafka in a process of its own.

The producer sends at a steady rate without linger, with acks=1, and puts the monotonic clock's time into each record;
processes of one machine share that clock. The consumer takes records one by one.
"""

import time
from concurrent.futures import Executor

from benchmarks.broker.rows import Line

VALUE_BYTES = 100
SILENCE_SECONDS_MAX = 20.0
WARM_SECONDS = 1.0


def lines(rate: int) -> list[Line]:
    name = f"latency-{rate}"
    work = f"end to end at {rate:,} msg/s"
    return [
        Line(name, f"{work}, p50", "ms", yardstick=""),
        Line(f"{name}-p99", f"{work}, p99", "ms", yardstick=""),
    ]


def end_to_end(pool: Executor, port: int, topic: str, rate: int, seconds: float) -> dict[str, float]:
    """Needs two free processes in the pool."""
    warm = int(rate * min(WARM_SECONDS, seconds))
    count = warm + int(rate * seconds)
    consumed = pool.submit(consume, port, topic, count)
    pool.submit(produce, port, topic, count, rate).result()
    latencies = sorted(consumed.result()[warm:])
    name = f"latency-{rate}"
    return {
        name: latencies[len(latencies) // 2] / 1e6,
        f"{name}-p99": latencies[len(latencies) * 99 // 100] / 1e6,
    }


def produce(port: int, topic: str, count: int, rate: int) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415  # only these processes need it

    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 0, "acks": 1, "socket.nagle.disable": True}
    )
    padding = b"x" * (VALUE_BYTES - 8)
    producer.list_topics(topic, timeout=SILENCE_SECONDS_MAX)
    started = time.monotonic_ns()
    for number in range(count):
        due = started + number * 1_000_000_000 // rate
        ahead = due - time.monotonic_ns()
        if ahead > 0:
            time.sleep(ahead / 1e9)
        producer.produce(topic, time.monotonic_ns().to_bytes(8, "big") + padding, partition=0)
        producer.poll(0)
    if left := producer.flush(SILENCE_SECONDS_MAX):
        raise TimeoutError(f"{left} records were not acknowledged within {SILENCE_SECONDS_MAX:.0f} s")


def consume(port: int, topic: str, count: int) -> list[int]:
    """How old each record was when it came, in ns."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "fetch.min.bytes": 1,
            "socket.nagle.disable": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    ages = []
    try:
        while len(ages) < count:
            message = consumer.poll(SILENCE_SECONDS_MAX)
            now = time.monotonic_ns()
            if message is None:
                raise TimeoutError(
                    f"no record within {SILENCE_SECONDS_MAX:.0f} s, {len(ages)} of {count} came"
                )
            if message.error():
                raise RuntimeError(f"the consumer was told: {message.error()}")
            ages.append(now - int.from_bytes(message.value()[:8], "big"))
    finally:
        consumer.close()
    return ages
