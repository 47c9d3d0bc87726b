"""The cluster's metadata: an immutable image, the records that move it, and the controller that writes them.

codec         Kafka's message encoding            controller/   requests in, answers and records out
schema        the metadata records                  core          how it is run
control       the quorum's own records              topics        created, deleted, grown
ids           16-byte ids                           placement     where replicas go
versions      features and their levels             partitions    ISR changes, elections asked for
maps          maps that share what stays            elections     who leads, who is in sync
image         the cluster at one offset             brokers       registered, alive, fenced, leaving
replay        what each record does to it           configs       settings changed
snapshot      an image as records                   features      levels moved
delta         what changed between images           producer_ids  blocks handed out
configs       settings in force
config_table  settings by Kafka's names
bootstrap     what a new cluster starts with
"""

from penstock.base.ids import Uuid, random_uuid, uuid_from_text, uuid_text

from .bootstrap import bootstrap_records, feature_records
from .codec import NO_UUID, CorruptMetadata
from .configs import BrokerSettings, describe, log_defaults, log_settings, topic_setting, validate
from .control import decode_control, encode_control
from .controller import Controller, Outcome, Result
from .delta import ImageDelta, PartitionDelta, delta
from .image import (
    ALL_BROKERS,
    EMPTY,
    Broker,
    ClusterImage,
    ControllerNode,
    Partition,
    Resource,
    ResourceType,
    Topic,
)
from .replay import ReplayError
from .schema import AnyRecord, MetadataRecord, UnknownRecord, decode, encode

__all__ = [
    "ALL_BROKERS",
    "EMPTY",
    "NO_UUID",
    "AnyRecord",
    "Broker",
    "BrokerSettings",
    "ClusterImage",
    "Controller",
    "ControllerNode",
    "CorruptMetadata",
    "ImageDelta",
    "MetadataRecord",
    "Outcome",
    "Partition",
    "PartitionDelta",
    "ReplayError",
    "Resource",
    "ResourceType",
    "Result",
    "Topic",
    "UnknownRecord",
    "Uuid",
    "bootstrap_records",
    "decode",
    "decode_control",
    "delta",
    "describe",
    "encode",
    "encode_control",
    "feature_records",
    "log_defaults",
    "log_settings",
    "random_uuid",
    "topic_setting",
    "uuid_from_text",
    "uuid_text",
    "validate",
]
