"""The cluster's metadata: an immutable image, the records that change it, and the controller that writes them.

records          the metadata records               controller/     requests in, replies and records out
control_records  the quorum's control records         controller      the entry point
ids              16-byte ids                          topics          create, delete, add partitions
versions         features and their levels            placement       replicas of new partitions
maps             persistent maps                      partitions      ISR changes, requested elections
image            the cluster at one offset            elections       leader and ISR of a partition
replay           applies records to an image          brokers         registration, heartbeats, fencing
snapshot         an image as records                  configs         changes of settings
delta            changes between two images           features        changes of feature levels
configs          effective settings                   producer_ids    allocation of blocks
config_table     settings by Kafka's names            balancing       preferred leaders
bootstrap        records of a new cluster             reassignments   moves of replicas
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
