"""`penstock reassign` from end to end, on a broker alone: the same on Penstock and on Apache Kafka."""

import json
from pathlib import Path
from typing import Any

from tests.cli.wire_tour import Shell


def alone(shell: Shell, tmp_path: Path) -> None:
    """Of a single broker, which is all that it says no to."""
    shell("topics", "create", "moved", "--partitions", 2, "--replication-factor", 1)
    (partition, _) = shell.json("topics", "describe", "moved")["topics"][0]["partitionList"]
    [broker] = partition["replicas"]

    assert shell("reassign", "plan", "moved") == "Nothing has to move.\n"
    planned = shell.json("reassign", "plan", "moved", "--brokers", broker)
    assert planned["copies"] == 0
    rows = [{"topic": "moved", "partition": n, "replicas": [broker], "log_dirs": ["any"]} for n in (0, 1)]
    assert (planned["partitions"], planned["current"]["partitions"]) == (rows, rows)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(planned))

    assert shell("reassign", "status") == "Nothing moves.\n"
    told = shell.json("reassign", "apply", file, "--throttle", 12345, "--wait")
    assert (told["begun"], told["refused"], told["done"]) == (["moved-0", "moved-1"], {}, True)
    assert told["before"]["partitions"] == rows
    assert throttles(shell, broker, "moved") == {}
    told = shell.json("reassign", "apply", file, "--throttle", 12345)
    assert set(throttles(shell, broker, "moved")) == {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
    done = shell.json("reassign", "status", file)
    assert [each["state"] for each in done["partitions"]] == ["done", "done"]
    assert done["throttlesCleared"] == ["topic moved", f"broker {broker}"]
    assert throttles(shell, broker, "moved") == {}
    assert shell("reassign", "cancel", file) == "Nothing moves.\n"
    refusals(shell, tmp_path, broker)
    shell("topics", "delete", "moved", "--yes")


def refusals(shell: Shell, tmp_path: Path, broker: int) -> None:
    def refused(*arguments: object, row: dict[str, Any] | None = None) -> str:
        document = {"version": 1, "partitions": [row]}
        (tmp_path / "bad.json").write_text(json.dumps(document))
        outcome = shell.try_("reassign", *arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.count("\n") == 1
        return outcome.err

    bad = tmp_path / "bad.json"
    elsewhere = {"topic": "moved", "partition": 0, "replicas": [4711]}
    assert f"there is no broker 4711; the cluster has {broker}" in refused("apply", bad, row=elsewhere)
    beyond = {"topic": "moved", "partition": 7, "replicas": [broker]}
    assert "moved-7" in refused("apply", bad, row=beyond)
    unknown = {"topic": "nope", "partition": 0, "replicas": [broker]}
    assert "topic nope" in refused("apply", bad, row=unknown)
    assert "topic nope" in refused("plan", "nope")
    assert "there is no broker 4711" in refused("plan", "moved", "--brokers", 4711)
    assert "expected broker ids" in refused("plan", "moved", "--brokers", "1,x")
    assert "twice" in refused("plan", "moved", "--brokers", "1,1")
    assert "2 replicas of a partition need 2 brokers" in refused("plan", "moved", "--replication-factor", 2)
    assert "either a file or --all" in refused("cancel")
    assert "No such file" in refused("apply", tmp_path / "none.json")


def throttles(shell: Shell, broker: int, topic: str) -> dict[str, str]:
    """What holds replication back, as far as somebody has said so."""
    found = {}
    for target, own in ((("topic", topic), "topic"), (("broker", broker), "broker")):
        for each in shell.json("configs", "describe", *target)["configs"]:
            if "throttled" in each["name"] and each["source"] == own:
                found[each["name"]] = each["value"]
    return found
