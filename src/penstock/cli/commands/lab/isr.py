"""`penstock lab isr`: stops and restarts one of three brokers, and shows how the in-sync replicas change.

Each broker is a process. Each step reads leaders, in-sync replicas, high watermarks and log ends through the client
protocol.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.cli import cluster_nodes as nodes
from penstock.cli import labs
from penstock.cli.cluster_nodes import ClusterOptions, Layout
from penstock.cli.labs import Claim, Json, Keep, print_claims, print_lines
from penstock.cli.output import Refused, counted, print_json, print_table
from penstock.client.admin import NewTopic, create_topics
from penstock.client.cluster import Cluster
from penstock.client.offsets import LATEST, list_offsets
from penstock.client.producer import Producer
from penstock.client.replicas import log_ends
from penstock.client.settings import parse_servers

TOPIC: Final = "lab.isr"
BROKERS: Final = 3
PARTITIONS: Final = 3
MIN_IN_SYNC: Final = 2
MESSAGES: Final = 300
"""Sent at each step; keys spread them over the partitions."""
WAIT_S_MAX: Final = 60.0
LOOK_EVERY_S: Final = 0.1


def isr_command(keep: Keep = None, as_json: Json = False) -> int:
    """See replicas fall out of sync and catch up.

    Starts three brokers as processes on free ports, and stops one while the others receive records. Each step shows
    leader, in-sync replicas and log ends. The exit code is 1 if they contradict the explanation.

    \b
    penstock lab isr
    penstock lab isr --keep ./lab
    """
    with labs.workplace(keep) as data:
        wanted = ClusterOptions(
            BROKERS,
            with_http=False,
            with_line=False,
            settings={"min.insync.replicas": str(MIN_IN_SYNC)},
        )
        layout = nodes.make_layout(Path(data), wanted)
        if not as_json:
            print_lines("Starting three brokers, each a process ...")
        nodes.start_nodes(layout, layout.nodes)
        try:
            story = _experiment(layout)
        except KafkaError as error:
            raise Refused(str(error)) from error
        finally:
            if keep is None:  # the data is deleted anyway
                for each in layout.nodes:
                    nodes.kill_node(layout, each)
            else:
                nodes.stop_nodes(layout, layout.nodes)
        claims = judge(story)
        if as_json:
            print_json({"directory": None if keep is None else str(keep), **_document(story, claims)})
        else:
            _show(story, claims, keep)
        return labs.verdict(claims, "the cluster contradicts this")


class PartitionState(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    high_watermark: int
    log_ends: dict[str, int]
    """By broker; brokers that are down are missing."""


class ClusterState(NamedTuple):
    what: str
    partitions: list[PartitionState]

    @property
    def visible(self) -> int:
        """Records that consumers may read."""
        return sum(each.high_watermark for each in self.partitions)


class IsrExperiment(NamedTuple):
    stopped: int
    """The broker that stops: the one that leads partition 0."""
    before: ClusterState
    without: ClusterState
    written: ClusterState
    back: ClusterState
    shrunk_s: float
    caught_up_s: float


def _experiment(layout: Layout) -> IsrExperiment:
    with Cluster(parse_servers(layout.bootstrap)) as cluster:
        [outcome] = create_topics(cluster, [NewTopic(TOPIC, PARTITIONS, BROKERS)])
        if outcome.error is not None:
            raise outcome.error
        producer = Producer(cluster)
        _send(producer, 0)
        before = _until(cluster, "all three are in sync", lambda step: _are_all_level(step, BROKERS))
        stopped = before.partitions[0].leader
        node = layout.node(stopped)
        began = time.monotonic()
        nodes.stop_nodes(layout, [node])
        without = _until(
            cluster,
            f"broker {stopped} has stopped",
            lambda step: all(stopped not in each.isr and each.leader >= 0 for each in step.partitions),
        )
        shrunk_s = time.monotonic() - began
        _send(producer, MESSAGES)
        written = _until(
            cluster,
            f"{MESSAGES} more messages, without broker {stopped}",
            lambda step: _are_all_level(step, BROKERS - 1),
        )
        began = time.monotonic()
        nodes.start_nodes(layout, [node])
        back = _until(cluster, f"broker {stopped} has returned", lambda step: _are_all_level(step, BROKERS))
        return IsrExperiment(stopped, before, without, written, back, shrunk_s, time.monotonic() - began)


def _send(producer: Producer, first: int) -> None:
    """Send with acks=all, the producer's default: return when all in-sync replicas have the messages."""
    for number in range(first, first + MESSAGES):
        producer.send(TOPIC, b"key-%d" % number, b"message %d" % number)
    producer.flush()


def _until(cluster: Cluster, what: str, holds: Callable[[ClusterState], bool]) -> ClusterState:
    """Poll the cluster until the condition holds."""
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        step = _look(cluster, what)
        if step is not None and holds(step):
            return step
        if time.monotonic() > deadline:
            raise Refused(f"this did not happen within {WAIT_S_MAX:.0f} s: {what}")
        time.sleep(LOOK_EVERY_S)


def _look(cluster: Cluster, what: str) -> ClusterState | None:
    """None while a partition has no leader."""
    topic = cluster.refresh([TOPIC]).topics[TOPIC]
    if topic.error_code or any(each.leader < 0 for each in topic.partitions.values()):
        return None
    names = {number: TopicPartition(TOPIC, number) for number in topic.partitions}
    visible = list_offsets(cluster, dict.fromkeys(names.values(), LATEST))
    ends = log_ends(
        cluster, {names[number]: each.replicas for number, each in topic.partitions.items()}, 1000
    )
    return ClusterState(
        what,
        [
            PartitionState(
                number,
                each.leader,
                each.leader_epoch,
                list(each.replicas),
                sorted(each.isr),
                visible[names[number]].offset,
                {
                    str(broker): ends[names[number], broker]
                    for broker in sorted(each.replicas)
                    if (names[number], broker) in ends
                },
            )
            for number, each in topic.partitions.items()
        ],
    )


def _are_all_level(step: ClusterState, count: int) -> bool:
    """Whether this many replicas are in sync, and all log ends equal the high watermark."""
    return all(
        len(each.isr) == len(each.log_ends) == count and set(each.log_ends.values()) == {each.high_watermark}
        for each in step.partitions
    )


def judge(story: IsrExperiment) -> list[Claim]:
    """The lessons of the lab, as claims about what was observed."""
    before, without, written, back = story.before, story.without, story.written, story.back
    led = [each for each in before.partitions if each.leader == story.stopped]
    moved = [each for each in without.partitions if each.partition in {one.partition for one in led}]
    return [
        Claim(
            f"Every partition has {BROKERS} replicas, all of them in sync: each log ends at the high watermark, "
            "up to which consumers read.",
            all(len(each.isr) == BROKERS for each in before.partitions) and before.visible == MESSAGES,
        ),
        Claim(
            f"When broker {story.stopped} stops, it leaves every ISR within {story.shrunk_s:.1f} s. It stays a "
            "replica, because it is expected to return.",
            all(
                story.stopped in each.replicas
                and story.stopped not in each.isr
                and len(each.isr) == BROKERS - 1
                for each in without.partitions
            ),
        ),
        Claim(
            f"Its partitions ({counted(len(led), 'partition')} here) have another leader, which was in sync, and a "
            "higher leader epoch: messages of the old leader are rejected from then on.",
            all(
                after.leader in was.isr
                and after.leader != story.stopped
                and after.leader_epoch > was.leader_epoch
                for was, after in zip(led, moved, strict=True)
            ),
        ),
        Claim(
            f"Writes continue: min.insync.replicas is {MIN_IN_SYNC}, and {BROKERS - 1} are in sync. All {MESSAGES} "
            "messages with acks=all were acknowledged, and can be read.",
            written.visible == 2 * MESSAGES,
        ),
        Claim(
            f"When broker {story.stopped} returns, it fetches the messages that it lacks from the leaders, and is in "
            f"sync again {story.caught_up_s:.1f} s after its start.",
            all(len(each.isr) == BROKERS for each in back.partitions),
        ),
        Claim(
            f"Nothing is lost or repeated: {back.visible} messages, in {BROKERS} logs of the same "
            "length for each partition.",
            back.visible == 2 * MESSAGES
            and all(set(each.log_ends.values()) == {each.high_watermark} for each in back.partitions),
        ),
    ]


def _document(story: IsrExperiment, claims: list[Claim]) -> dict[str, Any]:
    steps = [story.before, story.without, story.written, story.back]
    return {
        "stopped": story.stopped,
        "shrunkSeconds": round(story.shrunk_s, 3),
        "caughtUpSeconds": round(story.caught_up_s, 3),
        "steps": labs.camel(steps),
        "claims": labs.camel(claims),
    }


def _show(story: IsrExperiment, claims: list[Claim], keep: Path | None) -> None:
    columns = ("partition", "leader", "epoch", "replicas", "in sync", "high watermark", "log ends")
    for number, step in enumerate((story.before, story.without, story.written, story.back), 1):
        rows = [
            (
                each.partition,
                each.leader,
                each.leader_epoch,
                ",".join(map(str, each.replicas)),
                ",".join(map(str, each.isr)),
                each.high_watermark,
                "  ".join(f"{broker}: {end}" for broker, end in each.log_ends.items()),
            )
            for each in step.partitions
        ]
        print_lines("")
        print_table(columns, rows, title=f"{number}. {step.what}")
    print_claims("What the cluster showed:", claims)
    if keep is not None:
        print_lines("", f"To start the three brokers again: penstock cluster start --data {keep}")
