"""Makes the `ssl.SSLContext` of a listener from keys and certificates, which `client/key_stores.py` loads.

A file is read once, so that the certificate that is checked is the one that is used.
"""

import ssl
from datetime import datetime
from typing import NamedTuple

from penstock.base.settings import BadSetting
from penstock.client.key_stores import authorities, key_material, load_authorities, load_key, new_context
from penstock.security.x509 import BadCertificate, not_after, subject
from penstock.server.tls_config import NO_CLIENT_AUTH, REQUIRED, TlsConfig


class Loaded(NamedTuple):
    """What a listener uses for new connections."""

    context: ssl.SSLContext
    not_after: datetime
    """When the certificate expires."""
    subject: str


def load(config: TlsConfig) -> Loaded:
    """Read keys and certificates, and make a context."""
    material = key_material(config.key_store)
    context = new_context(ssl.PROTOCOL_TLS_SERVER, config.versions, config.suites, config.suites_setting)
    context.num_tickets = 0  # TLS 1.3: a resumed session would skip the check of the client's certificate
    load_key(context, material, config.key_store)
    if config.client_auth != NO_CLIENT_AUTH and config.trust_store is not None:
        load_authorities(context, authorities(config.trust_store), config.trust_store)
        context.verify_mode = ssl.CERT_REQUIRED if config.client_auth == REQUIRED else ssl.CERT_OPTIONAL
    try:
        own = ssl.PEM_cert_to_DER_cert(material.certificates[0])
        return Loaded(context, not_after(own), subject(own))
    except BadCertificate as error:
        raise BadSetting(f"{config.key_store.setting}: {error}") from error
