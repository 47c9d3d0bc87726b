"""The schema registry: its state, its decisions and its rules, without any I/O.

    errors           errors with Confluent's codes
    names            subjects and contexts
    schema           schemas, references, guids
    topic_records    the records of `_schemas`, as Confluent's registry writes them
    view             the state that those records make
    changes          requests that change it
    decisions        what a request answers, and the records that make it true
    compatibility    the seven levels
    formats/         Avro, JSON Schema and Protobuf: parsing, canonical text, compatibility
    work             functions of `formats` that run in a helper process

The libraries that parse schemas are imported by `formats` alone, in the helper process: a node that serves schemas
does not load them. The routes and the topic are in `gateway/schemas/` and `gateway/http/schemas/`.
"""
