"""Changes of users that log in with SCRAM: a new password, or removal.

A user may be named once in a request, also with two mechanisms. Each user's change is independent of the others. The
request carries the salted password; the log has the keys derived from it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import Outcome
from penstock.metadata.image import ALL_BROKERS, ClusterImage, ScramUser
from penstock.metadata.records import (
    AnyRecord,
    ConfigRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.metadata.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    UNKNOWN_USERS_SECRET,
    ScramMechanism,
    digest,
    server_key,
    stored_key,
)
from penstock.metadata.versions import has_scram_users

from .requests import OK, AlterScramUsers, Result, ScramDeletion, ScramUpsertion, refused
from .view import ControllerView

if TYPE_CHECKING:
    from random import Random


def alter_scram_users(view: ControllerView, request: AlterScramUsers) -> Outcome[dict[str, Result]]:
    changes: list[ScramDeletion | ScramUpsertion] = [*request.deletions, *request.upsertions]
    named = Counter(each.user for each in changes)
    results: dict[str, Result] = {}
    records: list[AnyRecord] = []
    for each in changes:
        try:
            record = _record(view.image, each)
            if named[each.user] > 1:
                raise KafkaError(
                    "A user credential cannot be altered twice in the same request",
                    ErrorCode.DUPLICATE_RESOURCE,
                )
        except KafkaError as error:
            results.setdefault(each.user, refused(error))
        else:
            results[each.user] = OK
            records.append(record)
    keys = [each.server_key for each in records if isinstance(each, UserScramCredentialRecord)]
    if keys:
        records += unknown_users_secret(view.image, keys, view.rng)
    return Outcome(results, tuple(records))


def unknown_users_secret(image: ClusterImage, keys: Iterable[bytes], rng: "Random") -> list[AnyRecord]:
    """The record of the secret that decides the salts of unknown users, unless the cluster has one.

    It is made from keys of users, which no single client knows, and from chance.
    """
    if UNKNOWN_USERS_SECRET in image.config(ALL_BROKERS):
        return []
    material = digest(ScramMechanism.SCRAM_SHA_512, rng.randbytes(32), b"".join(keys))
    return [
        ConfigRecord(
            resource_type=ALL_BROKERS.type,
            resource_name=ALL_BROKERS.name,
            name=UNKNOWN_USERS_SECRET,
            value=material.hex(),
        )
    ]


def _record(image: ClusterImage, change: ScramDeletion | ScramUpsertion) -> AnyRecord:
    """The record that makes the change; raises if it is refused."""
    if not has_scram_users(image.metadata_version):
        raise KafkaError("The current metadata.version does not support SCRAM", ErrorCode.UNSUPPORTED_VERSION)
    if not change.user:
        raise KafkaError("Username must not be empty", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError as error:
        raise KafkaError("Unknown SCRAM mechanism", ErrorCode.UNSUPPORTED_SASL_MECHANISM) from error
    if isinstance(change, ScramDeletion):
        if ScramUser(mechanism, change.user) not in image.scram_users:
            raise KafkaError(
                "Attempt to delete a user credential that does not exist", ErrorCode.RESOURCE_NOT_FOUND
            )
        return RemoveUserScramCredentialRecord(name=change.user, mechanism=mechanism)
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError("Too few iterations", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError("Too many iterations", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    return UserScramCredentialRecord(
        name=change.user,
        mechanism=mechanism,
        salt=change.salt,
        stored_key=stored_key(mechanism, change.salted_password),
        server_key=server_key(mechanism, change.salted_password),
        iterations=change.iterations,
    )
