"""R1: a follower and its leader find the offset at which their logs diverge.

The follower sends the end of its log and the epoch of its last record; `compare` is
the leader's side. An epoch has one leader, which writes each offset once: logs that hold
the same epoch at an offset are equal up to there, and within an epoch they diverge only
where one of them ends. So the leader needs only its history, and each answer takes the
follower back by at least one epoch. `resolve_divergence` is the follower's side: what to
truncate, or why it must not.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tidelog_broker.core.replication.effects import Quarantine, Restart, Truncate
from tidelog_broker.core.replication.log_view import LogView, epoch_before_start
from tidelog_broker.core.replication.log_view import last_epoch as last_epoch_of
from tidelog_broker.core.replication.messages import Diverged, StartOver


class Matches(NamedTuple):
    """The follower's log is the beginning of the leader's, as far as both reach back."""


Comparison: TypeAlias = Matches | Diverged | StartOver


def compare(end_offset: int, last_epoch: int | None, log: LogView, leader_epoch: int) -> Comparison:
    """The leader's answer to a follower whose log ends at `end_offset` with a record of `last_epoch`."""
    start, end = log.start_offset, log.end_offset
    if end_offset < start:
        return start_over(log, leader_epoch, last_epoch)
    if last_epoch is None:
        # The follower knows no epoch below its end, so it can begin only where this log begins: its own log
        # start may belong to a history that an unclean election ended.
        return Matches() if end_offset == start else start_over(log, leader_epoch, last_epoch)
    known = log.epochs.end_of(last_epoch, end)
    if known is None:
        return start_over(log, leader_epoch, last_epoch)
    epoch, epoch_end = known
    if epoch == last_epoch and end_offset <= epoch_end:
        return Matches()
    return Diverged(leader_epoch, epoch, epoch_end, _unclean(log, last_epoch))


def start_over(log: LogView, leader_epoch: int, last_epoch: int | None) -> StartOver:
    """The answer to a follower whose log has no continuation in the leader's; `last_epoch` is its own."""
    return StartOver(leader_epoch, log.start_offset, _unclean(log, last_epoch), epoch_before_start(log))


def _unclean(log: LogView, last_epoch: int | None) -> bool:
    """Whether an election after that epoch was unclean: only then committed records may be lost."""
    return any(marked for later, _, marked in log.epochs if later > (last_epoch or 0))


def resolve_divergence(
    answer: Diverged | StartOver, log: LogView, high_watermark: int
) -> Truncate | Restart | Quarantine | None:
    """What a follower does about an answer; None: the answer truncates nothing, so it is for another log.

    `high_watermark` is the follower's own. A leader that was elected cleanly has
    everything below it, so a truncation below it is right only if an epoch began uncleanly.
    """
    if isinstance(answer, StartOver):
        to, restart, epoch_before = answer.start_offset, True, answer.epoch_before
        if log.end_offset == log.start_offset and last_epoch_of(log) is None:
            # The log holds no record and knows no epoch: nothing is lost with it.
            return Restart(to, epoch_before)
    else:
        to = min(answer.end_offset, _own_end_of(answer.epoch, log))
        epoch_before = log.epochs.epoch_at(to - 1)
        if to >= log.end_offset:
            return None
        # With no record left, the history is dropped too, except for the epoch of the record below.
        restart = to <= log.start_offset
    if to < high_watermark and not answer.unclean:
        return Quarantine(
            f"the leader's log diverges from this log at offset {to}, below the high watermark "
            f"{high_watermark}, and no epoch since then began with an unclean election ({answer})"
        )
    return Restart(to, epoch_before) if restart else Truncate(to)


def _own_end_of(epoch: int, log: LogView) -> int:
    """The end offset of an epoch in this log, or where it would end if the log had it."""
    known = log.epochs.end_of(epoch, log.end_offset)
    if known is not None:
        return known[1]
    return next((start for _, start, _ in log.epochs), log.start_offset)
