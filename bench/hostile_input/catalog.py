"""All cases, by the name that the table has (docs/hostile-input.md)."""

from __future__ import annotations

import asyncio

from bench.hostile_input.bombs import (
    BOMB_BYTES,
    Case,
    bombs_produced,
    bombs_read,
    one_record_bombs_read,
    small_requests_beside,
)
from bench.hostile_input.crowds import many_fetches, many_publishes, slow_http
from bench.hostile_input.messages import (
    large_batches,
    offsets_of_nothing,
    publish_of_headers,
    publish_of_many_headers,
    publish_of_records,
    raw_requests,
)
from bench.hostile_input.stalled import (
    STALLED_SECONDS,
    incompressible,
    kilobyte_records,
    many_empty_records,
    stalled_readers,
)
from support.api import Api
from support.broker import BrokerProcess
from tidelog_proto import log_pb2

MIB = 1 << 20
BATCHES, PLAIN = log_pb2.VERBATIM, log_pb2.RECORDS


async def nothing(broker: BrokerProcess, api: Api) -> str:
    await asyncio.sleep(STALLED_SECONDS)
    return ""


CASES: dict[str, Case] = {
    "nothing": nothing,
    "60 bombs produced on one call": bombs_produced(60, 1),
    "240 bombs produced on 24 calls": bombs_produced(240, 24),
    "8 RECORDS readers of 8 bombs": bombs_read(8, 8),
    "1 RECORDS reader of 60 bombs": bombs_read(1, 60),
    "8 RECORDS readings of 8 bombs of one record": one_record_bombs_read,
    "1000 publishes beside 60 bombs produced and 8 readers": small_requests_beside,
    "200 RECORDS readers that stop reading, 1 KB records": stalled_readers(200, kilobyte_records, PLAIN, MIB),
    "200 RECORDS readers that stop reading, 1M empty records": stalled_readers(
        200, many_empty_records, PLAIN, MIB
    ),
    "200 VERBATIM readers of 1 MiB that stop reading": stalled_readers(200, incompressible, BATCHES, MIB),
    "200 VERBATIM readers of 16 MiB that stop reading": stalled_readers(
        200, incompressible, BATCHES, 16 * MIB
    ),
    "40 batches of 15 MB, not compressed, written and read": large_batches(40, 15_000_000),
    "40 requests of 16 MiB that are 8M headers": raw_requests("Publish", publish_of_headers, 40),
    "40 publishes of 10,000 tiny records": raw_requests("Publish", publish_of_records, 40),
    "40 publishes of 70,000 headers": raw_requests("Publish", publish_of_many_headers, 40),
    "40 requests of 1 MiB that are 500,000 partitions": raw_requests(
        "Offsets", lambda: offsets_of_nothing(MIB), 40
    ),
    "40 requests of 16 MiB that are 8M partitions": raw_requests(
        "Offsets", lambda: offsets_of_nothing(16 * MIB), 40
    ),
    "40 requests of 65 MiB": raw_requests("Offsets", lambda: offsets_of_nothing(65 * MIB), 40),
    "3,000 fetch calls of one client": many_fetches(3000),
    "10,000 publishes of one client at once": many_publishes(10_000),
    "32 slow HTTP connections": slow_http(32),
    "200 slow HTTP connections": slow_http(200),
}

LARGE_MESSAGES = "8 batches of 60 MB, with message_bytes_max of 65 MiB"
"""Beyond the default settings."""

LARGE_MESSAGES_CASE: Case = large_batches(8, BOMB_BYTES)
LARGE_MESSAGES_FLAGS = ("--message-bytes-max", str(65 * MIB))
