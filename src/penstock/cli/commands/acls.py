"""`penstock acls`: lists, changes and explains ACLs."""

from typing import Annotated

import typer

from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, confirm, connected
from penstock.cli.options import Json, Yes
from penstock.cli.output import Refused, counted, print_json, print_result, print_table
from penstock.client import acls as client
from penstock.client.admin import Resource, ResourceType, describe_configs
from penstock.client.cluster import Cluster
from penstock.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclResourceType,
    Operation,
    PatternType,
    Permission,
)
from penstock.security.authorizer import Authorizer

app = command_group(
    """List, change and explain ACLs.

    Works with Penstock and Apache Kafka. A resource is `topic NAME`, `group NAME`, `transactional-id NAME` or
    `cluster`; the name `*` stands for all of its kind. A principal is `alice`, or `User:alice`.

    \b
    penstock acls allow alice read,write topic orders
    penstock acls deny bob all topic payroll- --prefix
    penstock acls list --principal alice
    penstock acls explain alice read topic orders
    """
)

Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="`alice`, `User:alice`, or `*` for all.")]
Operations = Annotated[
    str, typer.Argument(metavar="OPERATIONS", help="read, write, create, ..., or all; several with commas.")
]
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="RESOURCE", help="`topic NAME`, `group NAME`, `transactional-id NAME`, `cluster`."
    ),
]
Prefix = Annotated[bool, typer.Option("--prefix", help="For all names that begin with NAME.")]
Host = Annotated[str, typer.Option("--host", help="Only from this address.")]

_KINDS = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional-id": AclResourceType.TRANSACTIONAL_ID,
    "cluster": AclResourceType.CLUSTER,
    "delegation-token": AclResourceType.DELEGATION_TOKEN,
    "user": AclResourceType.USER,
}


@app.command("list")
def acls_list(
    principal: Annotated[str | None, typer.Option("--principal", help="Only ACLs of this principal.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only ACLs that apply to this topic.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Only ACLs that apply to this group.")] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """List ACLs.

    \b
    penstock acls list
    penstock acls list --topic orders
    """
    if topic is not None and group is not None:
        raise Refused("--topic and --group are both given, expected one of them")
    kind = AclResourceType.TOPIC if topic is not None else AclResourceType.GROUP
    name = group if topic is None else topic
    wanted = AclFilter(
        AclResourceType.ANY if name is None else kind,
        name,
        PatternType.ANY if name is None else PatternType.MATCH,
        None if principal is None else _principal(principal),
        None,
        Operation.ANY,
        Permission.ANY,
    )
    with connected(server, client_config) as cluster:
        found = client.describe_acls(cluster, wanted)
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        print("no ACLs")
    else:
        print_table(
            ["RESOURCE", "NAME", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"],
            [_row(each) for each in found],
        )


@app.command("allow")
def acls_allow(
    principal: Principal,
    operations: Operations,
    resource: Words,
    prefix: Prefix = False,
    host: Host = "*",
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Allow operations.

    \b
    penstock acls allow alice read topic orders
    penstock acls allow alice read group billing
    penstock acls allow '*' describe topic '*'
    """
    _create(
        server, client_config, _acls(Permission.ALLOW, principal, operations, resource, prefix, host), as_json
    )


@app.command("deny")
def acls_deny(
    principal: Principal,
    operations: Operations,
    resource: Words,
    prefix: Prefix = False,
    host: Host = "*",
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Deny operations, whatever else allows them.

    \b
    penstock acls deny bob write topic orders --host 10.0.0.7
    """
    _create(
        server, client_config, _acls(Permission.DENY, principal, operations, resource, prefix, host), as_json
    )


@app.command("remove")
def acls_remove(
    principal: Annotated[str | None, typer.Option("--principal", help="Of this principal.")] = None,
    resource: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RESOURCE]", help="Of this resource: `topic NAME`, ..., `cluster`."),
    ] = None,
    prefix: Prefix = False,
    yes: Yes = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Remove ACLs of a principal, of a resource, or of a principal for a resource.

    \b
    penstock acls remove topic orders --principal alice
    penstock acls remove --principal bob --yes
    """
    if principal is None and not resource:
        raise Refused("nothing to remove, expected a resource, --principal, or both")
    kind, name = (AclResourceType.ANY, None) if not resource else _resource(resource)
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    wanted = AclFilter(
        kind,
        name,
        PatternType.ANY if name is None else pattern,
        None if principal is None else _principal(principal),
        None,
        Operation.ANY,
        Permission.ANY,
    )
    with connected(server, client_config) as cluster:
        found = client.describe_acls(cluster, wanted)
        if found:
            confirm(f"Remove {counted(len(found), 'ACL')}?", "nothing was removed", yes=yes)
            found = client.delete_acls(cluster, wanted)
    text = "\n".join([f"removed {counted(len(found), 'ACL')}", *(f"  {each}" for each in found)])
    print_result([_as_json(each) for each in found], text, as_json=as_json)


@app.command("explain")
def acls_explain(
    principal: Principal,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="read, write, create, ...")],
    resource: Words,
    host: Annotated[str, typer.Option("--host", help="The client's address.")] = "127.0.0.1",
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Say whether an operation is allowed, and which rule decides. The exit code is 1 if it is denied.

    \b
    penstock acls explain alice read topic orders
    """
    kind, name = _resource(resource)
    asked = _operation(operation)
    everything = AclFilter(
        AclResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
    )
    with connected(server, client_config) as cluster:
        held = client.describe_acls(cluster, everything)
        settings = _settings(cluster)
    authorizer = Authorizer(
        held,
        frozenset(each.strip() for each in settings["super.users"].split(";")) - {""},
        allows_without_acl=settings["allow.everyone.if.no.acl.found"].strip().lower() == "true",
    )
    decision = authorizer.decide(_principal(principal), host, asked, kind, name)
    word = "allowed" if decision.is_allowed else "denied"
    document = {"isAllowed": decision.is_allowed, "reason": decision.reason}
    print_result(document, f"{word}: {decision.reason}", as_json=as_json)
    return 0 if decision.is_allowed else 1


def _settings(cluster: Cluster) -> dict[str, str]:
    """The settings of the authorizer, of any broker. Apache Kafka does not show those that have their default."""
    names = ["super.users", "allow.everyone.if.no.acl.found"]
    broker = Resource(ResourceType.BROKER, str(next(iter(cluster.refresh([]).brokers))))
    found = describe_configs(cluster, broker, names)
    return dict.fromkeys(names, "") | {each.name: each.value or "" for each in found}


def _create(server: str | None, client_config: str | None, acls: list[Acl], as_json: bool) -> None:
    with connected(server, client_config) as cluster:
        client.create_acls(cluster, acls)
    text = "\n".join(str(each) for each in acls)
    print_result([_as_json(each) for each in acls], text, as_json=as_json)


def _acls(
    permission: Permission, principal: str, operations: str, resource: list[str], prefix: bool, host: str
) -> list[Acl]:
    kind, name = _resource(resource)
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    return [
        Acl(kind, name, pattern, _principal(principal), host, _operation(each), permission)
        for each in operations.split(",")
    ]


def _resource(words: list[str]) -> tuple[AclResourceType, str]:
    kind = _KINDS.get(words[0])
    if kind is None:
        raise Refused(f"{words[0]!r} is no resource, expected one of {', '.join(_KINDS)}")
    if kind is AclResourceType.CLUSTER and len(words) == 1:
        return kind, CLUSTER_NAME
    if len(words) != 2:
        raise Refused(f"{words[0]} needs one name: {words[0]} NAME")
    return kind, words[1]


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _operation(text: str) -> Operation:
    plain = _word(text.strip()).replace("-", "")  # also as Kafka's tools write it: IdempotentWrite
    found = {each.name.lower().replace("_", ""): each for each in Operation if each > Operation.ANY}.get(
        plain
    )
    if found is None:
        names = ", ".join(_word(each.name) for each in Operation if each > Operation.ANY)
        raise Refused(f"{text!r} is no operation, expected one of {names}")
    return found


def _row(acl: Acl) -> list[str]:
    words = _word(acl.operation.name), _word(acl.permission.name)
    return [_kind_name(acl), _shown_name(acl), acl.principal, acl.host, *words]


def _kind_name(acl: Acl) -> str:
    return _word(acl.resource_type.name)


def _word(name: str) -> str:
    return name.lower().replace("_", "-")


def _shown_name(acl: Acl) -> str:
    return f"{acl.resource_name} (prefix)" if acl.pattern_type is PatternType.PREFIXED else acl.resource_name


def _as_json(acl: Acl) -> dict[str, str]:
    return {
        "resource": _kind_name(acl),
        "name": acl.resource_name,
        "pattern": _word(acl.pattern_type.name),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _word(acl.operation.name),
        "permission": _word(acl.permission.name),
    }
