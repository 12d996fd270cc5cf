from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.errors import InvalidRequest
from tidelog_spark.options import (
    RECORDS_PER_PARTITION_DEFAULT,
    SERVERS,
    Edge,
    Options,
    check_batch,
    check_stream,
    parse,
)

GIVEN = {SERVERS: "localhost:9210", "subscribe": "orders"}


def test_names_and_addresses_are_lists_with_commas_and_names_count_once() -> None:
    options = parse({SERVERS: "a:1, b:2", "subscribe": "orders, payments,orders"})
    assert options.servers == ("a:1", "b:2")
    assert options.streams == ("orders", "payments")


def test_what_is_not_said_has_the_documented_default() -> None:
    assert parse(GIVEN) == Options(
        servers=("localhost:9210",),
        streams=("orders",),
        assigned=None,
        starting=None,
        ending=None,
        offsets_per_trigger_max=None,
        partitions_min=None,
        records_per_partition_max=RECORDS_PER_PARTITION_DEFAULT,
        fail_on_data_loss=True,
        headers=False,
    )


def test_option_names_are_compared_without_case_as_spark_does() -> None:
    options = parse({**GIVEN, "FAILONDATALOSS": "False", "maxoffsetspertrigger": "7"})
    assert not options.fail_on_data_loss
    assert options.offsets_per_trigger_max == 7


def test_offsets_may_be_numbers_words_or_the_kafka_connectors_minus_one_and_two() -> None:
    points = '{"orders": {"0": 120, "1": "earliest", "2": -1, "3": -2, "4": "latest"}}'
    assert parse({**GIVEN, "startingOffsets": points}).starting == {
        "orders": {0: 120, 1: Edge.EARLIEST, 2: Edge.LATEST, 3: Edge.EARLIEST, 4: Edge.LATEST}
    }
    assert parse({**GIVEN, "endingOffsets": "Latest"}).ending is Edge.LATEST


def test_assign_chooses_partitions() -> None:
    options = parse({SERVERS: "a:1", "assign": '{"orders": [2, 0, 2], "payments": [1]}'})
    assert options.assigned == {"orders": (0, 2), "payments": (1,)}
    assert options.streams == ("orders", "payments")


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"startingOffset": "earliest"}, "startingOffset"),
        ({SERVERS: " , "}, SERVERS),
        ({"subscribe": ","}, "subscribe"),
        ({"assign": '{"orders": [0]}'}, "both"),
        ({"startingOffsets": "first"}, "first"),
        ({"startingOffsets": "[1]"}, "[1]"),
        ({"startingOffsets": "{}"}, "{}"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "-3"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "true"),
        ({"startingOffsets": '{"orders": {"zero": 1}}'}, "zero"),
        ({"startingOffsets": '{"orders": {"0": 1, "0": 2}}'}, '"0": 2'),
        ({"startingOffsets": '{"payments": {"0": 1}}'}, "payments"),
        ({"endingOffsets": '{"orders": ' + "[" * 100_000}, "endingOffsets"),
        ({"maxOffsetsPerTrigger": "0"}, "0"),
        ({"minPartitions": "two"}, "two"),
        ({"maxRecordsPerPartition": "-1"}, "-1"),
        ({"failOnDataLoss": "yes"}, "yes"),
        ({"includeHeaders": ""}, "includeHeaders"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence_that_names_it(wrong: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse({**GIVEN, **wrong})
    assert word in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "assign", ["orders", "{}", '{"orders": []}', '{"orders": ["0"]}', '{"orders": [-1]}']
)
def test_an_assignment_that_is_not_streams_and_partitions_is_refused(assign: str) -> None:
    with pytest.raises(InvalidRequest, match="assign is"):
        parse({SERVERS: "a:1", "assign": assign})


def test_a_read_needs_a_stream_and_a_broker() -> None:
    with pytest.raises(InvalidRequest, match="no stream is named"):
        parse({SERVERS: "a:1"})
    with pytest.raises(InvalidRequest, match="is missing"):
        parse({"subscribe": "orders"})


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (check_batch, {"maxOffsetsPerTrigger": "5"}),
        (check_batch, {"startingOffsets": "latest"}),
        (check_batch, {"endingOffsets": "earliest"}),
        (check_stream, {"endingOffsets": "latest"}),
    ],
)
def test_what_only_the_other_kind_of_read_can_do_is_refused(
    check: Callable[[Options], Options], wrong: dict[str, str]
) -> None:
    options = parse({**GIVEN, **wrong})
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        check(options)
