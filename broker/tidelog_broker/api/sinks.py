"""The rpcs of sinks: runs, batches, and what is in the log (S3). `log_service` lists them.

Only the controller opens and closes sinks; other brokers forward to it (`forwarding`). The leader of a
partition says what is in its log.
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import InvalidRequest, TidelogError
from tidelog.model.access import Operation
from tidelog.wire import error_to_proto
from tidelog_broker.api.access import ACCESS
from tidelog_broker.api.forwarding import ControllerCall
from tidelog_broker.core.metadata.commands import CloseSink, OpenSink
from tidelog_broker.core.metadata.decisions import sinks, streams
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_proto import log_pb2 as pb

PARTITIONS_MAX: Final = 1_000
"""Partitions of one DescribeSink request; each may have many tasks."""


class SinkRequests:
    """Every method raises `TidelogError`."""

    def __init__(self, broker: Broker, quorum: QuorumController) -> None:
        self._broker = broker
        self._quorum = quorum

    def at_controller(self) -> list[ControllerCall]:
        """The rpcs that only the controller serves."""
        return [
            ControllerCall("BeginSinkRun", pb.BeginSinkRunRequest, pb.BeginSinkRunResponse, self.begin_run),
            ControllerCall("OpenSink", pb.OpenSinkRequest, pb.OpenSinkResponse, self.open),
            ControllerCall("CloseSink", pb.CloseSinkRequest, pb.CloseSinkResponse, self.close),
        ]

    async def begin_run(self, request: pb.BeginSinkRunRequest) -> pb.BeginSinkRunResponse:
        # One number of its own: those of a broker's block do not ascend over the cluster.
        change = await self._quorum.change(
            lambda image: streams.allocate_producer_ids(image, self._broker.broker_id, 1)
        )
        return pb.BeginSinkRunResponse(run=change.image.next_producer_id - 1)

    async def open(self, request: pb.OpenSinkRequest) -> pb.OpenSinkResponse:
        now_us = self._broker.clock.append_us()

        def command(image: ClusterImage) -> OpenSink | None:
            return sinks.open_sink(
                image,
                request.name,
                run=request.run,
                batch_id=request.batch_id,
                stream_id=request.stream_id,
                now_us=now_us,
                once=request.once,
            )

        change = await self._quorum.change(command)
        sink = change.image.sinks[request.name]
        return pb.OpenSinkResponse(sink=sink.number, batch_time_us=sink.batch_us, partitions=sink.partitions)

    def check_close(self, name: str) -> bool:
        """Whether the caller may know of the sink. Raises `PermissionDenied` if it may not close it."""
        image, access = self._quorum.image, ACCESS.get()
        sink = image.sinks.find(name)
        if sink is None:
            return True
        stream = image.streams.find(sink.stream_id)
        if stream is None:
            return True
        if not access.sees(stream.name):
            return False
        access.check_named(stream.name, Operation.PRODUCE)
        return True

    async def close(self, request: pb.CloseSinkRequest) -> pb.CloseSinkResponse:
        def command(image: ClusterImage) -> CloseSink | None:
            return sinks.close_sink(image, request.name, run=request.run)

        await self._quorum.change(command)
        return pb.CloseSinkResponse()

    async def describe(self, request: pb.DescribeSinkRequest) -> pb.DescribeSinkResponse:
        if len(request.partitions) > PARTITIONS_MAX:
            raise InvalidRequest(
                f"the request has {len(request.partitions)} partitions; give at most {PARTITIONS_MAX}"
            )
        await self._broker.sink_runs.current(request.sink, request.run, request.stream_id)
        task = request.task if request.HasField("task") else None
        return pb.DescribeSinkResponse(
            partitions=[await self._partition(request, number, task) for number in request.partitions]
        )

    async def _partition(
        self, request: pb.DescribeSinkRequest, number: int, task: int | None
    ) -> pb.SinkPartition:
        try:
            partition = self._broker.leading(request.stream_id, number)
            found = await self._broker.sink_runs.written(partition, request.sink, request.run)
        except TidelogError as error:
            return pb.SinkPartition(error=error_to_proto(error))
        if found is None:
            return pb.SinkPartition()
        tasks = found.tasks.items()
        if task is not None:
            tasks = {task: found.tasks[task]}.items() if task in found.tasks else {}.items()
        return pb.SinkPartition(
            batch_id=found.batch_id,
            tasks=[
                pb.SinkTaskRows(task=one, rows=rows.rows, chain=rows.chain) for one, rows in sorted(tasks)
            ],
        )
