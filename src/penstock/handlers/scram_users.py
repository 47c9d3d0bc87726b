"""Users that log in with SCRAM (KIP-554).

    AlterUserScramCredentials 0         set and remove passwords, as salted hashes
    DescribeUserScramCredentials 0      mechanisms and iterations of users; never a key

The controller checks and decides changes.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.requests import AlterScramUsers, Result, ScramDeletion, ScramUpsertion
from penstock.metadata.image import ScramUser
from penstock.metadata.scram import ScramMechanism
from penstock.wire import Api

from .support.context import Call, Context
from .support.controller_call import default_wait_ms, submit
from .support.response_fields import DENIED_CLUSTER, NO_THROTTLE, refusal
from .support.ticks import mapped_in_ticks, sorted_in_ticks
from .support.waiting import in_steps


@in_steps
def alter_user_scram_credentials(context: Context, call: Call) -> Steps[Any]:
    """AlterUserScramCredentials 0: set and remove users' passwords. Needs ALTER on the cluster.

    Each user has its own result. DUPLICATE_RESOURCE for a user that is named twice, also with two mechanisms;
    RESOURCE_NOT_FOUND for the removal of an unknown user; UNSUPPORTED_SASL_MECHANISM for an unknown mechanism;
    UNACCEPTABLE_CREDENTIAL for an empty name and for iterations outside 4096 to 16384.
    """
    request = AlterScramUsers(
        tuple(ScramDeletion(each.name, each.mechanism) for each in call.message.deletions),
        tuple(
            ScramUpsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
            for each in call.message.upsertions
        ),
    )
    users = request.users
    results: dict[str, Result]
    if not context.authorize(call.session, Operation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        results = dict.fromkeys(users, DENIED_CLUSTER)
    elif not users:
        results = {}
    else:
        try:
            results = yield submit(context, request, default_wait_ms(context), call.session)
        except KafkaError as error:
            results = dict.fromkeys(users, refusal(error))
    return call.make.AlterUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            call.make.AlterUserScramCredentialsResult(
                user=user, error_code=results[user].code, error_message=results[user].message
            )
            for user in users
        ),
    )


@in_steps
def describe_user_scram_credentials(context: Context, call: Call) -> Steps[Any]:
    """DescribeUserScramCredentials 0: the mechanisms and iterations of users. Needs DESCRIBE on the cluster.

    Without users in the request, all are described. An unknown user gets RESOURCE_NOT_FOUND, one that is named twice
    DUPLICATE_RESOURCE.
    """
    make = call.make
    if not context.authorize(call.session, Operation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        denied = make.DescribeUserScramCredentialsResult(
            user="",
            error_code=DENIED_CLUSTER.code,
            error_message=DENIED_CLUSTER.message,
            credential_infos=(),
        )
        return make.DescribeUserScramCredentialsResponse(
            throttle_time=NO_THROTTLE,
            error_code=DENIED_CLUSTER.code,
            error_message=DENIED_CLUSTER.message,
            results=(denied,) * len(call.message.users or ()),  # without names, as in Kafka
        )
    users, world = context.image.scram_users, context.world
    names = [each.name for each in call.message.users or ()]
    if not names:
        all_names = yield from mapped_in_ticks(world, users, lambda user: user.name)
        names = yield from sorted_in_ticks(world, dict.fromkeys(all_names))
    named = Counter(names)

    def row(name: str) -> Any:
        found = [
            make.CredentialInfo(mechanism=mechanism, iterations=user.iterations)
            for mechanism in ScramMechanism
            if (user := users.get(ScramUser(mechanism, name))) is not None
        ]
        code, message = ErrorCode.NONE, None
        if named[name] > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif not found:
            code = ErrorCode.RESOURCE_NOT_FOUND
            message = f"Attempt to describe a user credential that does not exist: {name}"
        return make.DescribeUserScramCredentialsResult(
            user=name,
            error_code=code,
            error_message=message,
            credential_infos=() if code else tuple(found),
        )

    rows = yield from mapped_in_ticks(world, named, row)
    return make.DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, error_message=None, results=tuple(rows)
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {
    Api.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
}
