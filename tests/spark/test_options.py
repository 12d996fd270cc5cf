from __future__ import annotations

import pytest

from tidelog.errors import InvalidRequest
from tidelog_spark.options import (
    Chosen,
    Options,
    Retries,
    TaskLimits,
    TriggerLimits,
    parse,
)
from tidelog_spark.payload import BadRecords
from tidelog_spark.points import Bound, Edge, Moment
from tidelog_spark.pruning import Pruning
from tidelog_spark.servers import SERVERS, Servers

GIVEN = {SERVERS: "localhost:9210", "subscribe": "orders"}
JSON = {"valueFormat": "json", "valueSchema": "id bigint"}


def test_names_and_addresses_are_lists_with_commas_and_names_count_once() -> None:
    options = parse({SERVERS: "a:1, b:2", "subscribe": "orders, payments,orders"})
    assert options.servers == Servers(("a:1", "b:2"))
    assert options.chosen == Chosen(("orders", "payments"))


def test_what_is_not_said_has_the_documented_default() -> None:
    assert parse(GIVEN) == Options(
        servers=Servers(("localhost:9210",)),
        chosen=Chosen(("orders",)),
        starting=None,
        ending=None,
        latest_if_no_record=False,
        trigger=TriggerLimits(offsets_max=None, bytes_max=None, offsets_min=None, delay_s_max=900.0),
        task=TaskLimits(partitions_min=None, records_max=1_000_000, bytes_max=None),
        retries=Retries(times=3, interval_s=0.01, fetch_timeout_s=60.0),
        fail_on_data_loss=True,
        headers=False,
    )


def test_option_names_are_compared_without_case_as_spark_does() -> None:
    options = parse({**GIVEN, "FAILONDATALOSS": "False", "maxoffsetspertrigger": "7"})
    assert not options.fail_on_data_loss
    assert options.trigger.offsets_max == 7


def test_offsets_may_be_numbers_words_or_the_kafka_connectors_minus_one_and_two() -> None:
    points = '{"orders": {"0": 120, "1": "earliest", "2": -1, "3": -2, "4": "latest"}}'
    assert parse({**GIVEN, "startingOffsets": points}).starting == Bound(
        "startingOffsets",
        {"orders": {0: 120, 1: Edge.EARLIEST, 2: Edge.LATEST, 3: Edge.EARLIEST, 4: Edge.LATEST}},
    )
    assert parse({**GIVEN, "endingOffsets": "Latest"}).ending == Bound("endingOffsets", Edge.LATEST)


def test_assign_chooses_partitions() -> None:
    options = parse({SERVERS: "a:1", "assign": '{"orders": [2, 0, 2], "payments": [1]}'})
    assert options.chosen.assigned == {"orders": (0, 2), "payments": (1,)}
    assert options.chosen.streams == ("orders", "payments")


def test_a_pattern_chooses_streams_by_name() -> None:
    chosen = parse({SERVERS: "a:1", "subscribePattern": " orders[.].* "}).chosen
    assert chosen == Chosen((), pattern="orders[.].*")


def test_a_timestamp_comes_before_timestamps_by_partition_and_these_before_offsets() -> None:
    for end in ("starting", "ending"):
        given = {**GIVEN, f"{end}Offsets": "earliest" if end == "starting" else "latest"}
        given[f"{end}OffsetsByTimestamp"] = '{"orders": {"0": 1000, "1": 2000}}'
        by_partition = {"orders": {0: Moment(1000), 1: Moment(2000)}}
        assert getattr(parse(given), end) == Bound(f"{end}OffsetsByTimestamp", by_partition)
        given[f"{end}Timestamp"] = "3000"
        assert getattr(parse(given), end) == Bound(f"{end}Timestamp", Moment(3000))


def test_limits_of_triggers_and_tasks_are_numbers_and_durations() -> None:
    given = {
        "maxOffsetsPerTrigger": "9",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "90s",
        "maxBytesPerTrigger": "1000",
        "minPartitions": "2",
        "maxRecordsPerPartition": "3",
        "maxBytesPerPartition": "400",
    }
    options = parse({**GIVEN, **given})
    assert options.trigger == TriggerLimits(9, 1000, 5, 90.0)
    assert options.task == TaskLimits(2, 3, 400)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("2h", 7200), ("1d", 86400), ("250ms", 0.25), ("1500", 1.5), ("3 min", 180), ("0s", 0)],
)
def test_durations_have_sparks_units_and_are_milliseconds_without_one(text: str, seconds: float) -> None:
    given = {"minOffsetsPerTrigger": "1", "maxTriggerDelay": text}
    assert parse({**GIVEN, **given}).trigger.delay_s_max == seconds


def test_columns_subjects_and_keys_are_pruned_by_brokers() -> None:
    given = {"columns": "offset, key,offset", "subjectFilter": "orders.*.eu  a,b.>", "key": " k "}
    assert parse({**GIVEN, **given}).pruning == Pruning(
        ("offset", "key"), ("orders.*.eu", "a,b.>"), (b" k ",)
    )
    assert parse({**GIVEN, "keys": '["ä", "b", "ä"]'}).pruning == Pruning(keys=("ä".encode(), b"b"))


def test_values_of_a_format_have_a_schema_and_raw_values_have_none() -> None:
    payload = parse({**GIVEN, **JSON, "BADRECORDS": "Drop", "columns": "offset"}).payload
    assert payload is not None
    assert payload.schema.simpleString() == "struct<id:bigint>"
    assert payload.bad_records is BadRecords.DROP
    assert parse({**GIVEN, "valueFormat": "RAW"}).payload is None


def test_retries_and_the_time_of_a_fetch_are_the_users() -> None:
    given = {"fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "0", "fetchTimeoutMs": "1500"}
    assert parse({**GIVEN, **given}).retries == Retries(0, 0.0, 1.5)


def test_the_strategy_for_timestamps_without_a_record_is_error_or_latest() -> None:
    assert not parse({**GIVEN, "startingOffsetsByTimestampStrategy": "error"}).latest_if_no_record
    assert parse({**GIVEN, "startingOffsetsByTimestampStrategy": "LATEST"}).latest_if_no_record


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("kafka.bootstrap.servers", "give tidelog.bootstrap.servers"),
        ("kafka.group.id", "no consumer groups yet"),
        ("groupIdPrefix", "no consumer groups yet"),
        ("cursorId", "no cursors yet"),
        ("kafkaConsumer.pollTimeoutMs", "fetchTimeoutMs"),
        ("kafka.session.timeout.ms", "a client of its own"),
    ],
)
def test_an_option_of_the_kafka_connector_is_refused_with_what_to_use(name: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse({**GIVEN, name: "x"})
    assert repr(name) in str(refusal.value)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"endingOffsets": '{"orders": ' + "[" * 100_000}, "endingOffsets is '{"),
        ({"startingOffsets": '{"payments": {"0": 1}}'}, "names the stream 'payments'"),
        ({"endingOffsetsByTimestamp": '{"other": {"0": 5}}'}, "names the stream 'other'"),
        ({**JSON, "badRecords": "column", "columns": "topic"}, "leader_epoch, headers, _bad_record"),
        ({"valueFormat": "avro"}, "valueSchema is missing; give the writer's Avro schema"),
        ({"valueFormat": "avro", "valueSchema": "{}", "timestampUnit": "ms"}, "only with valueFormat=json"),
        ({"valueFormat": "raw", "timestampUnit": "ms"}, "timestampUnit has an effect only with"),
    ],
)
def test_what_the_table_of_behaviour_leaves_out_is_refused_too(wrong: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse({**GIVEN, **wrong})
    assert word in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_read_needs_a_stream_and_a_broker() -> None:
    with pytest.raises(InvalidRequest, match="no stream is named"):
        parse({SERVERS: "a:1"})
    with pytest.raises(InvalidRequest, match="is missing"):
        parse({"subscribe": "orders"})
