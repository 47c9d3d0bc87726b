"""The cluster's metadata: an immutable image, the records that move it, and the controller that writes them.

schema        the metadata records                controller/   requests in, answers and records out
control       the quorum's own records              core          how it is run
ids           16-byte ids                           topics        created, deleted, grown
versions      features and their levels             placement     where replicas go
maps          maps that share what stays            partitions    ISR changes, elections asked for
image         the cluster at one offset             elections     who leads, who is in sync
replay        what each record does to it           brokers       registered, alive, fenced, leaving
snapshot      an image as records                   configs       settings changed
delta         what changed between images           features      levels moved
configs       settings in force                     producer_ids  blocks handed out
config_table  settings by Kafka's names             balancing     preferred leaders restored
bootstrap     what a new cluster starts with        reassignments replicas moved
"""

from penstock.base.ids import Uuid, random_uuid, uuid_from_text, uuid_text
from penstock.records.structs import NO_UUID, CorruptStruct

from .bootstrap import bootstrap_records, feature_records
from .configs import BrokerSettings, describe, log_defaults, log_settings, topic_setting, validate
from .control_records import decode_control, encode_control
from .controller import Controller, Result
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
from .records import AnyRecord, MetadataRecord, UnknownRecord, decode, encode
from .replay import ReplayError

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
    "CorruptStruct",
    "ImageDelta",
    "MetadataRecord",
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
