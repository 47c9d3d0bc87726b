"""Features in a cluster's metadata that Penstock does not implement, such as in a directory that Kafka wrote.

Access control that would not be enforced prevents serving the cluster; other features are logged as warnings.
"""

import logging
from typing import Final

from penstock.metadata.image import ClusterImage, ResourceType
from penstock.metadata.records import (
    AnyRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
)

logger = logging.getLogger(__name__)

_ACCESS_CONTROL: Final[dict[type[AnyRecord], str]] = {
    DelegationTokenRecord: "delegation tokens, which are not checked",
}
"""Access control that is not enforced, with the words for the error message."""


def unsupported_reason(image: ClusterImage, *, has_authorizer: bool) -> str | None:
    """Why this node must not serve the cluster; None if it may."""
    if image.acls and not has_authorizer:
        return (
            f"the cluster has {len(image.acls)} ACLs, and authorizer.class.name is not set: every client would have "
            "full access"
        )
    for kind, what in _ACCESS_CONTROL.items():
        if any(isinstance(each, kind) for each in image.kept.values()):
            return f"the cluster has {what} yet: every client would have full access"
    return None


def warn_unsupported(image: ClusterImage) -> None:
    quotas = sum(isinstance(each, ClientQuotaRecord) for each in image.kept.values())
    groups = sum(resource.type == ResourceType.GROUP for resource in image.configs)
    for count, what in ((quotas, "client quotas"), (groups, "groups with their own settings")):
        if count:
            logger.warning("the cluster has %d %s, which are kept but not enforced yet", count, what)
