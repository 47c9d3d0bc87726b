"""The authorizer that a node's settings ask for."""

from typing import TYPE_CHECKING

from penstock.base.settings import BadSetting
from penstock.server.config import NodeConfig

if TYPE_CHECKING:
    from penstock.security.authorizer import Authorizer


def make_authorizer(config: NodeConfig) -> "Authorizer | None":
    """None if every client may do everything. Until the metadata log is read, it allows nothing but to super users:
    controllers' listeners are open before."""
    if not config.setting("authorizer.class.name"):
        return None
    from penstock.security.authorizer import Authorizer  # noqa: PLC0415  # most nodes have none

    return Authorizer(
        (),
        super_users(config.setting("super.users") or ""),
        allows_without_acl=config.flag("allow.everyone.if.no.acl.found"),
        is_read=False,
    )


def super_users(text: str) -> frozenset[str]:
    users = frozenset(each.strip() for each in text.split(";")) - {""}
    for user in users:
        if ":" not in user:
            raise BadSetting(f"super.users has {user!r}, expected principals such as User:alice;User:bob")
    return users
