"""Projects the batches of a chunk into one answer, in a thread.

Neighbours: `fetch_projected` has the memory and the call, `tidelog.records.projecting` projects one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.records.projected import PROJECTED_HEADER_BYTES, pack_projected
from tidelog.records.projecting import BytesNeeded, Projector
from tidelog_broker.api.chunk_batches import batch_bodies
from tidelog_broker.api.verbatim import EncodedAnswer
from tidelog_proto import log_pb2

WORK_BYTES_MAX: Final = 32 << 20
"""Work for one answer (`Projector.work_bytes`), then another call has its turn. One batch may be more."""


@dataclass(frozen=True, slots=True)
class ChunkWork:
    """What to project, and how far."""

    projector: Projector
    stream_id: bytes
    partition: int
    begin: int
    """The first offset to look at."""
    end: int
    """The first offset not to look at."""
    told_offset: int
    """The client knows of all offsets below it; at most `begin`."""
    memory_max: int
    """What the work may take beside the chunk."""
    answer_bytes_max: int
    """About; a single larger batch still comes whole."""
    facts: bytes
    """A serialized FetchResponse without item and position."""


class ChunkDone(NamedTuple):
    """How far a chunk was projected."""

    answer: EncodedAnswer | None
    """None: no record matched."""
    next_offset: int
    """The first offset that was not looked at."""
    told_offset: int
    """The answer tells of all offsets below it."""
    leader_epoch: int
    """Of the last record below it; 0 if no batch was looked at."""
    bytes_needed: int
    """The memory that the batch at `next_offset` needs beside its chunk; 0: `memory_max` was enough."""


def project_chunk(work: ChunkWork, parts: Sequence[bytes | memoryview]) -> ChunkDone:
    """Projects as many batches of a chunk, whose `parts` these are, as the limits allow; at least one."""
    begun = work.projector.work_bytes
    items: list[bytes | memoryview] = []
    size, reached, epoch = 0, work.begin, 0
    told, told_epoch = work.told_offset, 0
    for header, body in batch_bodies(parts):
        if header.next_offset <= work.begin:
            continue
        if header.base_offset >= work.end:
            reached = work.end
            break
        found = work.projector.project(header, body, work.begin, work.end, work.memory_max - 2 * size)
        if isinstance(found, BytesNeeded):
            if reached == work.begin:
                return ChunkDone(None, reached, told, 0, found.bytes)
            break
        behind = min(header.next_offset, work.end)
        if found is not None:
            length = PROJECTED_HEADER_BYTES + sum(map(len, found.parts))
            if items and size + length > work.answer_bytes_max:
                break
            head = pack_projected(
                work.stream_id,
                work.partition,
                found.parts,
                start_offset=told,
                next_offset=behind,
                leader_epoch=header.leader_epoch,
                append_time_us=header.append_time_us,
                attributes=found.attributes,
                record_count=found.record_count,
            )
            items += (head, *found.parts)
            size, told, told_epoch = size + length, behind, header.leader_epoch
        reached, epoch = behind, header.leader_epoch
        if size >= work.answer_bytes_max or work.projector.work_bytes - begun >= WORK_BYTES_MAX:
            break
    if not items:
        return ChunkDone(None, reached, told, epoch, 0)
    # What lies between the last match and `reached` is told with the next answer.
    position = log_pb2.Position(offset=told, leader_epoch=told_epoch)
    following = log_pb2.FetchResponse(next=position).SerializeToString()
    answer = EncodedAnswer(work.facts + following, log_pb2.FetchResponse.PROJECTED_FIELD_NUMBER, items)
    return ChunkDone(answer, reached, told, epoch, 0)
