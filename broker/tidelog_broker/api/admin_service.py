"""The `Admin` service: streams and brokers, for administrators.

This is the list of rpcs; they are implemented in `admin_streams`, `admin_brokers`, `admin_replicas` and
`admin_views`. Only the controller can change the metadata: `forwarding`.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message

from tidelog_broker.api.admin_brokers import BrokerRequests
from tidelog_broker.api.admin_replicas import ReplicaRequests
from tidelog_broker.api.admin_streams import StreamRequests
from tidelog_broker.api.admin_views import AdminViews
from tidelog_broker.api.forwarding import ControllerCall, Forwarding
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_proto import admin_pb2 as pb


class AdminService:
    """The rpcs of the service; every method raises `TidelogError`."""

    def __init__(self, broker: Broker, quorum: QuorumController, new_id: Callable[[], bytes]) -> None:
        """`new_id` gives a new stream its id."""
        streams, replicas = StreamRequests(broker, quorum, new_id), ReplicaRequests(quorum)
        brokers = self._brokers = BrokerRequests(quorum)
        self._views = AdminViews(broker, quorum)
        self._broker_id = broker.broker_id
        self._forwarding = Forwarding(
            broker,
            quorum,
            [
                ControllerCall(
                    "CreateStream", pb.CreateStreamRequest, pb.CreateStreamResponse, streams.create
                ),
                ControllerCall("AlterStream", pb.AlterStreamRequest, pb.AlterStreamResponse, streams.alter),
                ControllerCall(
                    "DeleteStream", pb.DeleteStreamRequest, pb.DeleteStreamResponse, streams.delete
                ),
                ControllerCall("Cordon", pb.CordonRequest, pb.CordonResponse, brokers.cordon),
                ControllerCall("Uncordon", pb.UncordonRequest, pb.UncordonResponse, brokers.uncordon),
                ControllerCall("Drain", pb.DrainRequest, pb.DrainResponse, brokers.drain),
                ControllerCall(
                    "PrepareStop", pb.PrepareStopRequest, pb.PrepareStopResponse, brokers.prepare_stop
                ),
                ControllerCall(
                    "CancelStop", pb.CancelStopRequest, pb.CancelStopResponse, brokers.cancel_stop
                ),
                ControllerCall(
                    "UnregisterBroker",
                    pb.UnregisterBrokerRequest,
                    pb.UnregisterBrokerResponse,
                    brokers.unregister,
                ),
                ControllerCall("AddVoter", pb.AddVoterRequest, pb.AddVoterResponse, brokers.add_voter),
                ControllerCall(
                    "RemoveVoter", pb.RemoveVoterRequest, pb.RemoveVoterResponse, brokers.remove_voter
                ),
                ControllerCall(
                    "ElectLeaders", pb.ElectLeadersRequest, pb.ElectLeadersResponse, replicas.elect
                ),
                ControllerCall("Reassign", pb.ReassignRequest, pb.ReassignResponse, replicas.reassign),
                ControllerCall(
                    "CancelReassignment",
                    pb.CancelReassignmentRequest,
                    pb.CancelReassignmentResponse,
                    replicas.cancel,
                ),
                ControllerCall("Throttle", pb.ThrottleRequest, pb.ThrottleResponse, replicas.throttle),
            ],
        )

    async def serve_call(self, rpc: str, body: bytes) -> bytes:
        """What another broker forwards."""
        return await self._forwarding.serve_call(rpc, body)

    # --- at the controller

    async def create_stream(self, request: pb.CreateStreamRequest) -> Message:
        return await self._at_controller("CreateStream", request)

    async def alter_stream(self, request: pb.AlterStreamRequest) -> Message:
        return await self._at_controller("AlterStream", request)

    async def delete_stream(self, request: pb.DeleteStreamRequest) -> Message:
        return await self._at_controller("DeleteStream", request)

    async def cordon(self, request: pb.CordonRequest) -> Message:
        return await self._at_controller("Cordon", request)

    async def uncordon(self, request: pb.UncordonRequest) -> Message:
        return await self._at_controller("Uncordon", request)

    async def drain(self, request: pb.DrainRequest) -> Message:
        return await self._at_controller("Drain", request)

    async def prepare_stop(self, request: pb.PrepareStopRequest) -> Message:
        return await self._brokers.until_prepared(
            request, self._broker_id, lambda once: self._forwarding.at_controller("PrepareStop", once)
        )

    async def cancel_stop(self, request: pb.CancelStopRequest) -> Message:
        return await self._at_controller("CancelStop", request)

    async def unregister_broker(self, request: pb.UnregisterBrokerRequest) -> Message:
        return await self._at_controller("UnregisterBroker", request)

    async def add_voter(self, request: pb.AddVoterRequest) -> Message:
        return await self._at_controller("AddVoter", request)

    async def remove_voter(self, request: pb.RemoveVoterRequest) -> Message:
        return await self._at_controller("RemoveVoter", request)

    async def elect_leaders(self, request: pb.ElectLeadersRequest) -> Message:
        return await self._at_controller("ElectLeaders", request)

    async def reassign(self, request: pb.ReassignRequest) -> Message:
        return await self._at_controller("Reassign", request)

    async def cancel_reassignment(self, request: pb.CancelReassignmentRequest) -> Message:
        return await self._at_controller("CancelReassignment", request)

    async def throttle(self, request: pb.ThrottleRequest) -> Message:
        return await self._at_controller("Throttle", request)

    async def _at_controller(self, rpc: str, request: Message) -> Message:
        response: Message = await self._forwarding.at_controller(rpc, request)
        return response

    # --- here

    async def describe_stream(self, request: pb.DescribeStreamRequest) -> Message:
        return await self._views.describe_stream(request)

    async def list_streams(self, request: pb.ListStreamsRequest) -> Message:
        return await self._views.list_streams(request)

    async def list_reassignments(self, request: pb.ListReassignmentsRequest) -> Message:
        return self._views.list_reassignments(request)

    async def describe_cluster(self, request: pb.DescribeClusterRequest) -> Message:
        return self._views.describe_cluster(request)

    async def describe_replicas(self, request: pb.DescribeReplicasRequest) -> Message:
        return await self._views.describe_replicas(request)
