"""Which run of a sink may write, and what its newest batch has written here (S3).

The image names the newest run of each sink. The image here may lag behind a run that began a moment ago. So
before a batch of an unknown run is refused, the broker waits until its image has everything that was
committed when the batch arrived.

Neighbours: `api.produce` checks batches here before it appends; `storage.log.guarding` refuses batches of
an earlier run that wait to be written while a later run asks what is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.errors import InvalidRequest, TimedOut, UnknownProducer
from tidelog.records import BatchHeader
from tidelog.records.layout import SinkTask
from tidelog_broker.core.metadata.image import SinkImage
from tidelog_broker.quorum.controller import Controller
from tidelog_broker.storage.guard.sink_batches import SinkBatch
from tidelog_broker.storage.log.guarding import sink_fenced
from tidelog_broker.writing.partition import Partition

Written = tuple[SinkBatch | None, int]
"""The newest batch of a sink in a log, and the log's end."""

COMMIT_SECONDS_MAX: Final = 5.0
"""How long an answer about a sink waits until everything that it says is committed."""

COMMIT_LOOK_SECONDS: Final = 0.005


class SinkRuns:
    """The sinks of the image, as this broker knows them. Runs on one event loop."""

    def __init__(
        self, controller: Controller, in_thread: Callable[[Callable[[], Written]], asyncio.Future[Written]]
    ) -> None:
        self._controller = controller
        self._in_thread = in_thread

    def __repr__(self) -> str:
        return f"<SinkRuns sinks={len(self._controller.image.sinks)}>"

    def is_newest(self, header: BatchHeader, run: int) -> bool:
        """Whether the image here says that `run` writes this batch; False: the image may be too old to know.

        Raises `FencedProducer` for a run that is over, and `InvalidRequest` for a run without a sink.
        """
        if not header.of_sink:
            if run:
                raise InvalidRequest(
                    f"the request has the sink run {run}, but the batch has producer id "
                    f"{header.producer_id}, "
                    f"which is not of a sink; leave sink_run out"
                )
            return True
        sink = SinkTask.of(header.producer_id).sink
        known = self._controller.image.sink_numbered(sink)
        if known is None:
            return False
        if run < known.run:
            raise sink_fenced(sink, run, known.run)
        return (run, header.sink_batch_id) == (known.run, known.batch_id)

    async def check(self, header: BatchHeader, run: int) -> None:
        """Returns if `run` writes this batch. Raises `UnknownProducer`, and like `is_newest`.

        Raises what a request to the controller raises if the answer is not known now.
        """
        if self.is_newest(header, run):
            return
        await self._controller.newest()
        if not self.is_newest(header, run):
            sink = SinkTask.of(header.producer_id).sink
            raise UnknownProducer(
                f"batch {header.sink_batch_id} of sink {sink} was not opened in run {run}; call OpenSink "
                f"first",
                sink=sink,
            )

    async def current(self, number: int, run: int, stream_id: bytes) -> SinkImage:
        """The sink, if it writes to this stream, and `run` is its newest run.

        Raises `FencedProducer` or `UnknownProducer`.
        """
        image = await self._controller.newest()
        known = image.sink_numbered(number)
        if known is None or known.stream_id != stream_id or run > known.run:
            raise UnknownProducer(f"run {run} of sink {number} is not open; call OpenSink first", sink=number)
        if run < known.run:
            raise sink_fenced(number, run, known.run)
        return known

    async def written(self, partition: Partition, number: int, run: int) -> SinkBatch | None:
        """The sink's newest batch in a partition that this broker leads; all that it says is committed.

        The caller has asked `current`, and has found that this broker leads after that. Raises `TimedOut`,
        `NotLeader` and `Unavailable`.
        """
        epoch = partition.leader_epoch
        found, end = await self._in_thread(partial(partition.log.guarding.sink_batch, number, run))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + COMMIT_SECONDS_MAX
        while partition.high_watermark < end:
            if partition.stopped or not partition.leads or partition.leader_epoch != epoch:
                raise partition.not_leader()
            if loop.time() > deadline:
                raise TimedOut(
                    f"records up to offset {end} of {partition.full_name} are not committed yet, so it is "
                    f"not known what the sink has written; try again"
                )
            await asyncio.sleep(COMMIT_LOOK_SECONDS)
        return found
