"""The table of behaviour of typed values. A format has a stream in `streams` and a line here."""

from __future__ import annotations

from spark.behaviour.case import Bad, Case, Good, Table
from spark.behaviour.streams import AVRO, DESCRIPTOR_FILE, DESCRIPTORS

_JSON = {"subscribe": "values", "valueFormat": "json", "valueSchema": "id bigint"}
_AVRO = {"subscribe": "values-avro", "valueFormat": "avro", "valueSchema": AVRO}
_PROTOBUF = {
    "subscribe": "values-protobuf",
    "valueFormat": "protobuf",
    "valueSchema": DESCRIPTORS,
    "valueMessage": "R",
}
_FROM_FILE = {name: text for name, text in _PROTOBUF.items() if name != "valueSchema"} | {
    "valueDescriptorFile": str(DESCRIPTOR_FILE)
}
_ARROW = {"subscribe": "values-arrow", "valueFormat": "arrow", "valueSchema": "id bigint"}
_VALUES = {"subscribe": "values"}
_DDL = (
    "it must be DDL such as 'id bigint, price decimal(9,2), tags array<string>', or the JSON of a Spark "
    "schema. Names with other characters than letters, digits and _ stand in backquotes"
)
_ONLY = "has an effect only with valueFormat=json, avro, protobuf or arrow"
_IDS = ("offset", "value.id")
_DROPPED = [(0, 1), (2, None), (3, 2)]

GOOD_FORMATS = [
    Good({**_VALUES, "valueFormat": "raw"}, [(0, b'{"id": 1, "at": 2000}'), (1, b"oops"), (2, None),
         (3, b'{"id": 2}')], ("offset", "value")),
    Good({**_JSON, "badRecords": "drop"}, _DROPPED, _IDS),
    Good({**_JSON, "badRecords": "drop"}, _DROPPED, _IDS, batches=(3,)),
    Good({**_AVRO, "badRecords": "drop"}, _DROPPED, _IDS),
    Good({**_PROTOBUF, "badRecords": "drop"}, _DROPPED, _IDS),
    Good({**_ARROW, "badRecords": "drop"}, _DROPPED, _IDS),
]  # fmt: skip
"""Values of each format become columns."""

TYPED_VALUES: Table = {
    "valueFormat": Case(
        good=GOOD_FORMATS,
        bad=[
            Bad({"valueFormat": "xml"},
                "valueFormat is 'xml'; it must be 'raw' or 'json' or 'avro' or 'protobuf' "
                "or 'arrow'"),
        ],
    ),
    "valueSchema": Case(
        good=[
            Good({**_JSON, "badRecords": "drop", "valueSchema": "id int, at bigint"},
                 [(1, 2000), (2, None), (None, None)], ("value.id", "value.at")),
            Good({**_JSON, "badRecords": "drop", "valueSchema": '{"type": "struct", "fields": [{"name": '
                                                                '"id", '
                  '"type": "string", "nullable": true, "metadata": {}}]}'},
                 [(0, "1"), (2, None), (3, "2")], _IDS),
            Good({**_ARROW, "badRecords": "drop", "valueSchema": "id int, at timestamp"},
                 [(1, None), (2, None), (None, None)], ("value.id", "value.at")),
        ],
        bad=[
            Bad({"valueFormat": "json"},
                "valueFormat is 'json', but valueSchema is missing; give the fields, for example "
                "'id bigint, amount double'"),
            Bad({"valueSchema": "id int"},
                f"valueSchema {_ONLY}; give it, or remove valueSchema"),
            Bad({**_JSON, "valueSchema": "id integr"},
                f"valueSchema cannot be read near 'integr' (character 4); {_DDL}"),
            Bad({**_JSON, "valueSchema": " "},
                 f"valueSchema cannot be read at its end (character 1); {_DDL}"),
            Bad({**_JSON, "valueSchema": "m map<int,int>"},
                "valueSchema: the keys of value.m are int; keys of a map must be string"),
            Bad({**_JSON, "valueSchema": "a int, a int"},
                "valueSchema: value has the field 'a' twice; names must differ"),
        ],
    ),
    "valueMessage": Case(
        good=[Good({**_PROTOBUF, "badRecords": "drop"}, _DROPPED, _IDS)],
        bad=[
            Bad({**_PROTOBUF, "valueMessage": "S"},
                "valueMessage is 'S', which the FileDescriptorSet does not have; give the full name of a "
                "message, such as shop.Order"),
            Bad({**_JSON, "valueMessage": "R"},
                "valueMessage has an effect only with valueFormat=protobuf; give it, or remove valueMessage"),
        ],
    ),
    "valueDescriptorFile": Case(
        good=[Good({**_FROM_FILE, "badRecords": "drop"}, _DROPPED, _IDS)],
        bad=[
            Bad({**_PROTOBUF, "valueDescriptorFile": "/no/such"},
                "valueSchema and valueDescriptorFile are both given; remove one of them"),
            Bad({**_FROM_FILE, "valueDescriptorFile": "/no/such"},
                "valueDescriptorFile is '/no/such', which the driver cannot read: [Errno 2] No such file or "
                "directory: '/no/such'; give the path of a FileDescriptorSet on the driver"),
        ],
    ),
    "badRecords": Case(
        good=[
            Good({**_JSON, "badRecords": "column"},
                 [(0, 1, None), (1, None, b"oops"), (2, None, None), (3, 2, None)],
                 ("offset", "value.id", "_bad_record.value")),
            Good({**_JSON, "badRecords": "drop"}, _DROPPED, _IDS),
        ],
        bad=[
            Bad({**_JSON, "badRecords": "skip"}, "badRecords is 'skip'; it must be 'fail' or 'column' or "
                                                 "'drop'"),
            Bad({"badRecords": "drop"},
                f"badRecords {_ONLY}; give it, or remove badRecords"),
            Bad({**_JSON, "badRecords": "column", "columns": "key,value"},
                "badRecords is 'column', but columns does not name _bad_record; add _bad_record to columns, "
                "or set badRecords to 'fail' or 'drop'"),
            Bad({**_JSON, "badRecords": "fail"},
                "the record values/0 at offset 1 cannot be decoded: the value is not JSON: Expecting value: "
                "line 1 column 1 (char 0); correct valueSchema, or set badRecords to 'column' to keep bad "
                "records in the "
                "column _bad_record, or to 'drop'"),
        ],
    ),
    "timestampUnit": Case(
        good=[
            Good({**_JSON, "badRecords": "drop", "valueSchema": "at timestamp", "timestampUnit": unit},
                 [(0, at), (2, None), (3, None)], ("offset", "unix_millis(value.at)"))
            for unit, at in (("s", 2_000_000), ("ms", 2_000), ("us", 2))
        ],
        bad=[
            Bad({**_JSON, "timestampUnit": "ns"}, "timestampUnit is 'ns'; it must be 's' or 'ms' or 'us'"),
            Bad({"timestampUnit": "ms"},
                "timestampUnit has an effect only with valueFormat=json; give it, or remove timestampUnit"),
        ],
    ),
}  # fmt: skip
