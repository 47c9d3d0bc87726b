"""Makes the log-ins of a node's SASL listeners and doors. Imported only by nodes
that have one, since it loads what checks passwords."""

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.handlers.sasl import SaslListener
from penstock.handlers.support.context import Context
from penstock.handlers.support.latest_metadata import LatestMetadata
from penstock.metadata.delegation_tokens import is_expired, owner_name
from penstock.metadata.image import ScramUser
from penstock.metadata.scram import ScramMechanism
from penstock.security.bearer import TokenValidator
from penstock.security.sasl.exchange import Exchange
from penstock.security.sasl.login import MakeExchange
from penstock.security.sasl.oauthbearer import OAuthBearerExchange
from penstock.security.sasl.plain import PlainExchange
from penstock.security.sasl.scram import KnownUser, ScramExchange
from penstock.security.sasl.unknown_users import UnknownUsers
from penstock.server.oauth_config import OAuthConfig
from penstock.server.sasl_config import OAUTHBEARER, SCRAMS, SaslConfig

if TYPE_CHECKING:
    from penstock.gateway.shared.door_logins import DoorLogins
    from penstock.gateway.shared.oidc_client import OidcClient, OidcProvider

NONCE_BYTES = 24

HTTP = "HTTP"
"""The HTTP port among listeners."""


class Logins:
    """All listeners of a node share their users and the question for the controller's latest metadata."""

    def __init__(
        self,
        sasl: Mapping[str, SaslConfig],
        context: Context,
        validator: Callable[[OAuthConfig], TokenValidator],
        failed_delay_ms: int,
        console_secret: str | None = None,
        oidc: "OidcClient | None" = None,
    ) -> None:
        """`sasl` has the listeners and doors whose clients must log in; `console_secret` is `console.session.secret`,
        and `oidc` the console as a client of an identity provider."""
        self._oidc = oidc
        self._console_secret = console_secret
        self._sasl = sasl
        self._context = context
        self._validator = validator
        self._failed_delay_ms = failed_delay_ms
        self._latest, self._users = LatestMetadata(context), MetadataUsers(context)
        self._doors: dict[str, DoorLogins] = {}
        """By name. The HTTP port and the schema registry's share one, and so count failed log-ins together."""

    def listener(self, name: str) -> SaslListener:
        config = self._sasl[name]
        return SaslListener(
            self._context,
            {
                mechanism: _exchange_maker(mechanism, config, self._context, self._users, self._validator)
                for mechanism in config.mechanisms
            },
            receive_bytes_max=config.receive_bytes_max,
            failed_delay_ms=self._failed_delay_ms,
            session_ms=config.session_ms,
            reached_latest=self._latest.reached,
        )

    def door(self, name: str) -> "DoorLogins":
        """The log-ins of a door; the same for each call."""
        from penstock.gateway.shared.door_logins import DoorLogins  # noqa: PLC0415  # loaded with the doors

        if name in self._doors:
            return self._doors[name]
        config = self._sasl[name]
        made = self._doors[name] = DoorLogins(
            self._context,
            plain=config.plain_users,
            scrams=[SCRAMS[each] for each in config.mechanisms if each in SCRAMS],
            users=self._users,
            tokens=None if config.oauth is None else self._validator(config.oauth),
            reached_latest=self._latest.reached,
            failed_delay_ms=self._failed_delay_ms,
            session_ms=config.session_ms,
            secret=os.urandom(32),
            console_secret=self._console_secret,
            oidc=self._provider(config.oauth) if name == HTTP else None,
        )
        return made

    def _provider(self, oauth: OAuthConfig | None) -> "OidcProvider | None":
        if self._oidc is None or oauth is None:
            return None
        from penstock.server.oidc import provider_of  # noqa: PLC0415  # few nodes have one

        return provider_of(self._context.world, self._oidc, oauth, self._validator)


def _exchange_maker(
    name: str,
    config: SaslConfig,
    context: Context,
    users: "MetadataUsers",
    validator: Callable[[OAuthConfig], TokenValidator],
) -> MakeExchange:
    if name == OAUTHBEARER:
        assert config.oauth is not None
        tokens = validator(config.oauth)
        return lambda: OAuthBearerExchange(tokens, context.world.now_ms)
    mechanism = SCRAMS.get(name)
    if mechanism is None:
        plain = config.plain_users
        assert plain is not None
        return lambda: PlainExchange(plain)

    def make() -> Exchange:
        return ScramExchange(mechanism, users, b64encode(os.urandom(NONCE_BYTES)).decode())

    return make


class MetadataUsers:
    """The SCRAM users and delegation tokens of a node's metadata."""

    def __init__(self, context: Context) -> None:
        self._context = context
        unknown = UnknownUsers(lambda: context.image, os.urandom(32))
        self.challenge, self.secret = unknown.challenge, unknown.secret

    def user(self, mechanism: ScramMechanism, name: str) -> KnownUser | None:
        found = self._context.image.scram_users.get(ScramUser(mechanism, name))
        return None if found is None else KnownUser(name, found)

    def token(self, mechanism: ScramMechanism, token_id: str) -> KnownUser | None:
        keys, found = self._context.token_keys, self._context.image.tokens.get(token_id)
        if keys is None or found is None or is_expired(found, self._context.world.now_ms()):
            return None
        owner = owner_name(found)
        if owner is None:
            return None
        expires_ms = min(found.expiration_timestamp, found.max_timestamp)
        return KnownUser(owner, keys.credential(mechanism, token_id), expires_ms)
