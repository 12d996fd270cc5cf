"""Bugs in the reconciliation of logs, and in reads (R1, R2, R5, R11, R13, R15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog_broker.core.replication import fetches, following, leading, reconciliation
from tidelog_broker.core.replication.effects import Truncate
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leader_state import LeaderState
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.core.replication.messages import Diverged, RangeHeld, RangeWanted
from tidelog_broker.replication.uplink import Uplink
from tidelog_broker.replication.wire import from_leader
from tidelog_broker.storage.log.start import LogStart


@mutation("R1")
def a_follower_truncates_to_its_high_watermark() -> Iterator[None]:
    original = reconciliation.resolve_divergence

    def old_way(answer: Any, log: Any, high_watermark: int) -> Any:
        found = original(answer, log, high_watermark)
        if isinstance(found, Truncate):
            return (
                Truncate(max(log.start_offset, high_watermark)) if high_watermark < log.end_offset else None
            )
        return found

    def always_fits(end_offset: int, last_epoch: Any, log: Any, leader_epoch: int) -> Any:
        found = compare(end_offset, last_epoch, log, leader_epoch)
        if isinstance(found, Diverged) and end_offset <= log.end_offset:
            return reconciliation.Matches()
        return found

    compare = reconciliation.compare
    with patched((following, "resolve_divergence", old_way), (leading, "compare", always_fits)):
        yield


@mutation("R1")
def a_follower_appends_without_comparing_histories() -> Iterator[None]:
    original = reconciliation.compare

    def trusting(end_offset: int, last_epoch: Any, log: Any, leader_epoch: int) -> Any:
        if log.start_offset <= end_offset <= log.end_offset:
            return reconciliation.Matches()
        return original(end_offset, last_epoch, log, leader_epoch)

    with patched((leading, "compare", trusting)):
        yield


@mutation("R1, R11", "slow trimmed losses")
def an_empty_log_fits_wherever_it_begins() -> Iterator[None]:
    """The log forgets the epoch of the records below, and assumes that its start is in the leader's
    history."""

    def forgetful(log: Any) -> Any:
        return None if log.start_offset == log.end_offset else last_epoch(log)

    def trusting(end_offset: int, last_epoch: Any, log: Any, leader_epoch: int) -> Any:
        if last_epoch is None and log.start_offset <= end_offset <= log.end_offset:
            return reconciliation.Matches()
        return original(end_offset, last_epoch, log, leader_epoch)

    original = reconciliation.compare
    with patched(
        (following, "last_epoch", forgetful),
        (reconciliation, "last_epoch_of", forgetful),
        (leading, "compare", trusting),
    ):
        yield


@mutation("R2", "returns")
def truncation_is_not_fenced() -> Iterator[None]:
    def unfenced(self: FollowerPartition, message: Any) -> Any:
        if hasattr(message, "refusal"):
            return received(self, message)
        return received(self, message._replace(leader_epoch=self.leader_epoch))

    def any_epoch(leader: LeaderState, broker: int, incarnation: bytes, position: Any) -> Any:
        return None if broker in leader.followers else refusal(leader, broker, incarnation, position)

    def to_anybody(self: Uplink, connection: Any, header: bytes, payload: Any) -> None:
        address, message = from_leader(header, payload)
        replica = self.replicas.get((address.stream_id, address.partition))
        if replica is not None and not isinstance(message, RangeWanted | RangeHeld):
            replica.received(message)

    received, refusal = FollowerPartition.received, fetches.refusal
    with patched(
        (FollowerPartition, "received", unfenced),
        (leading, "refusal", any_epoch),
        (Uplink, "received", to_anybody),
    ):
        yield


@uncaught("R1", "takeovers")
def a_fit_follower_is_cut_again() -> Iterator[None]:
    """Out of reach here: connections neither repeat nor reorder messages, so no answer to a log that fits
    says that it must be truncated. The storm of the rules alone (tests/replication) has a network that does
    both, and catches the bug with its first seeds."""

    def unfit(self: FollowerPartition, message: Any) -> Any:
        self.matching = False
        return cut(self, message)

    cut = FollowerPartition._cut
    with patched((FollowerPartition, "_cut", unfit)):
        yield


@mutation("R5")
def an_epoch_is_sent_before_its_beginning_is_on_disk() -> Iterator[None]:
    with patched((LeaderState, "epoch_durable", property(lambda self: True))):
        yield


@mutation("R11")
def a_log_start_offset_is_not_saved() -> Iterator[None]:
    from tidelog_broker.storage.directory.checkpoint import Checkpoints

    with patched((Checkpoints, "put_log_start_offset", lambda self, partition, offset: None)):
        yield


@mutation("R5", "trimmed losses")
def the_history_forgets_epochs_that_the_first_file_still_holds() -> Iterator[None]:
    """Seed 6545 showed this bug before it became a mutation."""

    def forgetful(self: LogStart) -> Any:
        gone, state = original(self), self._state
        kept = state.epochs.forget_below(state.start_offset) if gone else None
        if kept is not None:
            state.replace_epochs(kept)
        return gone

    original = LogStart._release_files_below
    with patched((LogStart, "_release_files_below", forgetful)):
        yield


@mutation("R13", "twice lost")
def a_reader_is_not_told_of_a_truncation() -> Iterator[None]:
    def lenient(*arguments: Any, **facts: Any) -> None:
        return None

    with mock.patch("tidelog_broker.api.fetch_start.check_position", lenient):
        yield


@mutation("R15")
def a_new_leader_answers_latest_at_once() -> Iterator[None]:
    with patched((LeaderPartition, "may_answer_latest", property(lambda self: True))):
        yield
