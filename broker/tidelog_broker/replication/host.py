"""The interface of the broker that a replica calls: time, the store, the controller, the other brokers.

`hosting.replica_host` implements it; tests have implementations of their own. Neighbour: `owner` is the
interface of the partition that a replica calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.messages import FromFollower, FromLeader

R = TypeVar("R", contravariant=True)
"""The type of the replica."""


class ReplicaHost(Protocol[R]):
    """The broker, as its replicas call it."""

    broker_id: int
    unsure: bool
    """The controller has not answered for the length of a session: another leader may have been elected."""

    def next_role_number(self) -> int:
        """A number for a new role, unique in a run of the broker. A replica that left and returned may follow
        over a connection that still carries an answer for the earlier role (R2)."""

    def is_this_run(self, incarnation: bytes) -> bool:
        """Whether `incarnation`, the broker's incarnation in the image, is this run (R10)."""

    def awaits_time(self, replica: R) -> bool:
        """Whether a replica that should lead must wait for the cluster's clock (R18). If so, `time_known` is
        called once the clock is known."""

    def now_ms(self) -> int: ...

    def later(self, ms: int, call: Callable[[], None]) -> None: ...

    def receive(self, replica: R, batches: do.Append, leader_epoch: int) -> int:
        """Writes a leader's batches. Blocking; called by a write of the owner."""

    def truncate(self, replica: R, offset: int) -> None:
        """Cuts the log. Blocking; called by a write of the owner."""

    def restart(self, replica: R, offset: int, epoch_before: int | None) -> None:
        """Replaces the log by an empty one. Blocking; called by a write of the owner."""

    def propose(self, replica: R, proposal: do.Propose) -> None:
        """Asks the controller to change the ISR (R4)."""

    def needs_ticks(self, replica: R) -> None:
        """Calls `tick` at intervals while it returns True."""

    def leads(self, replica: R) -> None:
        """Tells a replica that begins to lead which followers' brokers are connected."""

    def follow(self, replica: R, leader: int) -> None: ...

    def unfollow(self, replica: R, leader: int) -> None: ...

    def switch_connection(self, replica: R, leader: int) -> None:
        """Switches from the main connection to the catch-up connection, or back."""

    def say(self, replica: R, leader: int, message: FromFollower) -> None:
        """Sends a message to the leader."""

    def answer(self, replica: R, broker: int, message: FromLeader) -> None:
        """Answers a follower's position without batches."""

    def send_batches(self, replica: R, wanted: do.SendBatches) -> None:
        """Answers a follower's position with batches."""
