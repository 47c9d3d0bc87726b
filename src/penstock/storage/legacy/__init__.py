"""The files of two older systems, MiniKafka and Kafka-JR, read and written.

    codec       what both formats have in common: records with a length in front
    minikafka   one record of each, as bytes
    kafka_jr
    layout      where topics, partitions and segments lie in a directory of each
    reader      one partition's records in order, whatever state its files are in
    importer    a directory of theirs into a data directory
    exporter    a data directory into a directory of theirs

What maps to what, and why, is in `docs/decisions/0002-older-layouts.md`.
"""

from .errors import CorruptSource, LegacyError, OffsetsOutOfOrder
from .exporter import ExportReport, export_directory
from .importer import ImportReport, import_directory
from .kafka_jr import IDEMPOTENCY_HEADER
from .layout import FORMATS, Format, find_topics
from .reader import Damage

__all__ = [
    "FORMATS",
    "IDEMPOTENCY_HEADER",
    "CorruptSource",
    "Damage",
    "ExportReport",
    "Format",
    "ImportReport",
    "LegacyError",
    "OffsetsOutOfOrder",
    "export_directory",
    "find_topics",
    "import_directory",
]
