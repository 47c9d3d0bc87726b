"""Makes the SASL listeners of a node. Imported only by nodes that have one, since it loads what checks passwords."""

import os
from base64 import b64encode
from collections.abc import Callable, Mapping

from penstock.handlers.sasl import SaslListener
from penstock.handlers.support.context import Context
from penstock.handlers.support.latest_metadata import LatestMetadata
from penstock.metadata.image import ScramUser
from penstock.metadata.records import UserScramCredentialRecord
from penstock.metadata.scram import ScramMechanism, hashed
from penstock.security.bearer import TokenValidator
from penstock.security.sasl.exchange import Exchange
from penstock.security.sasl.login import MakeExchange
from penstock.security.sasl.oauthbearer import OAuthBearerExchange
from penstock.security.sasl.plain import PlainExchange
from penstock.security.sasl.scram import ScramExchange
from penstock.server.oauth_config import OAuthConfig
from penstock.server.sasl_config import OAUTHBEARER, SCRAMS, SaslConfig

NONCE_BYTES = 24


def make_sasl_listeners(
    sasl: Mapping[str, SaslConfig],
    context: Context,
    validator: Callable[[OAuthConfig], TokenValidator],
    failed_delay_ms: int,
) -> dict[str, SaslListener]:
    latest = LatestMetadata(context)
    return {
        name: SaslListener(
            context,
            {
                mechanism: _exchange_maker(mechanism, config, context, validator)
                for mechanism in config.mechanisms
            },
            receive_bytes_max=config.receive_bytes_max,
            failed_delay_ms=failed_delay_ms,
            session_ms=config.session_ms,
            reached_latest=latest.reached,
        )
        for name, config in sasl.items()
    }


def _exchange_maker(
    name: str, config: SaslConfig, context: Context, validator: Callable[[OAuthConfig], TokenValidator]
) -> MakeExchange:
    if name == OAUTHBEARER:
        assert config.oauth is not None
        tokens = validator(config.oauth)
        return lambda: OAuthBearerExchange(tokens, context.world.now_ms)
    mechanism = SCRAMS.get(name)
    if mechanism is None:
        users = config.plain_users
        assert users is not None
        return lambda: PlainExchange(users)

    def lookup(mechanism: ScramMechanism, user: str) -> UserScramCredentialRecord | None:
        found: UserScramCredentialRecord | None = context.image.scram_users.get(ScramUser(mechanism, user))
        return found

    def make() -> Exchange:
        nonce = b64encode(os.urandom(NONCE_BYTES)).decode()
        # All brokers of a cluster have the same salts for unknown users.
        secret = hashed(mechanism, f"penstock unknown user {context.cluster_id}".encode())
        return ScramExchange(mechanism, lookup, nonce, secret)

    return make
