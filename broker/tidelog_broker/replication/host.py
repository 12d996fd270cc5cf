"""What a replica's role needs of its broker. `replica_host` has it; tests bring their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidelog_broker.core.replication import effects as do
from tidelog_broker.core.replication.messages import FromFollower, FromLeader

if TYPE_CHECKING:
    from tidelog_broker.replication.replica import Replica

Done = Callable[[Exception | None], None]
"""What became of a write: None, or why it left nothing (or, of a follower's batches, a part)."""


class ReplicaHost(Protocol):
    """What a replica's role needs of its broker."""

    broker_id: int
    unsure: bool
    """The controller has not answered for a session: another leader may have been elected."""

    def next_role_number(self) -> int:
        """Never the same twice in a run of the broker: a replica that left and came back may follow over the
        connection on which an answer for the one before is on its way (R2)."""

    def is_this_run(self, incarnation: bytes) -> bool:
        """Whether the image speaks of this run of the broker (R10)."""

    def awaits_time(self, replica: Replica) -> bool:
        """R18: whether a replica that is to lead has to wait for the cluster's clock; `time_known` is called
        then."""

    def now_ms(self) -> int: ...

    def later(self, ms: int, call: Callable[[], None]) -> None: ...

    def write(self, replica: Replica, work: Callable[[], object], done: Done, size: int) -> None:
        """Does `work`, which brings about `size` bytes, in the lane of all writes."""

    def flush(self, replica: Replica) -> None: ...

    def receive(self, replica: Replica, batches: do.Append, leader_epoch: int) -> int:
        """Blocking; in the lane."""

    def truncate(self, replica: Replica, offset: int) -> None:
        """Blocking; in the lane."""

    def restart(self, replica: Replica, offset: int, epoch_before: int | None) -> None:
        """Blocking; in the lane."""

    def advance_start(self, replica: Replica, offset: int) -> None:
        """Has the log start offset moved; `start_moved` is called then."""

    def quarantine(self, replica: Replica, reason: str) -> None: ...

    def propose(self, replica: Replica, proposal: do.Propose) -> None: ...

    def needs_ticks(self, replica: Replica) -> None:
        """Has `tick` called now and then, as long as it returns True."""

    def leads(self, replica: Replica) -> None:
        """It leads from now on: it is to hear which followers' brokers are connected."""

    def follow(self, replica: Replica, leader: int) -> None: ...

    def unfollow(self, replica: Replica, leader: int) -> None: ...

    def switch_lane(self, replica: Replica, leader: int) -> None: ...

    def say(self, replica: Replica, leader: int, message: FromFollower) -> None: ...

    def answer(self, replica: Replica, broker: int, message: FromLeader) -> None: ...

    def send_batches(self, replica: Replica, wanted: do.SendBatches) -> None: ...
