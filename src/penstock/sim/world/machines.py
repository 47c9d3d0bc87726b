"""All machines of a run, and which faults each may suffer now."""

from collections.abc import Callable
from itertools import count

from penstock.base.ids import LeaderEpoch, Offset
from penstock.base.settings import BadSetting
from penstock.server.config import NodeConfig, config_from
from penstock.server.node import Node
from penstock.sim.checkers.disks import DATA, are_records_sound
from penstock.sim.checkers.violation import Violation
from penstock.sim.clients.client import Recorder
from penstock.sim.cluster_plan import ClusterPlan, PowerCuts
from penstock.sim.scenario import Scenario
from penstock.sim.secured import ADMIN, APP, NODE, jaas_config
from penstock.sim.world.machine import (
    ALONE,
    CONTROLLER,
    CONTROLLER_PORT,
    DOOR_PORTS,
    KAFKA_PORT,
    LISTENER,
    SECURED_LISTENER,
    SECURED_PORT,
    Machine,
    MakeNode,
    State,
)
from penstock.sim.world.network import Network
from penstock.sim.world.schedule import Schedule
from penstock.wire.peers import Address


class SimCluster:
    def __init__(
        self,
        scenario: Scenario,
        schedule: Schedule,
        network: Network,
        recorder: Recorder,
        make_node: MakeNode,
    ) -> None:
        plan = scenario.cluster
        incarnations = count(1)
        count_of_all = plan.nodes + plan.controllers
        hosts = [ALONE] if count_of_all == 1 else [f"node-{number}" for number in range(1, count_of_all + 1)]
        self._power_cuts = plan.power_cuts
        self._is_secured = scenario.security is not None
        self.changes_voters = bool(plan.voter_changes_us_mean)
        self.machines = [
            Machine(
                schedule,
                network,
                recorder,
                _config(scenario, number, host),
                make_node,
                later_config=_config(scenario, number, host, is_new=False) if plan.is_replicated else None,
                host=host,
                number=number,
                incarnations=incarnations,
                clock=plan.clocks[number - 1],
                has_faults=scenario.has_disk_faults and plan.faulty in (0, number),
                may_have_trouble=bool(plan.disks),
            )
            for number, host in enumerate(hosts, 1)
        ]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the brokers' Kafka listeners, as clients use them."""
        return self.doors(SECURED_PORT if self._is_secured else KAFKA_PORT)

    def doors(self, port: int) -> tuple[Address, ...]:
        """Addresses of the brokers with this port."""
        return tuple(Address(each.host, port) for each in self.machines if each.is_broker)

    @property
    def process_count(self) -> int:
        return sum(each.process_count for each in self.machines)

    def when_down(self, call: Callable[[Machine], None]) -> None:
        """Call a function whenever a machine's process has ended."""
        for machine in self.machines:
            machine.on_down = lambda each=machine: call(each)  # type: ignore[misc]

    def are_all(self, state: State) -> bool:
        return all(each.state is state for each in self.machines)

    def may_lose_power(self, machine: Machine) -> bool:
        others = [each for each in self.machines if each is not machine]
        if self._power_cuts is PowerCuts.FEW:
            return all(is_in_sync(each) for each in others if each.is_distrusted)
        if self._power_cuts is PowerCuts.SOME:
            return all(is_in_sync(each) for each in others if each.lost_power)
        return self._power_cuts is PowerCuts.ANY

    def may_be_killed(self, machine: Machine) -> bool:
        if self._power_cuts is not PowerCuts.FEW:
            return True
        return all(is_in_sync(each) for each in self.machines if each is not machine and each.lost_power)

    def may_be_harmed(self, machine: Machine) -> bool:
        """Return whether every other machine has recovered what it may have lost, so that it has what is lost here."""
        others = [each for each in self.machines if each is not machine]
        return all(each.trouble is None and (not each.lost_power or is_in_sync(each)) for each in others)

    def may_lose_metadata(self, machine: Machine) -> bool:
        """Return whether all other machines have the same metadata log, up to the same epoch. A voter that then loses
        its log and its vote cannot elect a leader that lacks committed records."""
        ends = {_quorum_end(each) for each in self.machines if each is not machine}
        return len(ends) == 1 and None not in ends and self.can_vote_without(machine)

    def can_vote_without(self, machine: Machine) -> bool:
        """Return whether the other voters are a majority, and all of them have the same metadata log."""
        for node in (each.node for each in self.machines if each is not machine):
            if isinstance(node, Node) and node.quorum.is_leader:
                voting = {each.key.id for each in node.quorum.voters}
                others = [each for each in self.machines if each.number in voting - {machine.number}]
                ends = {_quorum_end(each) for each in others}
                return len(ends) == 1 and None not in ends and len(others) >= node.quorum.voters.majority
        return not self.changes_voters


def _quorum_end(machine: Machine) -> tuple[LeaderEpoch, Offset] | None:
    """Return the epoch and log end of a voter; None if it is not up."""
    node = machine.node
    if machine.state is not State.UP or not isinstance(node, Node) or node.quorum.is_recovering:
        return None
    return node.quorum.epoch, node.quorum.end_offset


def is_in_sync(machine: Machine) -> bool:
    """Return whether a machine has recovered everything that a crash may have taken: all its replicas are in the ISR,
    according to its own image, and flipped bits were found and repaired."""
    node = machine.node
    if machine.state is not State.UP or not isinstance(node, Node):
        return False
    image = node.context.image
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            if machine.number in partition.replicas and machine.number not in partition.isr:
                return False
    if machine.is_spoilt and not are_records_sound(machine.disk):
        return False
    machine.lost_power = machine.is_distrusted = False
    return True


CLUSTER_ID = "s5qUyFm7T7uGmIa1834mZQ"
"""Cluster id, where the settings name one."""


def _quorum_settings(plan: ClusterPlan, number: int, *, is_new: bool) -> dict[str, str]:
    if not plan.voter_changes_us_mean:
        voters = ",".join(f"{each}@node-{each}:{CONTROLLER_PORT}" for each in plan.voting)
        return {"controller.quorum.voters": voters, **({"cluster.id": CLUSTER_ID} if plan.is_named else {})}
    settings = {"cluster.id": CLUSTER_ID}
    if number in plan.voting:
        settings["controller.quorum.auto.join.enable"] = str(plan.voters_join).lower()
    if not is_new or number != plan.voting[0]:
        servers = ",".join(f"node-{each}:{CONTROLLER_PORT}" for each in plan.voting)
        settings["controller.quorum.bootstrap.servers"] = servers
    return settings


SESSION_MS = "4000"
"""After this time a secured node logs in again on its connections to other nodes."""


def _security_settings(host: str, *, is_broker: bool) -> dict[str, str]:
    """Of a secured node: everyone logs in, on all listeners."""
    of_listener = "listener.name.{}.plain.sasl.jaas.config"
    settings = {
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT,{SECURED_LISTENER}:SASL_PLAINTEXT,"
        f"{CONTROLLER}:SASL_PLAINTEXT",
        "controller.listener.names": CONTROLLER,
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{CONTROLLER.lower()}.sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{CONTROLLER.lower()}.connections.max.reauth.ms": SESSION_MS,
        of_listener.format(CONTROLLER.lower()): jaas_config(NODE, is_for_nodes=True),
    }
    if is_broker:
        settings |= {
            "listeners": f"{LISTENER}://{host}:{KAFKA_PORT},{SECURED_LISTENER}://{host}:{SECURED_PORT}",
            "inter.broker.listener.name": LISTENER,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"listener.name.{LISTENER.lower()}.connections.max.reauth.ms": SESSION_MS,
            of_listener.format(LISTENER.lower()): jaas_config(NODE, is_for_nodes=True),
            of_listener.format(SECURED_LISTENER.lower()): jaas_config(APP, ADMIN),
        }
    return settings


def _config(scenario: Scenario, number: int, host: str, *, is_new: bool = True) -> NodeConfig:
    """Return the settings of a node. `is_new` until the cluster exists, whose first controller starts alone."""
    plan = scenario.cluster
    has_doors = scenario.doors is not None
    try:
        if not plan.is_replicated:
            return config_from(DATA, scenario.settings, kafka=f"{host}:{KAFKA_PORT}")
        is_broker, is_controller = number <= plan.nodes, number in plan.voting
        roles = {"broker": is_broker, "controller": is_controller}
        settings = {
            "node.id": str(number),
            **({"broker.rack": str(number)} if plan.has_racks and is_broker else {}),
            "process.roles": ",".join(role for role, has_it in roles.items() if has_it),
            **_quorum_settings(plan, number, is_new=is_new),
            **scenario.settings,
            **(_security_settings(host, is_broker=is_broker) if scenario.security is not None else {}),
        }
        return config_from(
            DATA,
            settings,
            kafka=f"{host}:{KAFKA_PORT}" if is_broker else None,
            controller=f"{host}:{CONTROLLER_PORT}" if is_controller else None,
            **(
                {name: f"{host}:{port}" for name, port in DOOR_PORTS.items()}
                if has_doors and is_broker
                else {}
            ),
        )
    except BadSetting as error:
        raise Violation(f"NodeLives: the settings of {host} are invalid: {error}") from error
