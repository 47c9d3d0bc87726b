"""Asks for a password, or reads it from a file or standard input, since other users see what is on a command line."""

import getpass
import secrets
import sys
from typing import Annotated

import typer

from penstock.base.errors import KafkaError
from penstock.cli.connecting import input_is_terminal
from penstock.cli.output import Refused

PASSWORD_CHARACTERS_MAX = 1024

PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file", metavar="FILE", help="Read the password from a file, or `-` for standard input."
    ),
]


def read_password(user: str, file: str | None) -> str:
    """The first line of a file or of standard input, or what is typed twice at a terminal. Raises Refused."""
    if file is None and input_is_terminal():
        password = getpass.getpass(f"Password of {user}: ")
        if getpass.getpass("Again: ") != password:
            raise Refused("the two passwords differ, nothing was changed")
        return _checked(password, "the password")
    if file is None or file == "-":
        if sys.stdin is None:
            raise Refused(
                "there is no standard input to read the password from, expected --password-file FILE"
            )
        line = sys.stdin.readline(PASSWORD_CHARACTERS_MAX + 2)
        return _checked(line.rstrip("\r\n"), "the password on standard input")
    from penstock.client.referenced_values import read_text  # noqa: PLC0415

    try:
        text = read_text(file, expected="a password")
    except KafkaError as error:
        raise Refused(str(error)) from error
    return _checked(text.partition("\n")[0].rstrip("\r"), f"the password in {file}")


def drawn_password() -> str:
    """A new one, of 144 random bits."""
    return secrets.token_urlsafe(18)


def _checked(password: str, what: str) -> str:
    if not password:
        raise Refused(f"{what} is empty, expected one line")
    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise Refused(f"{what} has more than {PASSWORD_CHARACTERS_MAX} characters")
    if "\0" in password:
        raise Refused(f"{what} has a NUL character, expected text")
    return password
