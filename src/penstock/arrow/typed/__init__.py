"""Keys and values with a schema, as typed Arrow columns.

typed_column     bytes to a typed column: schema ids, tombstones, reasons of what does not decode
frame_columns    parses the schema ids of many values at once
avro_tree        Avro schemas as trees, and their Arrow types
avro_projection  Avro's schema resolution, on Arrow columns
avro_values      Avro values to Arrow
json_types       JSON Schema to Arrow types
json_values      JSON values to Arrow
protobuf_values  Protobuf messages to Arrow
derived_schemas  schemas for Arrow types
value_writers    Arrow columns to Avro or JSON values
salvage          finds the values that do not decode, and keeps the rest
"""
