"""The operator of a dynamic quorum: adds controllers to the voters and removes them (KIP-853).

It requests voters and observers (DescribeQuorum), and then one change (AddRaftVoter or RemoveRaftVoter). Any of these
may fail, and is tried again later with the new state. Once there are three voters, at least two stay.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.sim.clients import messages
from penstock.sim.clients.client import ClientContext
from penstock.sim.clients.operator import RandomOperator
from penstock.storage.layout import METADATA_TOPIC
from penstock.wire import Api, read_response, write_request

PASSING = frozenset({
    ErrorCode.NONE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
})  # fmt: skip
"""Errors that it may get while nodes restart and voters change."""

CHANGE_TIMEOUT_MS = 5_000


class VoterChanger(RandomOperator):
    def __init__(self, context: ClientContext, mean_us: int, controllers: range, port: int) -> None:
        """`controllers` are the nodes that may vote; all listen on `port`."""
        super().__init__("voter operator", context, mean_us, PASSING)
        self._controllers = controllers
        self._port = port

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        """Only the latest version of DescribeQuorum has directory ids."""
        return (2, high) if api is Api.DESCRIBE_QUORUM else (low, high)

    def act(self) -> None:
        version = self.versions[Api.DESCRIBE_QUORUM]
        make = messages.request_classes(Api.DESCRIBE_QUORUM, version)
        topic = make.TopicData(topic_name=METADATA_TOPIC, partitions=(make.PartitionData(partition_index=0),))
        entity = make.DescribeQuorumRequest(topics=(topic,))
        self.ask(Api.DESCRIBE_QUORUM, write_request(Api.DESCRIBE_QUORUM, version, entity), self._described)

    def _described(self, version: int, body: memoryview) -> None:
        response = read_response(Api.DESCRIBE_QUORUM, version, body)
        if response.error_code or not self.is_ready or not self.is_working:
            return
        (topic,) = response.topics
        (log,) = topic.partitions
        if log.error_code:
            return
        voters, drawn = list(log.current_voters), self.rng.random()
        voting = {each.replica_id for each in voters}
        joining = [
            each
            for each in log.observers
            if each.replica_id in self._controllers and each.replica_id not in voting
        ]
        if joining and (len(voters) < 3 or drawn < 0.5):
            self._add(self.rng.choice(joining))
        elif len(voters) > 2:
            self._remove(self.rng.choice(voters))

    def _add(self, replica: Any) -> None:
        number = replica.replica_id
        version = self.versions[Api.ADD_RAFT_VOTER]
        make = messages.request_classes(Api.ADD_RAFT_VOTER, version)
        entity = make.AddRaftVoterRequest(
            cluster_id=None,
            timeout=messages.ms(CHANGE_TIMEOUT_MS),
            voter_id=number,
            voter_directory_id=replica.replica_directory_id,
            listeners=(make.Listener(name="CONTROLLER", host=f"node-{number}", port=self._port),),
            ack_when_committed=self.rng.random() < 0.7,
        )
        self._change(Api.ADD_RAFT_VOTER, entity, f"adds voter {number}")

    def _remove(self, replica: Any) -> None:
        number = replica.replica_id
        version = self.versions[Api.REMOVE_RAFT_VOTER]
        make = messages.request_classes(Api.REMOVE_RAFT_VOTER, version)
        entity = make.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=number, voter_directory_id=replica.replica_directory_id
        )
        self._change(Api.REMOVE_RAFT_VOTER, entity, f"removes voter {number}")

    def _change(self, api: Api, entity: Any, what: str) -> None:
        def heard(version: int, body: memoryview) -> None:
            response = read_response(api, version, body)
            why = f" ({response.error_message})" if response.error_message else ""
            self.heard(what, [int(response.error_code)], why)

        self.ask(api, write_request(api, self.versions[api], entity), heard)
