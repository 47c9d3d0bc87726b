"""`penstock tokens`: delegation tokens, which stand for a user until they expire."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.client_files import write_client_file
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, confirm, connected, target_of
from penstock.cli.options import Json, Yes
from penstock.cli.output import Refused, print_json, print_result, print_table, show_time
from penstock.cli.positions import parse_duration
from penstock.client import delegation_tokens as client
from penstock.client.cluster import Cluster
from penstock.client.delegation_tokens import BROKER_DEFAULT, Token

app = command_group(
    """List, create, renew and expire delegation tokens.

    A token stands for its owner until it expires: a job can be given one instead of a password. Works with Penstock
    and Apache Kafka, where delegation.token.secret.key is set. The client must have logged in, and not with a token.

    \b
    penstock tokens create --to job.properties
    penstock tokens list
    penstock tokens renew TOKEN_ID
    penstock tokens expire TOKEN_ID
    """
)

TokenId = Annotated[str, typer.Argument(metavar="TOKEN_ID", help="As `penstock tokens list` shows it.")]
Period = Annotated[str | None, typer.Option("--for", metavar="TIME", help="How long: 90m, 12h, 7d.")]


@app.command("list")
def tokens_list(
    owners: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="USER", help="Only tokens of this user; repeatable."),
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """List the tokens that you may see: your own, those you may renew, and those that ACLs let you describe.

    \b
    penstock tokens list
    penstock tokens list --owner alice
    """
    with connected(server, client_config) as cluster:
        found = client.list_tokens(cluster, [_principal(each) for each in owners] if owners else None)
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        print("no tokens")
    else:
        rows = [
            [
                each.id,
                each.owner,
                ", ".join(each.renewers) or None,
                show_time(each.expires_ms),
                _left(each.expires_ms),
                show_time(each.ends_ms),
            ]
            for each in found
        ]
        print_table(["TOKEN ID", "OWNER", "RENEWERS", "EXPIRES", "IN", "RENEWABLE UNTIL"], rows)


@app.command("create")
def tokens_create(
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="Write a client.properties with the token, and do not show it."
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="USER", help="For this user, instead of yourself.")
    ] = None,
    renewers: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="USER", help="Who may renew it too; repeatable.")
    ] = None,
    period: Annotated[
        str | None,
        typer.Option("--max-lifetime", metavar="TIME", help="Until when it can be renewed: 12h, 7d."),
    ] = None,
    mechanism: Annotated[
        str, typer.Option("--mechanism", metavar="NAME", help="The mechanism in FILE.")
    ] = "SCRAM-SHA-512",
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Create a token, and show its key or write it to a file.

    With --to, the new file has the brokers and the TLS settings of the client config, and the token as log-in.

    \b
    penstock tokens create --to job.properties --max-lifetime 12h
    penstock tokens create --renewer bob
    """
    if to is not None and to.exists():
        raise Refused(f"{to} exists already, expected a new file")
    if mechanism not in _MECHANISMS:
        raise Refused(f"--mechanism is {mechanism!r}, expected one of {', '.join(_MECHANISMS)}")
    lifetime = BROKER_DEFAULT if period is None else parse_duration(period, "--max-lifetime")
    with connected(server, client_config) as cluster:
        token = client.create_token(
            cluster,
            None if owner is None else _principal(owner),
            [_principal(each) for each in renewers or ()],
            lifetime,
        )
    until = f"expires {show_time(token.expires_ms)}, can be renewed until {show_time(token.ends_ms)}"
    if to is None:
        document = {**_as_json(token), "hmac": token.password}
        sentence = f"token of {token.owner}, {until}\nuser: {token.id}\npassword: {token.password}"
    else:
        login = {"username": token.id, "password": token.password, "tokenauth": "true"}
        write_client_file(to, target_of(server, client_config), mechanism, login)
        document = {**_as_json(token), "file": str(to)}
        sentence = f"token {token.id} of {token.owner} is in {to}; it {until}"
    print_result(document, sentence, as_json=as_json)


@app.command("renew")
def tokens_renew(
    token_id: TokenId,
    period: Period = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Renew a token: by default for as long as the broker's delegation.token.expiry.time.ms says.

    \b
    penstock tokens renew TOKEN_ID --for 12h
    """
    with connected(server, client_config) as cluster:
        token = _token(cluster, token_id)
        expires_ms = client.renew_token(
            cluster, token, BROKER_DEFAULT if period is None else parse_duration(period, "--for")
        )
    document = {"tokenId": token.id, "expiresMs": expires_ms}
    print_result(document, f"token {token.id} expires {show_time(expires_ms)}", as_json=as_json)


@app.command("expire")
def tokens_expire(
    token_id: TokenId,
    period: Period = None,
    yes: Yes = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Remove a token, or let it expire after a time.

    \b
    penstock tokens expire TOKEN_ID
    penstock tokens expire TOKEN_ID --for 10m
    """
    with connected(server, client_config) as cluster:
        token = _token(cluster, token_id)
        if period is None:
            confirm(f"Remove token {token.id} of {token.owner}?", "nothing was removed", yes=yes)
        left = BROKER_DEFAULT if period is None else parse_duration(period, "--for")
        expires_ms = client.expire_token(cluster, token, left)
    sentence = f"token {token.id} is removed"
    if period is not None:
        sentence = f"token {token.id} expires {show_time(expires_ms)}"
    print_result({"tokenId": token.id, "expiresMs": expires_ms}, sentence, as_json=as_json)


_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def _token(cluster: Cluster, token_id: str) -> Token:
    for each in client.list_tokens(cluster):
        if each.id == token_id:
            return each
    raise Refused(f"there is no token {token_id} that you may see: `penstock tokens list` shows them")


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _left(expires_ms: int) -> str:
    seconds = expires_ms // 1000 - int(time.time())
    if seconds <= 0:
        return "expired"
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _as_json(token: Token) -> dict[str, Any]:
    return {
        "tokenId": token.id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issuedMs": token.issued_ms,
        "expiresMs": token.expires_ms,
        "renewableUntilMs": token.ends_ms,
    }
