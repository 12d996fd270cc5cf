"""Records to batches: content, sizes, the budget they share."""

import asyncio

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog._producing.batching import (
    OpenBatch,
    encode,
    record_size,
)
from tidelog._producing.buffer_budget import Budget
from tidelog.records import Compression, decode_batch
from tidelog.records.limits import BATCH_OVERHEAD_BYTES

HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=10),
        HEADERS,
        st.none() | st.text(max_size=10),
    ),
    min_size=1,
    max_size=40,
)


BARE_RECORDS = st.lists(
    st.tuples(
        st.binary(max_size=9), st.sampled_from([b"k", None]), st.just(()), st.sampled_from(["ü", None])
    ),
    min_size=1,
    max_size=3,
)
"""Most of these take the way past Arrow, the others just miss it."""


def filled(records: list[tuple[object, ...]]) -> OpenBatch:
    batch = OpenBatch()
    for number, (value, key, headers, subject) in enumerate(records):
        size = record_size(value, key, headers, subject, number)  # type: ignore[arg-type]
        batch.append(value, number * 1000, key, headers, subject, size)  # type: ignore[arg-type]
    return batch


@given(RECORDS)
def test_the_counted_size_is_never_less_than_the_encoded_one(records: list[tuple[object, ...]]) -> None:
    batch = filled(records)
    data = encode(batch.columns(), Compression.NONE, 1 << 20)
    assert len(data) <= batch.used + BATCH_OVERHEAD_BYTES


@given(RECORDS | BARE_RECORDS)
def test_few_plain_records_are_encoded_as_arrow_would(records: list[tuple[object, ...]]) -> None:
    batch = filled(records)
    assert encode(batch, Compression.NONE, 1 << 20) == encode(batch.columns(), Compression.NONE, 1 << 20)


@given(RECORDS)
def test_a_batch_holds_its_records_in_order(records: list[tuple[object, ...]]) -> None:
    columns = decode_batch(encode(filled(records).columns(), Compression.NONE, 1 << 20))
    rows = columns.to_pylist()
    for row, (value, key, headers, subject) in zip(rows, records, strict=True):
        assert row["value"] == value
        assert row.get("key") == key
        assert row.get("subject") == subject
        assert tuple((h["key"], h["value"]) for h in row.get("headers") or ()) == headers
    times = columns.column("timestamp").view(pa.int64()).to_pylist()
    assert times == list(range(len(records)))


def test_memory_is_taken_in_steps_and_at_least_as_needed() -> None:
    budget, batch = Budget(100_000), OpenBatch()
    assert batch.reserve(10, budget, 1 << 20)
    assert budget.used == 64 << 10
    batch.room -= 64 << 10
    assert batch.reserve(20_000, budget, 1 << 20)
    assert budget.used == (64 << 10) + 20_000
    batch.room -= 20_000
    assert not batch.reserve(50_000, budget, 1 << 20)


async def test_waiters_for_room_are_served_in_their_order() -> None:
    budget = Budget(10)
    budget.take(10)
    order: list[int] = []

    async def want(number: int, size: int) -> None:
        await budget.room(size)
        order.append(number)

    tasks = [asyncio.create_task(want(1, 8)), asyncio.create_task(want(2, 1))]
    await asyncio.sleep(0)
    budget.release(4)
    await asyncio.sleep(0)
    assert order == []
    budget.release(6)
    await asyncio.gather(*tasks)
    assert order == [1, 2]


async def test_a_cancelled_waiter_does_not_hold_up_the_next() -> None:
    budget = Budget(10)
    budget.take(10)
    first, second = asyncio.create_task(budget.room(10)), asyncio.create_task(budget.room(5))
    await asyncio.sleep(0)
    budget.release(5)
    first.cancel()
    await second
