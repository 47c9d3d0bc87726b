"""Users in a cluster: what was answered counts at every broker at once."""

from base64 import b64encode
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

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="pw";'
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
    def logs_in(port: int, user: str, password: str, extensions: str = "") -> bool:
        shake, auth = request_module(Api.SASL_HANDSHAKE, 1), request_module(Api.SASL_AUTHENTICATE, 2)
        scram_client = ScramClient(MECHANISM, user, password, extensions=extensions)
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
        "sasl.enabled.mechanisms": f"{MECHANISM.label},PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
        "delegation.token.secret.key": "the-same-at-all-nodes",
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


def test_a_token_that_a_broker_made_logs_in_at_every_broker_and_a_removed_one_nowhere(users: Users) -> None:
    """Made and removed at a broker that is no controller, which forwards the client's principal."""
    make, end = request_module(Api.CREATE_DELEGATION_TOKEN, 3), request_module(Api.EXPIRE_DELEGATION_TOKEN, 2)
    shake, auth = request_module(Api.SASL_HANDSHAKE, 1), request_module(Api.SASL_AUTHENTICATE, 2)
    with RawClient(users.sasl[1]) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, shake.SaslHandshakeRequest(mechanism="PLAIN"))
        client.ask(Api.SASL_AUTHENTICATE, 2, auth.SaslAuthenticateRequest(auth_bytes=b"\0alice\0pw"))
        for _ in range(10):
            request = make.CreateDelegationTokenRequest(
                owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime=-1
            )
            token = client.ask(Api.CREATE_DELEGATION_TOKEN, 3, request)
            assert (token.error_code.value, token.principal_name) == (0, "alice")
            key = b64encode(token.hmac).decode()

            def logs_in(port: int, token_id: str = token.token_id, key: str = key) -> bool:
                return users.logs_in(port, token_id, key, "tokenauth=true")

            assert all(logs_in(port) for port in users.sasl)
            gone = end.ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period=-1)
            assert client.ask(Api.EXPIRE_DELEGATION_TOKEN, 2, gone).error_code.value == 0
            assert not any(logs_in(port) for port in users.sasl)
