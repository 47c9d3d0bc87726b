"""Imports and exports the files of two older systems, MiniKafka and Kafka-JR.

    codec               common part of both formats: length-prefixed records
    minikafka, kafka_jr the two record formats
    layout              paths of topics, partitions and segments in both systems
    reader              reads the records of one partition, also from damaged files
    importer            imports a directory into a data directory
    exporter            exports a data directory

`docs/decisions/0002-older-layouts.md` has the mapping and its reasons.
"""
