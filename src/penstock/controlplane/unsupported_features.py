"""Features in a cluster's metadata that Penstock does not implement, such as in a directory that Kafka wrote.

Access control that would not be enforced prevents serving the cluster; other features are logged as warnings.
"""

import logging

from penstock.metadata.image import ClusterImage, ResourceType
from penstock.metadata.quotas import IP, is_address

logger = logging.getLogger(__name__)


def unsupported_reason(image: ClusterImage, *, has_authorizer: bool) -> str | None:
    """Why this node must not serve the cluster; None if it may."""
    if image.acls and not has_authorizer:
        return (
            f"the cluster has {len(image.acls)} ACLs, and authorizer.class.name is not set: every client would have "
            "full access"
        )
    return None


def warn_unsupported(image: ClusterImage, *, has_token_keys: bool) -> None:
    if image.tokens and not has_token_keys:
        logger.warning(
            "the cluster has %d delegation tokens, and delegation.token.secret.key is not set: clients cannot log in "
            "with one",
            len(image.tokens),
        )
    hosts = [
        name
        for entity in image.quotas
        for kind, name in entity
        if kind == IP and name is not None and not is_address(name)
    ]
    if hosts:
        logger.warning(
            "the cluster has quotas of %d host names, %s among them: host names are not looked up, so these limit no "
            "connections; set them for addresses",
            len(hosts),
            min(hosts),
        )
    groups = sum(resource.type == ResourceType.GROUP for resource in image.configs)
    if groups:
        logger.warning(
            "the cluster has %d groups with their own settings, which are kept but not enforced yet", groups
        )
