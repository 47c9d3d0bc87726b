"""Which ACLs routes and commands need: data beside each route and command, decided in one place.

    rule=Rule(needs=(Need(READ, GROUP, "group"), Need(READ, TOPIC, "topic")))

A `Need` names an operation, a type of resource, and the parameter that has the resource's name. Before a request is
handled, `check` refuses it unless all needs of its rule are met, whether or not the resource exists: so a client
without rights does not learn what exists. What `shows` lists is checked row by row: a list leaves out what the client
may not see, and a list of records gets an error for each that it may not write.

Every denial of a door is raised by `denied`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.handlers.support.context import Context, Session
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation

CLUSTER, GROUP, TOPIC = AclResourceType.CLUSTER, AclResourceType.GROUP, AclResourceType.TOPIC
TRANSACTIONAL_ID, TOKEN, USER = (
    AclResourceType.TRANSACTIONAL_ID,
    AclResourceType.DELEGATION_TOKEN,
    AclResourceType.USER,
)

_DENIED: Final = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Need(NamedTuple):
    operation: Operation
    on: AclResourceType
    parameter: str = ""
    """The parameter with the name of the resource, or with a list of names; empty if `name` is the name."""
    name: str = CLUSTER_NAME
    or_on_cluster: bool = False
    """The same operation on the cluster is enough."""
    named: Callable[[str], str] | None = None
    """Makes the name of the resource from the parameter, if that is another name."""

    def __str__(self) -> str:
        text = f"{self.operation.name.replace('_', ' ').title().replace(' ', '')} on "
        if self.on is CLUSTER:
            return f"{text}the cluster"
        text += f"the {_words(self.on)}" + ("" if self.parameter else f" `{self.name}`")
        if self.named is not None:
            text += f" of the {self.parameter}"
        return f"{text} or the cluster" if self.or_on_cluster else text


class Rule(NamedTuple):
    """Without needs, every client that has logged in may send the request."""

    needs: tuple[Need, ...] = ()
    """All of them, in this order: the first that is not met is the error."""
    shows: tuple[Need, ...] = ()
    """Decided for each row or record."""
    creates: bool = False
    """A topic that does not exist is created by a client that may create it (`CREATE_TOPIC`)."""
    opened_by: str = ""
    """The setting by which the request needs neither a log-in nor an ACL."""
    is_open: bool = False
    """It never needs a log-in."""


CREATE_TOPIC: Final = Need(Operation.CREATE, TOPIC, "topic", or_on_cluster=True)
ANY_USER: Final = Rule()
ANYONE: Final = Rule(is_open=True)

DESCRIBE_CLUSTER: Final = Need(Operation.DESCRIBE, CLUSTER)
ALTER_CLUSTER: Final = Need(Operation.ALTER, CLUSTER)


def check(
    context: Context, session: Session, needs: Iterable[Need], names: Callable[[str], Sequence[str]]
) -> None:
    """Raise unless the client is authorized; `names` returns the names that a parameter has."""
    if context.authorizer is None and context.audit is None:
        return
    for need in needs:
        for name in _names(need, names):
            allow(context, session, need.operation, need.on, name, or_on_cluster=need.or_on_cluster)


def allow(
    context: Context,
    session: Session,
    operation: Operation,
    on: AclResourceType,
    name: str = CLUSTER_NAME,
    *,
    or_on_cluster: bool = False,
) -> None:
    """Raise if the client is not authorized. The audit records the decision."""
    if or_on_cluster and context.permits(session, operation, CLUSTER, CLUSTER_NAME):
        name, on = CLUSTER_NAME, CLUSTER
    if not context.authorize(session, operation, on, name):
        raise denied(session, operation, on, name)


def is_still_allowed(
    context: Context, session: Session, needs: Iterable[Need], names: Callable[[str], Sequence[str]]
) -> bool:
    """Whether `check` would still pass, without a record in the audit."""
    return all(
        context.permits(session, need.operation, need.on, name)
        or (need.or_on_cluster and context.permits(session, need.operation, CLUSTER, CLUSTER_NAME))
        for need in needs
        for name in _names(need, names)
    )


def _names(need: Need, names: Callable[[str], Sequence[str]]) -> Iterable[str]:
    """The names of the resources that a need is about."""
    if not need.parameter:
        return (need.name,)
    found = names(need.parameter)
    return found if need.named is None else map(need.named, found)


def denied(session: Session, operation: Operation, on: AclResourceType, name: str) -> KafkaError:
    what = f"{_words(on)} {name!r}" if on is not CLUSTER else "the cluster"
    return KafkaError(
        f"{session.principal} is not authorized: {operation.name.lower()} on {what}", _DENIED[on]
    )


def _words(on: AclResourceType) -> str:
    return on.name.lower().replace("_", " ")
