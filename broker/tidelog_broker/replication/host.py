"""What a replica needs of its broker: time, the store, the controller, and the other brokers.

`hosting.replica_host` implements it; tests bring their own. Neighbour: `owner` is what a replica needs of its
partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.messages import FromFollower, FromLeader

R = TypeVar("R", contravariant=True)
"""The replica."""


class ReplicaHost(Protocol[R]):
    """What a replica needs of its broker."""

    broker_id: int
    unsure: bool
    """The controller has not answered for a session: another leader may have been elected."""

    def next_role_number(self) -> int:
        """Never the same twice in a run of the broker: a replica that left and came back may follow over the
        connection on which an answer for the earlier role is on its way (R2)."""

    def is_this_run(self, incarnation: bytes) -> bool:
        """Whether the image speaks of this run of the broker (R10)."""

    def awaits_time(self, replica: R) -> bool:
        """R18: whether a replica that should lead must wait for the cluster's clock; `time_known` is called
        then."""

    def now_ms(self) -> int: ...

    def later(self, ms: int, call: Callable[[], None]) -> None: ...

    def receive(self, replica: R, batches: do.Append, leader_epoch: int) -> int:
        """Writes a leader's batches. Blocking; called by a write of the owner."""

    def truncate(self, replica: R, offset: int) -> None:
        """Cuts the log. Blocking; called by a write of the owner."""

    def restart(self, replica: R, offset: int, epoch_before: int | None) -> None:
        """Replaces the log by an empty one. Blocking; called by a write of the owner."""

    def propose(self, replica: R, proposal: do.Propose) -> None:
        """Asks the controller for another ISR (R4)."""

    def needs_ticks(self, replica: R) -> None:
        """Calls `tick` now and then, as long as it returns True."""

    def leads(self, replica: R) -> None:
        """Tells a replica that leads from now on which followers' brokers are connected."""

    def follow(self, replica: R, leader: int) -> None: ...

    def unfollow(self, replica: R, leader: int) -> None: ...

    def switch_connection(self, replica: R, leader: int) -> None:
        """From the first connection to the one for catching up, or back."""

    def say(self, replica: R, leader: int, message: FromFollower) -> None:
        """Sends a message to the leader."""

    def answer(self, replica: R, broker: int, message: FromLeader) -> None:
        """Answers a follower's position without batches."""

    def send_batches(self, replica: R, wanted: do.SendBatches) -> None:
        """Answers a follower's position with batches."""
