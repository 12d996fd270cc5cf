"""Limits in bytes against logs whose batches are known: the twin counts bytes as the broker's index does."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import LogTruncated
from tidelog.model import AfterBytes, FoundPosition, FoundPositions, Position
from tidelog.reader import Start
from tidelog_spark.byte_limits import UNIT_BYTES, cut, within
from tidelog_spark.offsets import Mark, PartitionKey, Range

ORDERS = UUID(int=1).bytes
Batches = list[tuple[int, int]]
"""Records and bytes of each batch."""

_batches = st.lists(st.tuples(st.integers(1, 50), st.integers(1, UNIT_BYTES)), min_size=1, max_size=30)
_logs = st.lists(_batches, min_size=1, max_size=6).map(
    lambda logs: {PartitionKey("orders", number): log for number, log in enumerate(logs)}
)


class _Logs:
    """Finds positions as brokers do, batch by batch."""

    def __init__(self, logs: Mapping[PartitionKey, Batches]) -> None:
        self.logs = logs
        self.rounds = 0

    def end(self, key: PartitionKey) -> int:
        return sum(records for records, _ in self.logs[key])

    def size(self, key: PartitionKey, start: int, end: int) -> int:
        """The bytes of the batches between two edges."""
        offset = total = 0
        for records, size in self.logs[key]:
            total += size if start <= offset < end else 0
            offset += records
        return total

    def find(self, starts: Mapping[str, Mapping[int, Start]]) -> dict[str, FoundPositions]:
        self.rounds += 1
        found = {}
        for name, numbers in starts.items():
            positions = {}
            for number, start in numbers.items():
                assert isinstance(start, AfterBytes)
                key = PartitionKey(name, number)
                edge = Position(self._edge(key, start), 1)
                positions[number] = FoundPosition(edge, 0, self.end(key))
            found[name] = FoundPositions(name, ORDERS, len(self.logs), positions)
        return found

    def _edge(self, key: PartitionKey, after: AfterBytes) -> int:
        offset = counted = 0
        for records, size in self.logs[key]:
            if offset + records > after.start.offset:
                if counted and counted + size > after.bytes:
                    return offset
                counted += size
            offset += records
        return offset

    def marks(self, *, at_end: bool) -> dict[PartitionKey, Mark]:
        return {key: Mark(ORDERS, Position(self.end(key) if at_end else 0, 1), 0) for key in self.logs}


@given(_logs, st.integers(UNIT_BYTES, 40 * UNIT_BYTES), st.integers(0, 100))
def test_a_trigger_keeps_to_its_bytes_and_triggers_reach_the_end(
    batches: dict[PartitionKey, Batches], limit: int, turn: int
) -> None:
    logs = _Logs(batches)
    at, ends = logs.marks(at_end=False), logs.marks(at_end=True)
    for number in range(400):
        if at == ends:
            break
        following = within(at, ends, limit, turn=turn + number, reach=at, find=logs.find)
        moved = [
            logs.size(key, at[key].position.offset, mark.position.offset) for key, mark in following.items()
        ]
        assert 0 < sum(moved) <= limit
        at = following
    assert at == ends


@given(_logs, st.integers(1, 3), st.integers(0, 100))
def test_every_partition_gets_a_batch_within_a_turn_of_the_ring(
    batches: dict[PartitionKey, Batches], units: int, turn: int
) -> None:
    logs = _Logs(batches)
    at, ends = logs.marks(at_end=False), logs.marks(at_end=True)
    waited = dict.fromkeys(batches, 0)
    for number in range(3 * len(batches)):
        following = within(at, ends, units * UNIT_BYTES, turn=turn + number, reach=at, find=logs.find)
        for key, mark in following.items():
            still = mark == at[key] and mark != ends[key]
            waited[key] = waited[key] + 1 if still else 0
        assert max(waited.values()) < len(batches)
        at = following


@given(_logs, st.integers(1, 1000), st.integers(0, 100))
def test_a_limit_below_a_batch_takes_one_batch_of_one_partition(
    batches: dict[PartitionKey, Batches], limit: int, turn: int
) -> None:
    large = {key: [(records, size + 1000) for records, size in log] for key, log in batches.items()}
    logs = _Logs(large)
    at = logs.marks(at_end=False)
    following = within(at, logs.marks(at_end=True), limit, turn=turn, reach=at, find=logs.find)
    moved = {key: mark.position.offset for key, mark in following.items() if mark.position.offset}
    assert list(moved.values()) == [large[key][0][0] for key in moved]
    assert len(moved) == 1


def test_what_fits_is_taken_whole_with_one_round_of_requests() -> None:
    logs = _Logs({PartitionKey("orders", number): [(10, 1000)] * 5 for number in range(3)})
    at, ends = logs.marks(at_end=False), logs.marks(at_end=True)
    assert within(at, ends, 100 * UNIT_BYTES, turn=0, reach=at, find=logs.find) == ends
    assert logs.rounds == 1


def test_a_partition_whose_log_has_changed_is_left_as_it_is() -> None:
    key = PartitionKey("orders", 0)

    def find(starts: Mapping[str, Mapping[int, Start]]) -> dict[str, FoundPositions]:
        error = LogTruncated("diverged")
        return {"orders": FoundPositions("orders", ORDERS, 1, {}, {0: error})}

    at, ends = {key: Mark(ORDERS, Position(0), 0)}, {key: Mark(ORDERS, Position(9, 1), 0)}
    assert within(at, ends, UNIT_BYTES, turn=0, reach=at, find=find) == ends
    whole = Range(key, ORDERS, Position(0), Position(9, 1))
    assert cut([whole], 10, find) == [whole]


@given(_logs, st.integers(1, 4 * UNIT_BYTES))
def test_pieces_have_at_most_the_bytes_or_one_batch_and_cover_the_range(
    batches: dict[PartitionKey, Batches], bytes_max: int
) -> None:
    logs = _Logs(batches)
    ranges = [Range(key, ORDERS, Position(0), Position(logs.end(key), 1)) for key in batches]
    pieces = cut(ranges, bytes_max, logs.find)
    for whole in ranges:
        own = [piece for piece in pieces if piece.key == whole.key]
        assert [piece.start.offset for piece in own[1:]] == [piece.end.offset for piece in own[:-1]]
        assert (own[0].start, own[-1].end) == (whole.start, whole.end)
        edges = {0}
        for records, _ in batches[whole.key]:
            edges.add(max(edges) + records)
        for piece in own:
            size = logs.size(whole.key, piece.start.offset, piece.end.offset)
            inside = [edge for edge in edges if piece.start.offset < edge < piece.end.offset]
            assert size <= bytes_max or not inside
