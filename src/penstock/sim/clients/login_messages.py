"""Requests of log-ins, and of the operator that changes users, ACLs and quotas."""

from typing import Any, NamedTuple

from penstock.metadata.acls import Acl
from penstock.metadata.quotas import PRODUCER_BYTE_RATE, USER
from penstock.metadata.scram import ScramMechanism
from penstock.sim.clients.messages import Request, RequestClasses, read_code
from penstock.wire import Api

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
"""A log-in comes before the versions are negotiated."""


def sasl_handshake(mechanism: str) -> Request[int]:
    return Request(Api.SASL_HANDSHAKE, lambda make: make.SaslHandshakeRequest(mechanism=mechanism), read_code)


class Authenticated(NamedTuple):
    code: int
    token: bytes


def sasl_authenticate(token: bytes) -> Request[Authenticated]:
    return Request(
        Api.SASL_AUTHENTICATE,
        lambda make: make.SaslAuthenticateRequest(auth_bytes=token),
        lambda response: Authenticated(int(response.error_code), response.auth_bytes),
    )


class SaltedPassword(NamedTuple):
    """A password as the metadata has it."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    salted: bytes


def set_password(user: str, password: SaltedPassword) -> Request[int]:
    return Request(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        lambda make: make.AlterUserScramCredentialsRequest(
            deletions=(),
            upsertions=(
                make.ScramCredentialUpsertion(
                    name=user,
                    mechanism=password.mechanism,
                    iterations=password.iterations,
                    salt=password.salt,
                    salted_password=password.salted,
                ),
            ),
        ),
        _read_users,
    )


def remove_user(user: str, mechanism: ScramMechanism) -> Request[int]:
    return Request(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        lambda make: make.AlterUserScramCredentialsRequest(
            deletions=(make.ScramCredentialDeletion(name=user, mechanism=mechanism),), upsertions=()
        ),
        _read_users,
    )


def _read_users(response: Any) -> int:
    (result,) = response.results
    return int(result.error_code)


def create_acls(acls: tuple[Acl, ...]) -> Request[int]:
    """The reply is the first error code."""
    return Request(
        Api.CREATE_ACLS,
        lambda make: make.CreateAclsRequest(creations=tuple(_creation(make, each) for each in acls)),
        lambda response: next((int(each.error_code) for each in response.results if each.error_code), 0),
    )


def _creation(make: RequestClasses, acl: Acl) -> Any:
    return make.AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def delete_acl(acl: Acl) -> Request[tuple[int, int]]:
    """The reply has an error code, and the number of ACLs that were deleted."""

    def build(make: RequestClasses) -> Any:
        chosen = make.DeleteAclsFilter(
            resource_type_filter=acl.resource_type,
            resource_name_filter=acl.resource_name,
            pattern_type_filter=acl.pattern_type,
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        return make.DeleteAclsRequest(filters=(chosen,))

    def read(response: Any) -> tuple[int, int]:
        (result,) = response.filter_results
        codes = [int(result.error_code), *(int(each.error_code) for each in result.matching_acls)]
        return max(codes), len(result.matching_acls)

    return Request(Api.DELETE_ACLS, build, read)


def set_quota(user: str, bytes_per_second: float | None) -> Request[int]:
    """How much a user may produce; None removes the quota."""

    def build(make: RequestClasses) -> Any:
        change = make.OpData(
            key=PRODUCER_BYTE_RATE, value=bytes_per_second or 0.0, remove=bytes_per_second is None
        )
        entity = make.EntityData(entity_type=USER, entity_name=user)
        return make.AlterClientQuotasRequest(
            entries=(make.EntryData(entity=(entity,), ops=(change,)),), validate_only=False
        )

    def read(response: Any) -> int:
        (entry,) = response.entries
        return int(entry.error_code)

    return Request(Api.ALTER_CLIENT_QUOTAS, build, read)
