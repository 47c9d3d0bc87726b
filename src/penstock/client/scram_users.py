"""Users that log in with SCRAM: lists them, sets and removes their passwords (KIP-554).

The password stays here: the broker gets a salted hash of it. Apache Kafka answers before its brokers know of a change:
each call returns once a broker shows it, as far as it shows.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.metadata.scram import ScramMechanism, salted_password
from penstock.wire import Api
from penstock.wire.request import through_kio

from .admin import await_shown, error_of, worst_code
from .cluster import Cluster
from .errors import check, refused

SALT_BYTES: Final = 20


class ScramUser(NamedTuple):
    name: str
    iterations: dict[ScramMechanism, int]
    """By the mechanisms for which the user has a password."""


def list_users(cluster: Cluster, names: Sequence[str] | None = None) -> list[ScramUser]:
    """Users by name, or all. A user that does not exist is left out."""

    def build(make: Any) -> Any:
        users = None if names is None else tuple(make.UserName(name=each) for each in dict.fromkeys(names))
        return make.DescribeUserScramCredentialsRequest(users=users)

    reply = cluster.ask_any(through_kio(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, build))
    check("users", reply)
    found = []
    for each in reply.results:
        if each.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        problem = error_of(f"user {each.user}", each)
        if problem is not None:
            raise problem
        credentials = {ScramMechanism(one.mechanism): one.iterations for one in each.credential_infos}
        found.append(ScramUser(each.user, credentials))
    return sorted(found)


def set_password(
    cluster: Cluster, name: str, password: str, mechanism: ScramMechanism, iterations: int
) -> None:
    """Create a user, or change the password that it has for a mechanism."""
    salt = os.urandom(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)

    def build(make: Any) -> Any:
        change = make.ScramCredentialUpsertion(
            name=name, mechanism=int(mechanism), iterations=iterations, salt=salt, salted_password=salted
        )
        return make.AlterUserScramCredentialsRequest(deletions=(), upsertions=(change,))

    _alter(cluster, name, build)
    _settle(cluster, name, lambda held: held.get(mechanism) == iterations)


def remove_password(cluster: Cluster, name: str, mechanism: ScramMechanism) -> None:
    def build(make: Any) -> Any:
        change = make.ScramCredentialDeletion(name=name, mechanism=int(mechanism))
        return make.AlterUserScramCredentialsRequest(deletions=(change,), upsertions=())

    _alter(cluster, name, build)
    _settle(cluster, name, lambda held: mechanism not in held)


def _settle(cluster: Cluster, name: str, is_shown: Callable[[dict[ScramMechanism, int]], bool]) -> None:
    await_shown(
        cluster, lambda: is_shown(next((each.iterations for each in list_users(cluster, [name])), {}))
    )


def _alter(cluster: Cluster, name: str, build: Any) -> None:
    request = through_kio(Api.ALTER_USER_SCRAM_CREDENTIALS, build)
    reply = cluster.ask_controller(request, worst_code(lambda reply: reply.results))
    [result] = reply.results
    if result.error_code:
        raise refused(f"user {name}", int(result.error_code), result.error_message)
