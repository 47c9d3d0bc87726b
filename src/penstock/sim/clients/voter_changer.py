"""The operator of a dynamic quorum: adds controllers to the voters and removes them (KIP-853).

It requests voters and observers (DescribeQuorum), and then one change (AddRaftVoter or RemoveRaftVoter). Any of these
may fail, and is tried again later with the new state. Once there are three voters, at least two stay.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.sim.clients import messages
from penstock.sim.clients.client import ClientContext
from penstock.sim.clients.operator import RandomOperator
from penstock.wire import Api

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
        def build(make: messages.RequestClasses) -> Any:
            log = make.PartitionData(partition_index=0)
            topic = make.TopicData(topic_name=METADATA_TOPIC, partitions=(log,))
            return make.DescribeQuorumRequest(topics=(topic,))

        self.call(messages.whole_reply(Api.DESCRIBE_QUORUM, build), self._described)

    def _described(self, response: Any) -> None:
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
        number, acks_when_committed = replica.replica_id, self.rng.random() < 0.7
        request = messages.whole_reply(
            Api.ADD_RAFT_VOTER,
            lambda make: make.AddRaftVoterRequest(
                cluster_id=None,
                timeout=messages.ms(CHANGE_TIMEOUT_MS),
                voter_id=number,
                voter_directory_id=replica.replica_directory_id,
                listeners=(make.Listener(name="CONTROLLER", host=f"node-{number}", port=self._port),),
                ack_when_committed=acks_when_committed,
            ),
        )
        self._change(request, f"adds voter {number}")

    def _remove(self, replica: Any) -> None:
        number, directory = replica.replica_id, replica.replica_directory_id
        request = messages.whole_reply(
            Api.REMOVE_RAFT_VOTER,
            lambda make: make.RemoveRaftVoterRequest(
                cluster_id=None, voter_id=number, voter_directory_id=directory
            ),
        )
        self._change(request, f"removes voter {number}")

    def _change(self, request: messages.Request[Any], what: str) -> None:
        def on_reply(response: Any) -> None:
            why = f" ({response.error_message})" if response.error_message else ""
            self.note_reply(what, [int(response.error_code)], why)

        self.call(request, on_reply)
