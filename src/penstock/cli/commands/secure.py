"""`penstock secure`: what a secured node or cluster on trial needs."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.base.errors import KafkaError
from penstock.cli.command_group import command_group
from penstock.cli.options import Json
from penstock.cli.output import Refused, print_result
from penstock.cli.passwords import PasswordFile, read_password

app = command_group(
    """Make certificates and a first user for a secured node or cluster.

    \b
    penstock secure init secured
    """
)


@app.callback()
def _group() -> None:
    """So that `init` is a command of a group, though it is the only one."""


@app.command("init")
def secure_init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new directory, or an empty one, for all files.")
    ],
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME[:PORT]",
            help="The name or address by which clients reach the node; repeat it for a cluster, once for each node.",
        ),
    ] = None,
    user: Annotated[str, typer.Option("--user", help="The first user, a super user.")] = "admin",
    password_file: PasswordFile = None,
    days: Annotated[
        int, typer.Option("--days", min=1, max=3650, help="How long the certificates are valid.")
    ] = 365,
    as_json: Json = False,
) -> None:
    """Make a certificate authority, certificates of nodes, and a first user.

    Writes the configuration of each node and the client config of the user, whose password is drawn unless a file has
    it. Clients use TLS and log in with SCRAM-SHA-512; ACLs are on, and the user may do everything. Nodes of a cluster
    know each other by their certificates. Without --host, the node is reached from this machine only.

    \b
    penstock secure init secured
    penstock up --config secured/node.properties
    penstock topics list --client-config secured/admin.properties
    """
    try:
        from penstock.cli.secured_files import SecuredFiles  # noqa: PLC0415  # needs a package

        files = SecuredFiles(hosts or [], user, days)
    except (KafkaError, ValueError) as error:
        raise Refused(str(error)) from error
    password = None if password_file is None else read_password(user, password_file)
    written = files.write(directory, password)
    starts = [f"penstock up --config {directory / name}" for name in written.nodes]
    use = f"penstock topics list --client-config {directory / written.client}"
    document = {
        "directory": str(directory),
        "user": user,
        "nodes": [str(directory / each) for each in written.nodes],
        "clientConfig": str(directory / written.client),
        "servers": written.servers,
    }
    where = "" if len(starts) == 1 else ", each on its machine, where the same directory is at the same path"
    sentence = "\n".join(
        [
            f"{directory} has a certificate authority, certificates and the user {user}, who may do everything.",
            "Keep ca.key away from the nodes: who has it can make certificates that clients trust.",
            "",
            f"Next{where}:",
            *(f"  {each}" for each in starts),
            f"  {use}",
        ]
    )
    print_result(document, sentence, as_json=as_json)
