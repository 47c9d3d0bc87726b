"""`penstock users`: users that log in with SCRAM."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.base.errors import ErrorCode
from penstock.cli.client_files import write_client_file
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, confirm, connected, target_of
from penstock.cli.options import Json, Yes
from penstock.cli.output import Refused, counted, print_json, print_result, print_table
from penstock.cli.passwords import PasswordFile, drawn_password, read_password
from penstock.client import scram_users as client
from penstock.client.acls import describe_acls
from penstock.client.admin import Resource, ResourceType, describe_configs
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.scram_users import ScramUser
from penstock.metadata.acls import AclFilter, AclResourceType, Operation, PatternType, Permission
from penstock.metadata.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

ITERATIONS_DEFAULT = 8192
MECHANISM_DEFAULT = ScramMechanism.SCRAM_SHA_512
_MECHANISMS = "sasl.enabled.mechanisms"
_SUPER_USERS = "super.users"

app = command_group(
    """List, add and remove users, set their passwords, and explain what they can do.

    Users log in with SCRAM (SCRAM-SHA-256 or SCRAM-SHA-512) at listeners that enable it. Works with Penstock and
    Apache Kafka. Passwords are asked for, or read from a file or standard input.

    \b
    penstock users add alice
    penstock users set-password alice --password-file secret.txt
    penstock users list
    penstock users explain alice
    """
)

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Mechanism = Annotated[
    str | None,
    typer.Option("--mechanism", metavar="SCRAM-SHA-256|SCRAM-SHA-512", help="Only this mechanism."),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations",
        min=ITERATIONS_MIN,
        max=ITERATIONS_MAX,
        help="How often the password is hashed: more make it harder to guess, and each log-in slower.",
    ),
]


@app.command("list")
def users_list(
    names: Annotated[list[str] | None, typer.Argument(metavar="[USER]...", help="Only these.")] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """List users, with their mechanisms and iterations.

    \b
    penstock users list
    """
    with connected(server, client_config) as cluster:
        found = client.list_users(cluster, names or None)
    missing = sorted(set(names or ()) - {each.name for each in found})
    if missing:
        raise Refused(f"there is no user {', '.join(missing)}")
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        print("no users")
    else:
        rows: list[list[str | int | None]] = [
            [each.name, mechanism.label, count]
            for each in found
            for mechanism, count in each.iterations.items()
        ]
        print_table(["USER", "MECHANISM", "ITERATIONS"], rows)


@app.command("add")
def users_add(
    name: Name,
    mechanism: Mechanism = None,
    iterations: Iterations = ITERATIONS_DEFAULT,
    password_file: PasswordFile = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Draw a password, and write a client.properties with it."),
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Add a user with a password.

    The user can log in at every broker once the command has ended. Add a second mechanism in the same way.
    With --to, the new file has the brokers and the TLS settings of the client config, and the log-in of the new user.

    \b
    penstock users add alice
    penstock users add alice --to alice.properties
    penstock users add alice --mechanism SCRAM-SHA-256 --password-file -
    """
    wanted = MECHANISM_DEFAULT if mechanism is None else _mechanism(mechanism)
    if to is not None and password_file is not None:
        raise Refused("--to and --password-file are both given, expected one of them: --to draws a password")
    if to is not None and to.exists():
        raise Refused(f"{to} exists already, expected a new file")
    with connected(server, client_config) as cluster:
        user = _user(cluster, name)
        if user is not None and wanted in user.iterations:
            raise Refused(
                f"user {name} has a password for {wanted.label} already: change it with "
                f"`penstock users set-password {name}`"
            )
        if to is None:
            client.set_password(cluster, name, read_password(name, password_file), wanted, iterations)
        else:
            password = drawn_password()
            login = {"username": name, "password": password}
            write_client_file(to, target_of(server, client_config), wanted.label, login)
            try:
                client.set_password(cluster, name, password, wanted, iterations)
            except BaseException:
                to.unlink()
                raise
    by = "" if to is None else f", by {to}"
    _report(name, [wanted], f"user {name} can log in with {wanted.label}{by}", as_json=as_json)


@app.command("set-password")
def users_set_password(
    name: Name,
    mechanism: Mechanism = None,
    iterations: Iterations = ITERATIONS_DEFAULT,
    password_file: PasswordFile = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Set the password of a user, for all mechanisms that it has.

    Connections that are open stay open until the broker asks for another log-in (connections.max.reauth.ms).

    \b
    penstock users set-password alice
    """
    with connected(server, client_config) as cluster:
        wanted = _held(cluster, name, mechanism)
        password = read_password(name, password_file)
        for each in wanted:
            client.set_password(cluster, name, password, each, iterations)
    labels = " and ".join(each.label for each in wanted)
    _report(name, wanted, f"the password of user {name} is set for {labels}", as_json=as_json)


@app.command("remove")
def users_remove(
    name: Name,
    mechanism: Mechanism = None,
    yes: Yes = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Remove a user, or its password for one mechanism. Its ACLs stay: see `penstock acls`.

    \b
    penstock users remove alice
    """
    with connected(server, client_config) as cluster:
        wanted = _held(cluster, name, mechanism)
        confirm(f"Remove user {name}?", "nothing was removed", yes=yes)
        for each in wanted:
            client.remove_password(cluster, name, each)
    labels = " or ".join(each.label for each in wanted)
    _report(name, wanted, f"user {name} can no longer log in with {labels}", as_json=as_json)


@app.command("explain")
def users_explain(
    name: Name,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Say whether a user can log in, and what decides about its requests. The exit code is 1 if it cannot.

    \b
    penstock users explain alice
    """
    with connected(server, client_config) as cluster:
        user = _user(cluster, name)
        settings = _broker_settings(cluster)
        acls = _acls(cluster, f"User:{name}")
    enabled = {each.strip() for each in settings[_MECHANISMS].split(",")} - {""}
    held = [] if user is None else [each.label for each in user.iterations]
    usable = [each for each in held if each in enabled]
    is_super = f"User:{name}" in {each.strip() for each in settings[_SUPER_USERS].split(";")}
    document = {
        "user": name,
        "mechanisms": held,
        "enabledMechanisms": sorted(enabled),
        "canLogIn": bool(usable),
        "isSuperUser": is_super,
        "acls": acls,
    }
    if user is None:
        first = f"there is no SCRAM user {name}; users of PLAIN are in the broker's settings"
    elif usable:
        first = f"{name} can log in with {' or '.join(usable)}"
    else:
        first = (
            f"{name} cannot log in: it has a password for {' and '.join(held)}, and the broker's {_MECHANISMS} "
            f"has {', '.join(sorted(enabled)) or 'none'}"
        )
    if is_super:
        second = f"{_SUPER_USERS} has it: it may do everything"
    elif acls is None:
        second = "there is no authorizer: every client may do everything"
    else:
        second = (
            f"{counted(acls, 'ACL')} of User:{name}: see `penstock acls list --principal {name}`, and "
            f"`penstock acls explain {name} read topic NAME`"
        )
    print_result(document, f"{first}\n{second}", as_json=as_json)
    return 0 if usable else 1


def _broker_settings(cluster: Cluster) -> dict[str, str]:
    """Two settings of any broker. Mechanisms are those of all its listeners."""
    broker = Resource(ResourceType.BROKER, str(next(iter(cluster.refresh([]).brokers))))
    found = describe_configs(cluster, broker)
    return {
        _MECHANISMS: ",".join(each.value or "" for each in found if each.name.endswith(_MECHANISMS)),
        _SUPER_USERS: next((each.value or "" for each in found if each.name == _SUPER_USERS), ""),
    }


def _acls(cluster: Cluster, principal: str) -> int | None:
    """How many ACLs name a principal; None if ACLs are off."""
    wanted = AclFilter(
        AclResourceType.ANY, None, PatternType.ANY, principal, None, Operation.ANY, Permission.ANY
    )
    try:
        return len(describe_acls(cluster, wanted))
    except BrokerRefused as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        return None


def _user(cluster: Cluster, name: str) -> ScramUser | None:
    return next(iter(client.list_users(cluster, [name])), None)


def _held(cluster: Cluster, name: str, mechanism: str | None) -> list[ScramMechanism]:
    """The mechanisms of a user, or the one that is asked for."""
    user = _user(cluster, name)
    if user is None:
        raise Refused(f"there is no user {name}: add it with `penstock users add {name}`")
    if mechanism is None:
        return list(user.iterations)
    wanted = _mechanism(mechanism)
    if wanted not in user.iterations:
        labels = ", ".join(each.label for each in user.iterations)
        raise Refused(f"user {name} has no password for {wanted.label}, it has one for {labels}")
    return [wanted]


def _mechanism(text: str) -> ScramMechanism:
    for each in ScramMechanism:
        if each.label == text.upper():
            return each
    raise Refused(
        f"--mechanism is {text!r}, expected one of {', '.join(each.label for each in ScramMechanism)}"
    )


def _report(name: str, mechanisms: list[ScramMechanism], sentence: str, *, as_json: bool) -> None:
    document = {"user": name, "mechanisms": [each.label for each in mechanisms]}
    print_result(document, sentence, as_json=as_json)


def _as_json(user: ScramUser) -> dict[str, object]:
    mechanisms = [{"mechanism": each.label, "iterations": count} for each, count in user.iterations.items()]
    return {"user": user.name, "mechanisms": mechanisms}
