"""Users in a cluster: what was answered counts at every broker at once."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.security.sasl.clients import ScramClient
from tests.server.raw import RawClient

from penstock.metadata import scram
from penstock.server.ports import free_ports
from penstock.testing import Broker
from penstock.wire import Api
from penstock.wire.messages import request_module

CLUSTER_ID = "a-cluster-with-users00"
MECHANISM = scram.ScramMechanism.SCRAM_SHA_256


class Users:
    """A node that is broker and controller, a node that is a broker only, and the users of both."""

    def __init__(self, plain: int, sasl: tuple[int, int]) -> None:
        self.sasl = sasl
        self._admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{plain}"})

    def set_password(self, user: str, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        self._alter(UserScramCredentialUpsertion(user, info, password.encode()))

    def remove(self, user: str) -> None:
        self._alter(UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256))

    def _alter(self, change: object) -> None:
        for each in self._admin.alter_user_scram_credentials([change]).values():
            each.result(20)

    @staticmethod
    def logs_in(port: int, user: str, password: str) -> bool:
        shake, auth = request_module(Api.SASL_HANDSHAKE, 1), request_module(Api.SASL_AUTHENTICATE, 2)
        scram_client = ScramClient(MECHANISM, user, password)
        with RawClient(port) as client:
            client.ask(Api.SASL_HANDSHAKE, 1, shake.SaslHandshakeRequest(mechanism=MECHANISM.label))
            first = auth.SaslAuthenticateRequest(auth_bytes=scram_client.first)
            challenge = client.ask(Api.SASL_AUTHENTICATE, 2, first)
            final = auth.SaslAuthenticateRequest(auth_bytes=scram_client.final(challenge.auth_bytes))
            done = client.ask(Api.SASL_AUTHENTICATE, 2, final)
            return not done.error_code


@pytest.fixture(scope="module")
def users() -> Iterator[Users]:
    plain, sasl, other_plain, other_sasl, controller = free_ports(5)
    common = {
        "cluster.id": CLUSTER_ID,
        "sasl.enabled.mechanisms": MECHANISM.label,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "offsets.topic.replication.factor": "1",
    }
    first = {
        **common,
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},"
        f"CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    second = {
        **common,
        "node.id": "2",
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://127.0.0.1:{other_plain},SASL_PLAINTEXT://127.0.0.1:{other_sasl}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    with Broker(settings=first), Broker(settings=second):
        yield Users(plain, (sasl, other_sasl))


def test_a_change_that_was_answered_counts_at_every_broker(users: Users) -> None:
    for number in range(20):
        user = f"user-{number}"
        users.set_password(user, "first")
        assert all(users.logs_in(port, user, "first") for port in reversed(users.sasl))
        users.set_password(user, "second")
        assert not any(users.logs_in(port, user, "first") for port in reversed(users.sasl))
        assert all(users.logs_in(port, user, "second") for port in reversed(users.sasl))
        users.remove(user)
        assert not any(users.logs_in(port, user, "second") for port in reversed(users.sasl))
