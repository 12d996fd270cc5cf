"""The table of behaviour of typed values. A format has a stream in `streams` and a line here."""

from __future__ import annotations

from spark.behaviour.case import Bad, Case, Good, Table

_JSON = {"subscribe": "values", "valueFormat": "json", "valueSchema": "id bigint"}
_VALUES = {"subscribe": "values"}
_DDL = (
    "it must be DDL such as 'id bigint, price decimal(9,2), tags array<string>', or the JSON of a Spark "
    "schema. "
    "Names with other characters than letters, digits and _ stand in backquotes"
)
_IDS = ("offset", "value.id")
_DROPPED = [(0, 1), (2, None), (3, 2)]

GOOD_FORMATS = [
    Good({**_VALUES, "valueFormat": "raw"}, [(0, b'{"id": 1, "at": 2000}'), (1, b"oops"), (2, None),
         (3, b'{"id": 2}')], ("offset", "value")),
    Good({**_JSON, "badRecords": "drop"}, _DROPPED, _IDS),
    Good({**_JSON, "badRecords": "drop"}, _DROPPED, _IDS, batches=(3,)),
]  # fmt: skip
"""Values of each format become columns."""

TYPED_VALUES: Table = {
    "valueFormat": Case(
        good=GOOD_FORMATS,
        bad=[Bad({"valueFormat": "xml"}, "valueFormat is 'xml'; it must be 'raw' or 'json'")],
    ),
    "valueSchema": Case(
        good=[
            Good({**_JSON, "badRecords": "drop", "valueSchema": "id int, at bigint"},
                 [(1, 2000), (2, None), (None, None)], ("value.id", "value.at")),
            Good({**_JSON, "badRecords": "drop", "valueSchema": '{"type": "struct", "fields": [{"name": '
                                                                '"id", '
                  '"type": "string", "nullable": true, "metadata": {}}]}'},
                 [(0, "1"), (2, None), (3, "2")], _IDS),
        ],
        bad=[
            Bad({"valueFormat": "json"},
                "valueFormat is 'json', but valueSchema is missing; give the fields, for example "
                "'id bigint, amount double'"),
            Bad({"valueSchema": "id int"},
                "valueSchema has an effect only with valueFormat=json; give it, or remove valueSchema"),
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
                "badRecords has an effect only with valueFormat=json; give it, or remove badRecords"),
            Bad({**_JSON, "badRecords": "column", "columns": "key,value"},
                "badRecords is 'column', but columns does not name _bad_record; add _bad_record to columns, "
                "or set "
                "badRecords to 'fail' or 'drop'"),
            Bad({**_JSON, "badRecords": "fail"},
                "the record values/0 at offset 1 cannot be decoded: the value is not JSON: Expecting value: "
                "line 1 "
                "column 1 (char 0); correct valueSchema, or set badRecords to 'column' to keep bad records "
                "in the "
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
