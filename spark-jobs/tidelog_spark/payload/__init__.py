"""The typed payload of a record: values of a format with a schema become columns (`valueFormat`).

What belongs here: the options of a payload, its schema, and a decoder for each format. It needs no Spark
session. What does not: fetching records, and the other columns of a row.

- `options`      the options, checked
- `types`        the schema and its Arrow type; `ddl` reads its text
- `decoded`      what a decoder answers
- `json_values`  JSON, many values at once; `json_records` one value, with the rules
- `avro_values`  Avro, with the schema of `avro_schema`; `avro_scan` checks a value first
- `protobuf_values`  protobuf, with the message type of `protobuf_schema`; `protobuf_scan` bounds a value
- `arrow_values`  Arrow, many rows at once, with the columns of `arrow_columns`; `arrow_scan` bounds a value
- `rows`         a batch of rows with the payload, and what happens to bad records
- `limits`       what one value may cost
"""

from tidelog_spark.payload.options import NAMES, BadRecords, Payload, parse_payload
from tidelog_spark.payload.rows import BAD_RECORD, BadRecord, stored_schema, with_payload

__all__ = [
    "BAD_RECORD",
    "NAMES",
    "BadRecord",
    "BadRecords",
    "Payload",
    "parse_payload",
    "stored_schema",
    "with_payload",
]
