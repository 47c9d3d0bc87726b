"""Kafka answers an administrator as soon as the controller has decided, and its broker hears of it a little later.

`Patient` goes between a test and a driver, and waits until what was asked for can be seen. Penstock answers when it
can be seen, so nothing is between it and a test.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.compat.clients.driver import SECONDS_MAX, Driver


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "Kafka never showed what it had agreed to"
        time.sleep(0.02)


class Patient:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replicas: int = 1
    ) -> None:
        self._driver.create_topic(topic, partitions, configs, replicas)
        wait_until(lambda: topic in self._driver.topics())

    def delete_topic(self, topic: str) -> None:
        self._driver.delete_topic(topic)
        wait_until(lambda: topic not in self._driver.topics())

    def create_partitions(self, topic: str, total: int) -> None:
        self._driver.create_partitions(topic, total)
        wait_until(lambda: self._driver.partition_count(topic) == total)

    def change_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        self._driver.change_configs(topic, configs)
        self._wait_for(topic, configs)

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._driver.replace_configs(topic, configs)
        self._wait_for(topic, configs)

    def _wait_for(self, topic: str, configs: Mapping[str, str | None]) -> None:
        def shown() -> bool:
            there = self._driver.describe_configs(topic)
            return all(value is None or there[name] == value for name, value in configs.items())

        wait_until(shown)
