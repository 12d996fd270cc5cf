"""The sink of a job that repeats its work after failures: each of its batches is written exactly once
(S1–S4).

A job, such as a Spark query, has a name and numbers its batches. A *run* is one attempt to write a batch; its
tasks write in parallel, and each task may have several attempts. docs/sink.md has the rules. `client` makes
sinks; the data source for Spark uses them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Literal

from tidelog._connecting.channels import Channels
from tidelog._connecting.metadata import Metadata
from tidelog._options import COMPRESSION, ClientOptions, ProducerOptions
from tidelog._producing.send_window import ProducerIdentity
from tidelog._producing.sender import Sender, SinkIdentity
from tidelog._sinking.attempt import SinkAttempt
from tidelog._sinking.calls import OpenBatch, SinkCalls, SinkPartition, TaskRows
from tidelog._sinking.cutting import ROWS_MAX
from tidelog.errors import IndeterminateReplay, StreamNotFound
from tidelog.model import StreamDescription
from tidelog.records.layout import SinkTask

__all__ = ["OpenBatch", "Sink", "SinkAttempt", "SinkPartition", "TaskRows"]


class Sink:
    """A sink that writes to one stream; made by `Client.sink`."""

    def __init__(
        self,
        stream: str,
        channels: Channels,
        metadata: Metadata,
        options: ClientOptions,
        rng: random.Random,
    ) -> None:
        self.stream = stream
        self._channels = channels
        self._metadata = metadata
        self._rng = rng
        self._calls = SinkCalls(channels, metadata, options, rng)

    def __repr__(self) -> str:
        return f"<Sink to {self.stream}>"

    async def begin_run(self) -> int:
        """The number of a new run, greater than that of every run before in this cluster."""
        return await self._calls.begin_run()

    async def open(self, name: str, *, run: int, batch_id: int, once: bool = False) -> OpenBatch:
        """Opens a batch of the sink `name` for a run; earlier runs and batches of the sink are over.

        All tasks of a run may call it. `once`: the sink writes this batch only, and `close` forgets it.
        Raises `FencedProducer` if a later run or batch was opened, `InvalidRequest`, `StreamNotFound`.
        """
        stream = await self._metadata.stream(self.stream)
        try:
            return await self._open(stream, name, run, batch_id, once)
        except StreamNotFound:
            # It was deleted; another stream may have its name now.
            return await self._open(await self._metadata.refresh(self.stream), name, run, batch_id, once)

    async def _open(
        self, stream: StreamDescription, name: str, run: int, batch_id: int, once: bool
    ) -> OpenBatch:
        return await self._calls.open(
            self.stream, stream.stream_id, name, run=run, batch_id=batch_id, once=once
        )

    async def attempt(
        self,
        batch: OpenBatch,
        task: int,
        *,
        compression: Literal["none", "lz4", "zstd"] = "none",
        rows_max: int = ROWS_MAX,
    ) -> SinkAttempt:
        """An attempt of a task; close it. It knows which rows of the task are in the log already.

        `rows_max`: rows of one record batch. Give all attempts the same `compression` and `rows_max`: other
        record batches count as other rows.
        """
        stream = await self._metadata.stream(self.stream)
        found = await self._calls.describe(stream, batch, task)
        there = {
            number: one.tasks.get(task, TaskRows()) if one.batch_id == batch.batch_id else TaskRows()
            for number, one in found.items()
        }
        identity = ProducerIdentity(SinkTask(batch.sink, task).producer_id, batch.batch_id & 0xFFFF)
        sender = Sender(
            self.stream,
            self._channels,
            self._metadata,
            ProducerOptions(compression=compression),
            self._rng,
            lambda queue: None,
            sink=SinkIdentity(identity, batch.run, {number: rows.rows for number, rows in there.items()}),
        )
        await sender.start()
        return SinkAttempt(sender, batch, task, there, COMPRESSION[compression], rows_max)

    async def written(self, batch: OpenBatch) -> dict[int, SinkPartition]:
        """What the newest batch of the sink has written to each partition; no earlier run writes after
        that."""
        return await self._calls.describe(await self._metadata.stream(self.stream), batch)

    async def verify(self, batch: OpenBatch, expected: Mapping[int, Mapping[int, TaskRows]]) -> None:
        """Checks that the log has exactly the rows that the tasks of a run have reported (S4).

        `expected`: by task and partition. `batch` must be opened in a run after that of the tasks, so that no
        attempt of them writes any more. Raises `IndeterminateReplay` if the log has other rows.
        """
        reported = {
            (partition, task): rows
            for task, partitions in expected.items()
            for partition, rows in partitions.items()
        }
        there = {
            (partition, task): rows
            for partition, found in (await self.written(batch)).items()
            if found.batch_id == batch.batch_id
            for task, rows in found.tasks.items()
        }
        if there == reported:
            return
        different = sorted(
            key for key in there.keys() | reported.keys() if there.get(key) != reported.get(key)
        )
        partition, task = different[0]
        raise IndeterminateReplay(
            f"batch {batch.batch_id} does not stand in stream {self.stream} as its tasks wrote it: partition "
            f"{partition} has {there.get(different[0], TaskRows()).rows} rows of task {task}, and the task "
            f"reported {reported.get(different[0], TaskRows()).rows} ({len(different)} differences). An "
            f"earlier attempt of this batch was divided into other tasks, or had other rows"
        )

    async def close(self, name: str, run: int) -> None:
        """Forgets a sink of one batch that is written."""
        await self._calls.close(name, run)
