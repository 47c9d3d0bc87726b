"""Names of Kafka's internal topics."""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Clients can read them, and cannot produce to them."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""The quorum's log, in the files of a partition. It is not a topic of the cluster."""
