"""Users that log in with SCRAM: listed, added, given another password, removed.

A password arrives in a body, is hashed on a thread with a new salt, and is not kept: the controller gets the salted
hash, as from Kafka's clients. No response, log line or record of the audit has it.
"""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps, beside
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Routes, json
from penstock.gateway.shared.access import ALTER_CLUSTER, DESCRIBE_CLUSTER, Rule
from penstock.gateway.shared.controller_call import check, decide
from penstock.handlers.support.context import Context
from penstock.handlers.support.ticks import mapped_in_ticks, sorted_in_ticks
from penstock.metadata.controller.requests import AlterScramUsers, ScramDeletion, ScramUpsertion
from penstock.metadata.image import ScramUser
from penstock.metadata.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, salted_password

ITERATIONS_DEFAULT: Final = 8192
SALT_BYTES: Final = 20
NAME_CHARS_MAX: Final = 255
PASSWORD_CHARS_MAX: Final = 1024

_MECHANISMS: Final = {each.label: each for each in ScramMechanism}
_Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_DEFAULT: Final = "SCRAM-SHA-512"
_Password = Annotated[str, Meta(min_length=1, max_length=PASSWORD_CHARS_MAX)]
_Iterations = Annotated[int, Meta(ge=ITERATIONS_MIN, le=ITERATIONS_MAX)]

ROUTES = Routes("users")


class Credential(msgspec.Struct):
    mechanism: str
    iterations: int
    """How often the password is hashed."""


class User(msgspec.Struct):
    user: str
    mechanisms: list[Credential]


class UserList(msgspec.Struct):
    users: list[User]
    """In order of name."""


class AddUserRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A user with a password."""

    user: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    password: _Password
    mechanism: _Mechanism = _DEFAULT
    iterations: _Iterations = ITERATIONS_DEFAULT

    def __repr__(self) -> str:
        return f"AddUserRequest({self.user!r})"


class SetPasswordRequest(msgspec.Struct, forbid_unknown_fields=True):
    password: _Password
    mechanism: _Mechanism | None = None
    """Default: all mechanisms that the user has."""
    iterations: _Iterations = ITERATIONS_DEFAULT

    def __repr__(self) -> str:
        return "SetPasswordRequest()"


class DeleteUserResponse(msgspec.Struct):
    status: str = "deleted"


@ROUTES.add(
    "GET",
    "/users",
    "List users that log in with SCRAM. Users of PLAIN are in the settings of the brokers.",
    answer=UserList,
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _list(gateway: Any, _: Request) -> Steps[Response]:
    context: Context = gateway.context
    names = yield from mapped_in_ticks(context.world, context.image.scram_users, lambda each: each.name)
    names = yield from sorted_in_ticks(context.world, dict.fromkeys(names))
    rows = yield from mapped_in_ticks(context.world, names, lambda name: _user(context, name))
    return json(UserList(rows))


def _user(context: Context, name: str) -> User:
    users = context.image.scram_users
    return User(
        name,
        [
            Credential(mechanism.label, user.iterations)
            for mechanism in ScramMechanism
            if (user := users.get(ScramUser(mechanism, name))) is not None
        ],
    )


@ROUTES.add(
    "POST",
    "/users",
    "Add a user with a password. A second mechanism of a user is added in the same way.",
    body=AddUserRequest,
    answer=User,
    status=201,
    errors=(409,),
    rule=Rule((ALTER_CLUSTER,)),
)
def _add(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted: AddUserRequest = request.body
    mechanism = _MECHANISMS[wanted.mechanism]
    if ScramUser(mechanism, wanted.user) in context.image.scram_users:
        raise HttpError(
            409,
            "user_exists",
            f"user {wanted.user!r} has a password for {mechanism.label} already: change it with "
            "PUT /users/{user}/password",
        )
    yield from _set_password(context, request, wanted.user, [mechanism], wanted.password, wanted.iterations)
    return json(_user(context, wanted.user), 201)


@ROUTES.add(
    "PUT",
    "/users/{user}/password",
    "Set the password of a user. Open connections stay open.",
    body=SetPasswordRequest,
    answer=User,
    errors=(404,),
    rule=Rule((ALTER_CLUSTER,)),
)
def _change(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    wanted: SetPasswordRequest = request.body
    name = request.path["user"]
    held = _held(context, name, wanted.mechanism)
    yield from _set_password(context, request, name, held, wanted.password, wanted.iterations)
    return json(_user(context, name))


@ROUTES.add(
    "DELETE",
    "/users/{user}",
    "Remove a user, or its password for one mechanism. Its ACLs stay.",
    query=(Query("mechanism", str, "Only this mechanism.", one_of=tuple(_MECHANISMS)),),
    answer=DeleteUserResponse,
    errors=(404,),
    rule=Rule((ALTER_CLUSTER,)),
)
def _delete(gateway: Any, request: Request) -> Steps[Response]:
    context: Context = gateway.context
    name = request.path["user"]
    for mechanism in _held(context, name, request.query["mechanism"]):
        # A request names a user once.
        yield from _alter(context, request, AlterScramUsers((ScramDeletion(name, mechanism),)))
    return json(DeleteUserResponse())


def _held(context: Context, name: str, label: str | None) -> list[ScramMechanism]:
    """The mechanisms of a user, or the one that is asked for."""
    held = [each for each in ScramMechanism if ScramUser(each, name) in context.image.scram_users]
    if not held:
        raise HttpError(404, "unknown_user", f"no such user: {name[:NAME_CHARS_MAX]!r}")
    if label is None:
        return held
    if _MECHANISMS[label] not in held:
        raise HttpError(
            404,
            "unknown_user",
            f"user {name!r} has no password for {label}, it has one for {held[0].label}",
        )
    return [_MECHANISMS[label]]


def _set_password(
    context: Context,
    request: Request,
    name: str,
    mechanisms: Iterable[ScramMechanism],
    password: str,
    iterations: int,
) -> Steps[None]:
    for mechanism in mechanisms:
        salt = context.world.rng.randbytes(SALT_BYTES)
        salted: bytes = yield beside(
            context.world,
            partial(salted_password, mechanism, password, salt, iterations),
            lambda error: KafkaError(f"the password cannot be hashed: {type(error).__name__}"),
        )
        change = ScramUpsertion(name, mechanism, iterations, salt, salted)
        yield from _alter(context, request, AlterScramUsers(upsertions=(change,)))


def _alter(context: Context, request: Request, change: AlterScramUsers) -> Steps[None]:
    results = yield from decide(context, change, request.session)
    for name, result in results.items():
        check(result, f"user {name!r} could not be changed")
