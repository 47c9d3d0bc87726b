"""`penstock quotas`: lists, changes and explains client quotas."""

from typing import Annotated

import typer

from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, confirm, connected
from penstock.cli.options import Json, Yes
from penstock.cli.output import Refused, counted, print_json, print_result, print_table
from penstock.client.quotas import alter_quotas, describe_quotas
from penstock.metadata.quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    IP,
    IP_KEYS,
    USER,
    QuotaEntity,
    Share,
    applying_ip_quota,
    covering_quotas,
    describe_entity,
    entity_of,
    sort_key,
)

app = command_group(
    """List, change and explain quotas of clients.

    Works with Penstock and Apache Kafka. A quota belongs to a user, a client id, both, or an address; `default` stands
    for all that have none of their own. Limits are `producer_byte_rate` and `consumer_byte_rate` in bytes a second,
    `request_percentage`, `controller_mutation_rate` in partitions a second, and for addresses
    `connection_creation_rate`; each is per broker.

    \b
    penstock quotas set producer_byte_rate=1000000 --user alice
    penstock quotas set request_percentage=20 --user default
    penstock quotas set connection_creation_rate=50 --ip 10.0.0.7
    penstock quotas explain --user alice --client-id billing
    """
)

DEFAULT = "default"

OfUser = Annotated[str | None, typer.Option("--user", help="A user, or `default` for all others.")]
OfClientId = Annotated[
    str | None, typer.Option("--client-id", help="A client id, or `default` for all others.")
]
OfIp = Annotated[str | None, typer.Option("--ip", help="A client's address, or `default` for all others.")]


@app.command("list")
def quotas_list(
    user: OfUser = None,
    client_id: OfClientId = None,
    ip: OfIp = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """List quotas.

    \b
    penstock quotas list
    penstock quotas list --user alice
    """
    wanted = dict(_entity(user, client_id, ip)) if (user, client_id, ip) != (None,) * 3 else {}
    with connected(server, client_config) as cluster:
        held = describe_quotas(cluster)
    rows = [
        (entity, key, limit)
        for entity in sorted(held, key=sort_key)
        for key, limit in sorted(held[entity].items())
        if wanted.items() <= dict(entity).items()
    ]
    if as_json:
        print_json([_as_json(*row) for row in rows])
    elif not rows:
        print("no quotas")
    else:
        print_table(
            ["ENTITY", "QUOTA", "LIMIT"],
            [[describe_entity(entity), key, _number(limit)] for entity, key, limit in rows],
        )


@app.command("set")
def quotas_set(
    limits: Annotated[
        list[str], typer.Argument(metavar="QUOTA=LIMIT...", help="`producer_byte_rate=1000000`.")
    ],
    user: OfUser = None,
    client_id: OfClientId = None,
    ip: OfIp = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Set quotas of a user, a client id, both, or an address.

    \b
    penstock quotas set producer_byte_rate=1000000 consumer_byte_rate=2000000 --user alice
    penstock quotas set request_percentage=50 --user alice --client-id default
    """
    entity = _entity(user, client_id, ip)
    changes = dict(_limit(each, entity) for each in limits)
    with connected(server, client_config) as cluster:
        alter_quotas(cluster, entity, changes)
    text = "\n".join(f"{describe_entity(entity)}: {key} {_number(limit)}" for key, limit in changes.items())
    print_result([_as_json(entity, key, limit) for key, limit in changes.items()], text, as_json=as_json)


@app.command("remove")
def quotas_remove(
    quotas: Annotated[
        list[str] | None, typer.Argument(metavar="[QUOTA...]", help="Only these; all if none is named.")
    ] = None,
    user: OfUser = None,
    client_id: OfClientId = None,
    ip: OfIp = None,
    yes: Yes = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Remove quotas of a user, a client id, both, or an address.

    \b
    penstock quotas remove producer_byte_rate --user alice
    penstock quotas remove --user default --yes
    """
    entity = _entity(user, client_id, ip)
    for key in quotas or ():
        _check_key(key, entity)
    with connected(server, client_config) as cluster:
        held = describe_quotas(cluster).get(entity, {})
        found = {key: limit for key, limit in sorted(held.items()) if not quotas or key in quotas}
        if found:
            question = f"Remove {counted(len(found), 'quota')} of {describe_entity(entity)}?"
            confirm(question, "nothing was removed", yes=yes)
            alter_quotas(cluster, entity, dict.fromkeys(found))
    lines = [f"removed {counted(len(found), 'quota')}"]
    lines += [f"  {describe_entity(entity)}: {key} {_number(limit)}" for key, limit in found.items()]
    print_result([_as_json(entity, *each) for each in found.items()], "\n".join(lines), as_json=as_json)


@app.command("explain")
def quotas_explain(
    user: Annotated[
        str, typer.Option("--user", help="The user; ANONYMOUS for clients that do not log in.")
    ] = "ANONYMOUS",
    client_id: Annotated[str, typer.Option("--client-id", help="The client id.")] = "",
    ip: Annotated[str | None, typer.Option("--ip", help="The client's address.")] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Say which quotas apply to a client, and why.

    \b
    penstock quotas explain --user alice --client-id billing
    penstock quotas explain --ip 10.0.0.7
    """
    name = user.removeprefix("User:")
    with connected(server, client_config) as cluster:
        held = describe_quotas(cluster)
    documents: list[dict[str, object]] = []
    lines: list[str] = []
    for key in CLIENT_KEYS:
        covering = covering_quotas(held, key, name, client_id)
        document: dict[str, object] = {"quota": key, "limit": None}
        if not covering:
            lines.append(f"{key}: no limit; no quota covers this client")
        else:
            applied, *others = covering
            document |= {
                "limit": applied.limit,
                "entity": dict(applied.entity),
                "sharedBy": _shared_by(applied.share),
                "overridden": [dict(each.entity) for each in others],
            }
            lines.append(f"{key}: {_number(applied.limit)}, the quota of {describe_entity(applied.entity)}")
            lines.append(f"  shared by {_shared_by(applied.share)}, at each broker")
            lines += [
                f"  overrides {_number(each.limit)} of {describe_entity(each.entity)}, which is less specific"
                for each in others
            ]
        documents.append(document)
    if ip is not None:
        of_ip = applying_ip_quota(held, ip)
        documents.append(
            {
                "quota": CONNECTION_CREATION_RATE,
                "limit": None if of_ip is None else of_ip.limit,
                **({} if of_ip is None else {"entity": dict(of_ip.entity)}),
            }
        )
        lines.append(
            f"{CONNECTION_CREATION_RATE}: no limit; no quota covers {ip}"
            if of_ip is None
            else f"{CONNECTION_CREATION_RATE}: {_number(of_ip.limit)}, the quota of {describe_entity(of_ip.entity)}"
        )
    print_result(documents, "\n".join(lines), as_json=as_json)


def _shared_by(share: Share) -> str:
    if share.user and share.client_id:
        return f"all connections of user {share.user} with client id {share.client_id}"
    if share.user:
        return f"all clients of user {share.user}"
    return f"all clients with client id {share.client_id!r}"


def _entity(user: str | None, client_id: str | None, ip: str | None) -> QuotaEntity:
    named = {USER: user, CLIENT_ID: client_id, IP: ip}
    names = {kind: None if name == DEFAULT else name for kind, name in named.items() if name is not None}
    if not names:
        raise Refused("whose quota is not said, expected --user, --client-id, both, or --ip")
    if IP in names and len(names) > 1:
        raise Refused("--ip is given with --user or --client-id, expected it alone")
    if names.get(USER):
        names[USER] = str(names[USER]).removeprefix("User:")
    return entity_of(names)


def _limit(text: str, entity: QuotaEntity) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    _check_key(key, entity)
    try:
        limit = float(value)
    except ValueError:
        limit = -1.0
    if not equals or not limit > 0:
        raise Refused(f"{text!r} is no limit, expected {key}=NUMBER, with a number above 0")
    return key, limit


def _check_key(key: str, entity: QuotaEntity) -> None:
    keys = IP_KEYS if IP in dict(entity) else CLIENT_KEYS
    if key not in keys:
        raise Refused(f"{key!r} is no quota of {describe_entity(entity)}, expected one of {', '.join(keys)}")


def _number(limit: float) -> str:
    return f"{limit:.0f}" if limit == int(limit) else f"{limit:g}"


def _as_json(entity: QuotaEntity, key: str, limit: float) -> dict[str, object]:
    return {"entity": dict(entity), "quota": key, "limit": limit}
