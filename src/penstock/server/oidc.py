"""The console's identity provider, reached over HTTP from this node."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.base.world import World
from penstock.gateway.shared.oidc_client import OidcClient, OidcProvider
from penstock.server.oauth import fetch
from penstock.server.oidc_config import id_token_rules

if TYPE_CHECKING:
    from penstock.security.bearer import TokenValidator
    from penstock.server.oauth_config import OAuthConfig


def provider_of(
    world: World,
    client: OidcClient,
    oauth: "OAuthConfig",
    validator: "Callable[[OAuthConfig], TokenValidator]",
) -> OidcProvider:
    return OidcProvider(world, client, validator(id_token_rules(client, oauth)), fetch)
