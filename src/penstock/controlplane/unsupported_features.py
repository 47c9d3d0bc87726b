"""What a cluster may have that is not acted on here: a directory that Kafka wrote brings it along.

What keeps people out is a reason not to serve the cluster at all; of the rest the operator is told.
"""

import logging
from typing import Final

from penstock.metadata import AnyRecord, ClusterImage
from penstock.metadata.image import ResourceType
from penstock.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)

logger = logging.getLogger(__name__)

_GUARDS: Final[dict[type[AnyRecord], str]] = {
    AccessControlEntryRecord: "ACLs, which are not enforced",
    UserScramCredentialRecord: "users with passwords (SCRAM), who are not asked for them",
    DelegationTokenRecord: "delegation tokens, which are not asked for",
}
"""What keeps people out of a cluster, and would not here."""


def unsupported_reason(image: ClusterImage) -> str | None:
    """Why this node may not serve such a cluster."""
    for kind, what in _GUARDS.items():
        if any(isinstance(each, kind) for each in image.kept.values()):
            return f"the cluster has {what} yet: serving it would let everybody do everything"
    return None


def warn_unsupported(image: ClusterImage) -> None:
    quotas = sum(isinstance(each, ClientQuotaRecord) for each in image.kept.values())
    groups = sum(resource.type == ResourceType.GROUP for resource in image.configs)
    for count, what in ((quotas, "quotas of clients"), (groups, "groups with settings of their own")):
        if count:
            logger.warning("the cluster has %d %s, which are kept but not acted on yet", count, what)
