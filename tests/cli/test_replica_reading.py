"""Reading one replica to its end: what it lacks is named, and reading goes on behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog._connecting.framing import FetchAnswer
from tidelog.cli.verify.replica_reading import ReplicaReading
from tidelog.errors import DataCorrupt, LogTruncated, OffsetOutOfRange, TidelogError, Unavailable
from tidelog.history.replicas import Lack, Piece
from tidelog.model import StreamConfig, StreamDescription
from tidelog.wire import error_to_proto
from tidelog_proto import log_pb2

END = 10


class ScriptedBroker:
    """Answers each Fetch call with the next error, or with the end of what it has."""

    address = "scripted:1"

    def __init__(self, *answers: TidelogError | int) -> None:
        """An int: it has nothing more, and this high watermark."""
        self._answers = list(answers)
        self.asked: list[int] = []
        """Offsets from which it was asked to read."""

    def fetch(self, request: log_pb2.FetchRequest) -> Any:
        assert request.own_replica
        self.asked.append(request.partitions[0].position.offset)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return ScriptedCall(answer)


class ScriptedCall:
    def __init__(self, answer: TidelogError | int) -> None:
        self._answer = answer

    async def read(self) -> FetchAnswer:
        if isinstance(self._answer, int):
            facts = log_pb2.FetchResponse(high_watermark=self._answer, end=log_pb2.EndOfPartition())
        else:
            facts = log_pb2.FetchResponse(error=error_to_proto(self._answer))
        return FetchAnswer(facts, b"")

    def cancel(self) -> bool:
        return True


async def pieces_of(broker: ScriptedBroker, *, patience: float = 0.0) -> list[Piece]:
    stream = StreamDescription("orders", bytes(16), StreamConfig(), 1, 0, ())
    deadline = asyncio.get_running_loop().time() + patience
    reading = ReplicaReading(broker, stream, 0, 0, END, deadline)  # type: ignore[arg-type]
    return [piece async for piece in reading.pieces()]


async def test_a_damaged_range_is_corrupt_and_the_rest_is_read() -> None:
    broker = ScriptedBroker(DataCorrupt("rot", damaged_start=0, damaged_end=4), 4)

    corrupt, missing = await pieces_of(broker)

    assert (corrupt.lack, corrupt.start, corrupt.end) == (Lack.CORRUPT, 0, 4)
    assert (missing.lack, missing.start, missing.end) == (Lack.MISSING, 4, END)
    assert broker.asked[:2] == [0, 4]


async def test_what_lies_below_the_log_start_is_retired() -> None:
    retired, _ = await pieces_of(ScriptedBroker(OffsetOutOfRange("low", log_start_offset=6), 6))

    assert (retired.lack, retired.start, retired.end) == (Lack.RETIRED, 0, 6)


@pytest.mark.parametrize(
    ("error", "lack"), [(LogTruncated("other"), Lack.DIVERGENT), (DataCorrupt("gone"), Lack.CORRUPT)]
)
async def test_what_cannot_be_passed_is_lacking_to_the_end(error: TidelogError, lack: Lack) -> None:
    (piece,) = await pieces_of(ScriptedBroker(error))

    assert (piece.lack, piece.start, piece.end) == (lack, 0, END)


async def test_a_replica_that_is_behind_is_asked_again_until_its_time_is_over() -> None:
    broker = ScriptedBroker(0)

    (piece,) = await pieces_of(broker, patience=0.15)

    assert piece.lack is Lack.MISSING
    assert "only below offset 0" in piece.why
    assert len(broker.asked) >= 2


async def test_a_broker_that_is_away_is_missing_with_its_reason() -> None:
    (piece,) = await pieces_of(ScriptedBroker(Unavailable("connection refused")))

    assert (piece.lack, piece.why) == (Lack.MISSING, "connection refused")
