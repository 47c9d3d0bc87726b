"""The registry on three nodes: every node answers, ids are given once, and answers do not go back, also while leaders
move and are killed."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.processes import ClusterProcesses

from penstock.testing import Cluster

SCHEMAS = "_schemas"


def record(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]})


class Registrar(threading.Thread):
    """Registers schemas, some of which others register too, at one node after the other, and reads what it wrote at
    the next. Everything that it saw is checked at the end."""

    def __init__(self, urls: Callable[[], Sequence[str]], number: int, rounds: int) -> None:
        super().__init__(daemon=True)
        self._urls = urls
        self._number = number
        self._rounds = rounds
        self.ids: dict[str, set[int]] = defaultdict(set)
        """By text of the schema."""
        self.faults: list[str] = []
        self.answered = 0
        self._http = httpx.Client(timeout=40)

    def _request(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        """None if the node is down, or could not answer for certain."""
        url = self._urls()[self.answered % 3]
        try:
            response = self._http.request(method, f"{url}{path}", **more)
        except httpx.HTTPError:
            return None
        finally:
            self.answered += 1
        return None if response.status_code >= 500 else response

    def run(self) -> None:
        with self._http:
            for each in range(self._rounds):
                self._one(f"S{each}" if each % 2 else f"S{each}of{self._number}")

    def _one(self, name: str) -> None:
        subject, text = f"{name}-{self._number}", record(name)
        response = self._request("POST", f"/subjects/{subject}/versions", json={"schema": text})
        if response is None:
            return
        if response.status_code != 200:
            self.faults.append(f"register {subject}: {response.text}")
            return
        schema_id = response.json()["id"]
        self.ids[text].add(schema_id)
        for path, found in (
            (f"/subjects/{subject}/versions/latest", lambda body: body["id"] == schema_id),
            (f"/schemas/ids/{schema_id}", lambda body: json.loads(body["schema"]) == json.loads(text)),
            ("/subjects", lambda body: subject in body),
        ):
            read = self._request("GET", path)
            if read is not None and not (read.status_code == 200 and found(read.json())):
                self.faults.append(f"{path} after it was registered as {schema_id}: {read.text}")


def check(registrars: Sequence[Registrar], urls: Sequence[str]) -> int:
    """Check what was seen against each other and against all nodes; return how many schemas there are."""
    assert [fault for each in registrars for fault in each.faults] == []
    by_text: dict[str, set[int]] = defaultdict(set)
    for each in registrars:
        for text, ids in each.ids.items():
            by_text[text] |= ids
    assert all(len(ids) == 1 for ids in by_text.values()), "a schema has one id"
    given = [schema_id for ids in by_text.values() for schema_id in ids]
    assert len(given) == len(set(given)), "an id has one schema"
    answers = []
    for url in urls:
        rows = httpx.get(f"{url}/schemas", timeout=40).raise_for_status().json()
        answers.append(
            sorted((each["subject"], each["version"], each["id"], each["schema"]) for each in rows)
        )
    assert answers[0] == answers[1] == answers[2]
    stored = {schema_id: text for _, _, schema_id, text in answers[0]}
    for text, ids in by_text.items():
        assert json.loads(stored[min(ids)]) == json.loads(text), "what was acknowledged is there"
    return len(by_text)


def test_every_node_has_what_was_registered_at_another() -> None:
    with Cluster(brokers=3, http=True) as cluster:
        urls = [each.registry_url for each in cluster.brokers]
        registrars = [Registrar(lambda: urls, number, 4) for number in range(3)]
        for each in registrars:
            each.start()
        for each in registrars:
            each.join(60)
        assert check(registrars, urls) == 2 + 3 * 2
        leader = cluster.leader_of(SCHEMAS)
        leader.kill()
        others = [each.registry_url for each in cluster.brokers if each is not leader]
        last = max(schema_id for each in registrars for ids in each.ids.values() for schema_id in ids)
        for number, url in enumerate(others):
            body = {"schema": record(f"After{number}")}
            response = httpx.post(f"{url}/subjects/after-{number}/versions", json=body, timeout=40)
            assert response.raise_for_status().json()["id"] == last + 1 + number
        leader.start()
        found = httpx.get(f"{leader.registry_url}/subjects/after-1/versions/latest", timeout=40)
        assert found.raise_for_status().json()["id"] == last + 2


@pytest.mark.long
def test_ids_are_given_once_while_leaders_are_killed(tmp_path: Path) -> None:
    """kill -9 of the leader of `_schemas` again and again, with real processes."""
    with ClusterProcesses(tmp_path, http=True) as cluster:

        def urls() -> list[str]:
            return [f"{each.http_url}/schema-registry" for each in cluster.nodes.values()]

        httpx.post(
            f"{urls()[0]}/subjects/first/versions", json={"schema": record("First")}, timeout=40
        ).raise_for_status()
        registrars = [Registrar(urls, number, 150) for number in range(4)]
        for each in registrars:
            each.start()
        kills = 0
        while any(each.is_alive() for each in registrars):
            leader = _leader(cluster)
            if leader is not None and kills < 12:
                cluster.nodes[leader].kill()
                kills += 1
                registrars[0].join(1.5)
                cluster.nodes[leader].start()
            registrars[0].join(1.5)
        assert kills >= 3
        assert check(registrars, urls()) > 100, cluster.complaints


def _leader(cluster: ClusterProcesses) -> int | None:
    for node in cluster.nodes.values():
        try:
            row = httpx.get(f"{node.http_url}/topics/{SCHEMAS}", timeout=5).raise_for_status().json()
        except httpx.HTTPError:
            continue
        leader: int = row["partitions"][0]["leader"]
        return leader if leader >= 0 else None
    return None
