from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.model import Position
from tidelog_spark.offsets import Mark, PartitionKey, from_document, ranges_between, to_document

ORDERS = UUID(int=1).bytes
OTHER = UUID(int=2).bytes
KEY = PartitionKey("orders", 0)

_offset = st.integers(0, (1 << 63) - 1)
_marks = st.builds(
    Mark,
    st.just(ORDERS),
    st.builds(Position, _offset, st.none() | st.integers(0, (1 << 32) - 1)),
    _offset,
)
_keys = st.builds(PartitionKey, st.sampled_from(["orders", "a.b-c", "Z"]), st.integers(0, 12))


@given(st.dictionaries(_keys, _marks))
def test_a_document_read_back_means_the_same_and_is_written_with_the_same_text(
    marks: dict[PartitionKey, Mark],
) -> None:
    text = json.dumps(to_document(marks))
    again = from_document(json.loads(text))
    assert again == marks
    assert json.dumps(to_document(again)) == text


def test_the_text_does_not_depend_on_the_order_of_the_partitions() -> None:
    mark = Mark(ORDERS, Position(5, 1), 0)
    keys = [PartitionKey("orders", 10), PartitionKey("orders", 9), PartitionKey("a", 0)]
    one = json.dumps(to_document(dict.fromkeys(keys, mark)))
    assert one == json.dumps(to_document(dict.fromkeys(reversed(keys), mark)))


def test_the_document_is_the_one_that_the_docs_show() -> None:
    mark = Mark(ORDERS, Position(1200, 3), 0)
    assert to_document({KEY: mark}) == {
        "version": 1,
        "streams": {
            "orders": {
                "id": "00000000-0000-0000-0000-000000000001",
                "partitions": {"0": {"epoch": 3, "first": 0, "offset": 1200}},
            }
        },
    }


@pytest.mark.parametrize(
    "document",
    [
        None,
        7,
        {},
        {"version": 1},
        {"orders": {"0": 5}},
        {"version": 1, "streams": {"orders": {"id": "x", "partitions": {}}}},
        {
            "version": 1,
            "streams": {"orders": {"id": "0" * 32, "partitions": {"0": {"offset": -1, "first": 0}}}},
        },
        {
            "version": 1,
            "streams": {"orders": {"id": "0" * 32, "partitions": {"0": {"offset": "1", "first": 0}}}},
        },
    ],
)
def test_a_foreign_document_is_refused(document: object) -> None:
    with pytest.raises(InvalidRequest, match="not Tidelog offsets"):
        from_document(document)


def test_a_document_of_a_later_version_asks_for_a_later_release() -> None:
    with pytest.raises(InvalidRequest, match="version 2"):
        from_document({"version": 2, "streams": {}})


def test_a_range_goes_from_mark_to_mark_and_keeps_both_epochs() -> None:
    start = {KEY: Mark(ORDERS, Position(10, 1), 0)}
    end = {KEY: Mark(ORDERS, Position(30, 2), 0)}
    (found,) = ranges_between(start, end)
    assert (found.start, found.end, found.count) == (Position(10, 1), Position(30, 2), 20)


def test_a_partition_that_enters_is_read_from_where_the_query_began_with_it() -> None:
    (found,) = ranges_between({}, {KEY: Mark(ORDERS, Position(30, 2), 12)})
    assert found.start == Position(12)


def test_a_stream_created_anew_is_read_from_its_first_offset_not_from_the_old_ones() -> None:
    start = {KEY: Mark(ORDERS, Position(500, 9), 0)}
    (found,) = ranges_between(start, {KEY: Mark(OTHER, Position(30, 1), 3)})
    assert (found.stream_id, found.start.offset, found.end.offset) == (OTHER, 3, 30)


def test_nothing_lies_between_equal_marks_nor_behind_a_log_that_became_shorter() -> None:
    mark = Mark(ORDERS, Position(10, 1), 0)
    assert ranges_between({KEY: mark}, {KEY: mark}) == []
    assert ranges_between({KEY: mark}, {KEY: mark._replace(position=Position(4, 1))}) == []
