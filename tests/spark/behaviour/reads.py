"""The table of behaviour of reads: each option but those of typed values (`typed_values`)."""

from __future__ import annotations

import json

from spark.behaviour.case import Bad, Case, Good, Row, Table, at
from spark.behaviour.streams import BEGIN_MS, MINUTE_MS
from spark.behaviour.tls_files import TLS_OPTIONS
from spark.brokers import ONE_BROKER
from tidelog_spark.options import NAMES
from tidelog_spark.servers import SERVERS

ALL: list[Row] = [*at(0, *range(10)), *at(1, *range(4))]
_WAYS = (
    "give subscribe (as in 'orders,payments'), subscribePattern (as in 'orders[.].*') or assign (as in "
    "'{\"orders\": [0, 1]}')"
)
_ADDRESS = (
    "tidelog.bootstrap.servers: '{}' is not the address of a broker; an address is host:port, for example "
    "localhost:9210"
)
_RE2 = "; give a regular expression of RE2, for example 'orders[.].*'"
_OFFSETS = '\'earliest\', \'latest\' or JSON like \'{"orders": {"0": 120, "1": "earliest"}}\''
_TIMES = 'JSON like \'{"orders": {"0": 1767225600000, "1": 1767225600000}}\' (milliseconds since 1970)'
_MOMENT = "milliseconds since 1970, before the year 10000"
_COLUMNS = "key, value, stream, partition, offset, timestamp, subject, leader_epoch, headers"
_ENDS = "a streaming query ends with Trigger.AvailableNow or stop()"
_LARGE = {"subscribe": "large"}
_TRIMMED = {"subscribe": "trimmed"}
_LOST = (
    "startingOffsets is 1 for trimmed/0, but the log begins at 3 and its next offset is 5; set "
    "failOnDataLoss to false to continue without them"
)


def _by(zero: object, one: object, stream: str = "orders") -> str:
    """A value for both partitions."""
    return json.dumps({stream: {"0": zero, "1": one}})


def _wrong(name: str, right: str, *values: str, **more: str) -> list[Bad]:
    """Values of an option that are refused, each with a sentence that says what is right."""
    return [Bad({**more, name: value}, f"{name} is {value!r}; it must be {right}") for value in values]


def _number(name: str, least: int = 1, **more: str) -> list[Bad]:
    """Values that are no number, or lie outside of the bounds."""
    right = f"a whole number from {least} to 4611686018427387903"
    return _wrong(name, right, str(least - 1), "ten", "9" * 30, **more)


_MIN = {"minOffsetsPerTrigger": "5"}
_BEFORE_1970 = "-1"

READS: Table = {
    SERVERS: Case(
        good=[
            Good({SERVERS: ONE_BROKER}, ALL),
            Good({SERVERS: f"127.0.0.1:1, {ONE_BROKER}"}, ALL, batches=(14,)),
        ],
        bad=[
            Bad({SERVERS: " , "},
                "option tidelog.bootstrap.servers is missing; give the address of a broker, for example "
                "localhost:9210"),
            *(Bad({SERVERS: f"127.0.0.1:9210,{address}"}, _ADDRESS.format(address))
              for address in ("localhost", "localhost:99999", "http://localhost:9210")),
        ],
        elsewhere="behaviour/test_faults.py::test_brokers_that_are_not_there_are_named",
    ),
    **TLS_OPTIONS,
    "subscribe": Case(
        good=[
            Good({"subscribe": "orders , trimmed,orders"}, [("orders",)] * 14 + [("trimmed",)] * 2,
                 ("stream",)),
            Good({"subscribe": "orders"}, ALL, batches=(14,)),
        ],
        bad=[
            Bad({"subscribe": ","},
                "subscribe names no stream; give one or more names, for example 'orders,payments'"),
            Bad({"subscribe": "orders,payments"},
                "there is no stream payments; create it, or correct the name in subscribe"),
            Bad({"subscribe": "payments"},
                "there is no stream payments; create it, or correct the name in subscribe", streaming=True),
            Bad({"subscribe": "orders", "subscribePattern": "o.*"},
                f"subscribe and subscribePattern are given together; {_WAYS}"),
        ],
    ),
    "subscribePattern": Case(
        good=[
            Good({"subscribePattern": "ord[a-z]+"}, ALL),
            Good({"subscribePattern": "order"}, []),
            Good({"subscribePattern": "ord.*|trimmed"}, sorted([*ALL, *at(0, 3, 4)]),
                 batches=(16,)),
        ],
        bad=[
            *_wrong("subscribePattern", "a regular expression, for example 'orders[.].*'", " "),
            Bad({"subscribePattern": "orders("},
                f"subscribePattern: 'orders(' is not a regular expression: missing ): orders({_RE2}"),
            Bad({"subscribePattern": "(?!orders).*"},
                "subscribePattern: '(?!orders).*' is not a regular expression: invalid perl operator: "
                f"(?!{_RE2}"),
        ],
    ),
    "assign": Case(
        good=[
            Good({"assign": '{"orders": [1]}'}, at(1, 0, 1, 2, 3)),
            Good({"assign": '{"orders": [1], "trimmed": [0, 0]}'}, [(0, 3), (0, 4), *at(1, 0, 1, 2, 3)],
                 batches=(6,)),
        ],
        bad=[
            *_wrong("assign", "JSON like '{\"orders\": [0, 1]}'", "orders", "{}", '{"orders": []}',
                    '{"orders": ["0"]}', '{"orders": [-1]}'),
            Bad({"assign": '{"payments": [0]}'},
                "there is no stream payments; create it, or correct the name in assign"),
            Bad({"assign": '{"orders": [3]}'},
                "assign names partition orders/3, but stream orders has partitions 0–1, not 3"),
            Bad({"assign": '{"orders": [0]}', "subscribe": "orders"},
                f"subscribe and assign are given together; {_WAYS}"),
        ],
    ),
    "startingTimestamp": Case(
        good=[
            Good({"startingTimestamp": str(BEGIN_MS + 2 * MINUTE_MS)}, [*at(0, *range(2, 10)), *at(1, 2, 3)]),
            Good({"startingTimestamp": str(BEGIN_MS + 1)}, [*at(0, *range(1, 10)), *at(1, 1, 2, 3)],
                 batches=(12,)),
        ],
        bad=[
            *_wrong("startingTimestamp", _MOMENT, "2026-01-01", _BEFORE_1970, "253402300800000"),
            Bad({"startingTimestamp": "2000", "endingTimestamp": "1999"},
                "startingTimestamp is 2000, which is later than endingTimestamp (1999); the end must not "
                "lie before the start"),
        ],
    ),
    "startingOffsetsByTimestamp": Case(
        good=[
            Good({"startingOffsetsByTimestamp": _by(BEGIN_MS, BEGIN_MS + 3 * MINUTE_MS)},
                 [*at(0, *range(10)), *at(1, 3)]),
            Good({"startingOffsetsByTimestamp": _by(BEGIN_MS + 9 * MINUTE_MS, 0),
                 "startingOffsets": "earliest"},
                 [*at(0, 9), *at(1, 0, 1, 2, 3)], batches=(5,)),
        ],
        bad=[
            *_wrong("startingOffsetsByTimestamp", _TIMES, "1000", _by(-1, 5), _by("latest", 5)),
            Bad({"startingOffsetsByTimestamp": '{"orders": {"0": 1}}'},
                'startingOffsetsByTimestamp lacks partition orders/1; name every partition that is read, as '
                'in '
                '{"orders": {"1": …}}'),
            Bad({"startingOffsetsByTimestamp": _by(1, 1, "payments")},
                "startingOffsetsByTimestamp names the stream 'payments', which is not read; remove it or "
                "subscribe to it"),
        ],
    ),
    "startingOffsets": Case(
        good=[
            Good({"startingOffsets": "Earliest"}, ALL),
            Good({"startingOffsets": _by(8, "earliest")}, [*at(0, 8, 9), *at(1, 0, 1, 2, 3)]),
            Good({"startingOffsets": _by(-1, -2)}, at(1, 0, 1, 2, 3), batches=(4,)),
            Good({"startingOffsets": "latest"}, [], batches=()),
        ],
        bad=[
            *_wrong("startingOffsets", _OFFSETS, "first", "", "[1]", "{}", _by(-3, 0), _by(True, 0),
                    '{"orders": {"zero": 1}}', '{"orders": {"0": 1, "0": 2}}'),
            Bad({"startingOffsets": "latest"},
                "startingOffsets is 'latest', so the batch would be empty; use 'earliest', offsets or a "
                "timestamp"),
            Bad({"startingOffsets": _by(7, 0), "endingOffsets": _by(3, 4)},
                "startingOffsets is 7 for orders/0, which lies behind endingOffsets (3); the end must not "
                "lie before the start"),
            Bad({"startingOffsets": _by(11, 0)},
                "startingOffsets is 11 for orders/0, but the log begins at 0 and its next offset is 10; set "
                "failOnDataLoss to false to continue without them", streaming=True),
            Bad({"startingOffsets": '{"orders": {"0": 1, "1": 0, "2": 0}}'},
                "startingOffsets names partition orders/2, which is not read; remove it"),
        ],
    ),
    "startingOffsetsByTimestampStrategy": Case(
        good=[
            Good({"subscribe": "early", "startingTimestamp": str(BEGIN_MS),
                  "startingOffsetsByTimestampStrategy": "latest"}, at(0, 0, 1, 2)),
        ],
        bad=[
            *_wrong("startingOffsetsByTimestampStrategy", "'error' or 'latest'", "earliest"),
            Bad({"subscribe": "early", "startingTimestamp": str(BEGIN_MS),
                 "startingOffsetsByTimestampStrategy": "error"},
                f"startingTimestamp is {BEGIN_MS} for early/1, but no record there has this timestamp or a "
                "later one; set startingOffsetsByTimestampStrategy to 'latest' to start at the end of such "
                "partitions"),
        ],
    ),
    "endingTimestamp": Case(
        good=[
            Good({"endingTimestamp": str(BEGIN_MS + MINUTE_MS)}, [*at(0, 0), *at(1, 0)]),
            Good({"endingTimestamp": str(BEGIN_MS + 60 * MINUTE_MS)}, ALL),
        ],
        bad=[
            *_wrong("endingTimestamp", _MOMENT, _BEFORE_1970),
            Bad({"endingTimestamp": "5"}, f"endingTimestamp is for spark.read; {_ENDS}", streaming=True),
        ],
    ),
    "endingOffsetsByTimestamp": Case(
        good=[Good({"endingOffsetsByTimestamp": _by(0, BEGIN_MS + 3 * MINUTE_MS)}, at(1, 0, 1, 2))],
        bad=[
            *_wrong("endingOffsetsByTimestamp", _TIMES, _by("latest", 5)),
            Bad({"endingOffsetsByTimestamp": '{"orders": {"0": 1, "1": 1, "2": 1}}'},
                "endingOffsetsByTimestamp names partition orders/2, which is not read; remove it"),
            Bad({"endingOffsetsByTimestamp": _by(5, 5)}, "endingOffsetsByTimestamp is for spark.read; "
                                                         f"{_ENDS}",
                streaming=True),
        ],
    ),
    "endingOffsets": Case(
        good=[
            Good({"endingOffsets": "latest"}, ALL),
            Good({"endingOffsets": _by(1, -1), "startingOffsets": _by(1, 3)}, at(1, 3)),
        ],
        bad=[
            *_wrong("endingOffsets", _OFFSETS, "last", _by(0.5, 1)),
            Bad({"endingOffsets": "earliest"},
                "endingOffsets is 'earliest', so the batch would be empty; use 'latest', offsets or a "
                "timestamp"),
            Bad({"endingOffsets": _by(11, 4)},
                "endingOffsets is 11 for orders/0, but the log begins at 0 and its next offset is 10; set "
                "failOnDataLoss to false to continue without them"),
            Bad({"endingOffsets": "latest"}, f"endingOffsets is for spark.read; {_ENDS}", streaming=True),
        ],
    ),
    "maxOffsetsPerTrigger": Case(
        good=[Good({"maxOffsetsPerTrigger": "6"}, ALL, batches=(6, 6, 2))],
        bad=[
            *_number("maxOffsetsPerTrigger"),
            Bad({"maxOffsetsPerTrigger": "5"},
                "maxOffsetsPerTrigger is for spark.readStream; use endingOffsets to bound a batch"),
        ],
    ),
    "maxBytesPerTrigger": Case(
        good=[Good({**_LARGE, "maxBytesPerTrigger": "350000"}, at(0, *range(8)), batches=(3, 3, 2))],
        bad=[
            *_number("maxBytesPerTrigger"),
            Bad({"maxBytesPerTrigger": "5"},
                "maxBytesPerTrigger is for spark.readStream; use endingOffsets to bound a batch"),
        ],
    ),
    "minOffsetsPerTrigger": Case(
        good=[Good({"minOffsetsPerTrigger": "100"}, ALL, batches=(14,))],
        bad=[
            *_number("minOffsetsPerTrigger"),
            Bad({**_MIN, "maxOffsetsPerTrigger": "4"},
                "minOffsetsPerTrigger is 5, which is more than maxOffsetsPerTrigger (4); no micro-batch can "
                "have both"),
            Bad(_MIN, "minOffsetsPerTrigger is for spark.readStream; a batch reads the records that exist; "
                      "remove it"),
        ],
        elsewhere="behaviour/test_waiting.py::test_a_micro_batch_waits_for_enough_offsets",
    ),
    "maxTriggerDelay": Case(
        good=[Good({"minOffsetsPerTrigger": "100", "maxTriggerDelay": "2h"}, ALL, batches=(14,))],
        bad=[
            *_wrong("maxTriggerDelay", "a duration such as '90s', '15m' or '2h'", "soon", "5 fortnights",
                 "-1s",
                    **_MIN),
            Bad({"maxTriggerDelay": "5m"},
                "maxTriggerDelay has an effect only with minOffsetsPerTrigger; give both, or remove it",
                streaming=True),
        ],
        elsewhere="behaviour/test_waiting.py::test_a_micro_batch_does_not_wait_longer_than_its_delay",
    ),
    "minPartitions": Case(
        good=[Good({"minPartitions": "7"}, ALL, tasks=7)],
        bad=_number("minPartitions"),
    ),
    "maxRecordsPerPartition": Case(
        good=[Good({"maxRecordsPerPartition": "3"}, ALL, tasks=6), Good({}, ALL, tasks=2)],
        bad=_number("maxRecordsPerPartition"),
    ),
    "maxBytesPerPartition": Case(
        good=[Good({**_LARGE, "maxBytesPerPartition": "250000"}, at(0, *range(8)), tasks=4),
              Good({**_LARGE, "maxBytesPerPartition": "1"}, at(0, *range(8)), tasks=8)],
        bad=_number("maxBytesPerPartition"),
    ),
    "columns": Case(
        good=[
            Good({"columns": "offset, key,offset"}, columns=("offset", "key")),
            Good({"columns": "partition,offset"}, ALL, columns=("partition", "offset"), batches=(14,)),
        ],
        bad=[
            *_wrong("columns", f"names of columns with commas between them: {_COLUMNS}", "key,topic", " , "),
            Bad({"columns": "key,_bad_record"},
                "columns names _bad_record, but this column exists only with badRecords=column; set "
                "badRecords to 'column', or remove _bad_record from columns"),
        ],
    ),
    "subjectFilter": Case(
        good=[
            Good({"subjectFilter": "orders.us.*"}, [*at(0, 1, 3, 5, 7, 9), *at(1, 1, 3)]),
            Good({"subjectFilter": "orders.*.8  orders.us.3"}, [*at(0, 3, 8), *at(1, 3)], batches=(3,)),
        ],
        bad=[
            *_wrong("subjectFilter", "one or more subjects with spaces between them, as in 'orders.*.eu'",
                 " "),
            Bad({"subjectFilter": "orders.>.x"},
                "subjectFilter: 'orders.>.x' is not a filter for NATS subjects: '>' is only allowed as the "
                "last token"),
            Bad({"subjectFilter": " ".join(f"a{number}" for number in range(65))},
                "subjectFilter has 65 entries; give at most 64"),
        ],
    ),
    "key": Case(
        good=[Good({"key": "k1"}, [*at(0, 1, 3, 5, 7, 9), *at(1, 1, 3)]),
              Good({"key": " k1"}, []),
              Good({"key": "k0"}, [*at(0, 0, 2, 4, 6, 8), *at(1, 0, 2)], batches=(7,))],
        bad=[Bad({"key": "k1", "keys": '["k0"]'},
                 "key and keys are given together; give key for one key, keys for several")],
    ),
    "keys": Case(
        good=[Good({"keys": '["k1", "k7"]'}, [*at(0, 1, 3, 5, 7, 9), *at(1, 1, 3)])],
        bad=[
            *_wrong("keys", 'a JSON list of keys as text, as in \'["customer-1", "customer-2"]\'', "k1",
                 "[]", "[1]",
                    '["\\ud800"]'),
            Bad({"keys": json.dumps([str(number) for number in range(1001)])},
                "keys has 1001 entries; give at most 1000"),
        ],
    ),
    "failOnDataLoss": Case(
        good=[
            Good({**_TRIMMED, "failOnDataLoss": "FALSE", "startingOffsets": '{"trimmed": {"0": 1}}'}, at(0,
                 3, 4)),
            Good({**_TRIMMED, "failOnDataLoss": "false", "startingOffsets": '{"trimmed": {"0": 1}}'}, at(0,
                 3, 4),
                 batches=(2,)),
            Good({**_TRIMMED, "failOnDataLoss": "true"}, at(0, 3, 4)),
        ],
        bad=[
            *_wrong("failOnDataLoss", "'true' or 'false'", "yes", ""),
            Bad({**_TRIMMED, "startingOffsets": '{"trimmed": {"0": 1}}'}, _LOST),
            Bad({**_TRIMMED, "startingOffsets": '{"trimmed": {"0": 1}}', "failOnDataLoss": "true"}, _LOST,
                streaming=True),
        ],
    ),
    "includeHeaders": Case(
        good=[
            Good({"includeHeaders": "true", "assign": '{"orders": [1]}'},
                 [(number, "n", b"%d" % number) for number in range(4)],
                 ("offset", "headers[0].key", "headers[0].value"), columns=(*_COLUMNS.split(", "),)),
            Good({"includeHeaders": "false"}, columns=(*_COLUMNS.split(", ")[:-1],)),
        ],
        bad=[
            *_wrong("includeHeaders", "'true' or 'false'", "1"),
            Bad({"includeHeaders": "true", "columns": "key"},
                "includeHeaders is 'true', but columns does not name headers; add headers to columns, or "
                "remove includeHeaders"),
        ],
    ),
    "fetchOffset.numRetries": Case(
        good=[Good({"fetchOffset.numRetries": "0"}, ALL)],
        bad=_number("fetchOffset.numRetries", 0),
        elsewhere="test_stream_reader.py::test_a_request_of_the_planner_is_repeated_as_often_as_the_options_say",
    ),
    "fetchOffset.retryIntervalMs": Case(
        good=[Good({"fetchOffset.retryIntervalMs": "0"}, ALL)],
        bad=_number("fetchOffset.retryIntervalMs", 0),
        elsewhere="test_stream_reader.py::test_a_request_of_the_planner_is_repeated_as_often_as_the_options_say",
    ),
    "fetchTimeoutMs": Case(
        good=[Good({"fetchTimeoutMs": "30000"}, ALL)],
        bad=_number("fetchTimeoutMs"),
        elsewhere="behaviour/test_faults.py::test_a_task_gives_up_when_no_broker_answers_for_its_time",
    ),
}  # fmt: skip

_NO_GROUPS = (
    "Tidelog has no consumer groups yet: a query keeps its position in its checkpoint and shares its "
    "streams with no other reader; remove the option"
)
_NO_KAFKA = "it configures a Kafka client, and Tidelog has a client of its own; remove the option"

FOREIGN = [
    Bad({"startingOffset": "earliest"},
        f"option 'startingoffset' is not known; the options are {', '.join(NAMES)}"),
    Bad({"kafka.bootstrap.servers": "a:1"},
        "option 'kafka.bootstrap.servers' is not taken: give tidelog.bootstrap.servers, for example "
        "localhost:9210"),
    Bad({"kafka.group.id": "g"}, f"option 'kafka.group.id' is not taken: {_NO_GROUPS}"),
    Bad({"groupIdPrefix": "g"}, f"option 'groupidprefix' is not taken: {_NO_GROUPS}"),
    Bad({"kafkaConsumer.pollTimeoutMs": "5"},
        "option 'kafkaconsumer.polltimeoutms' is not taken: the name of this option is fetchTimeoutMs"),
    Bad({"kafka.acks": "all"}, f"option 'kafka.acks' is not taken: {_NO_KAFKA}"),
    Bad({"subscribe": "orders", "cursorId": "c"},
        "option 'cursorid' is not taken: Tidelog has no cursors yet, so a query cannot publish its "
        "position; its progress (StreamingQueryProgress) has the offsets, and docs/spark.md says how to get "
        "the lag from it"),
]  # fmt: skip
"""Options that are not in the table."""
