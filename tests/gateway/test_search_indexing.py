"""The topic setting `search.index`, from outside: indexes appear, searches skip, and they go with the setting."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.gateway.http.rest import client_of, write

from penstock.gateway.search import indexing
from penstock.testing import Broker

WAIT_S = 60
"""Far longer than anything here takes."""


def indexes(data: Path, topic: str) -> set[str]:
    return {each.stem for each in data.glob(f"logs/{topic}-0/*.searchindex")}


def wait_for(data: Path, topic: str, count: int) -> set[str]:
    until = time.monotonic() + WAIT_S
    while len(found := indexes(data, topic)) != count:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    return found


def test_sealed_segments_of_a_topic_with_the_setting_are_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "CHECK_MS", 50)
    monkeypatch.setattr(indexing, "PAUSE_MS", 1)
    with Broker(http=True, data=tmp_path) as broker:
        broker.create_topic("plain", segment_bytes=4_000)
        broker.create_topic("indexed", segment_bytes=4_000, search_index=True)
        values = [b"record number %04d " % each * 4 for each in range(100)]
        for topic in ("plain", "indexed"):
            write(broker, topic, values, **{"batch.size": 500})
        sealed = {each.stem for each in tmp_path.glob("logs/indexed-0/*.log")}
        active = max(sealed)
        assert wait_for(tmp_path, "indexed", len(sealed) - 1) == sealed - {active}
        assert not indexes(tmp_path, "plain")
        with client_of(broker) as http:
            ends = {}
            for topic in ("plain", "indexed"):
                found = http.get(
                    f"/topics/{topic}/search", params={"contains": "number 0003"}
                ).text.splitlines()
                ends[topic] = json.loads(found[-1])
                assert ends[topic]["results"] == 1
            assert ends["plain"]["bytes"]["skipped"] == 0
            assert ends["indexed"]["bytes"]["skipped"] > 3_000
        change = ConfigResource(
            ResourceType.TOPIC,
            "indexed",
            incremental_configs=[
                ConfigEntry("search.index", "false", incremental_operation=AlterConfigOpType.SET)
            ],
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for done in admin.incremental_alter_configs([change]).values():
            done.result(WAIT_S)
        wait_for(tmp_path, "indexed", 0)
