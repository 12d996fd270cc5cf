"""R1: a follower and its leader find the point where their logs part.

The follower says where its log ends and of which epoch its last record is; `compare` is
the leader's side. An epoch has one leader, which writes each offset once: logs that hold
the same epoch at an offset are equal up to there, and within an epoch they part only
where one of them ends. So the leader needs its history alone, and each answer takes the
follower at least one epoch back. `way_back` is the follower's side: what to cut, or why
it must not.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tidelog_broker.core.replication.effects import Quarantine, Restart, Truncate
from tidelog_broker.core.replication.log_view import LogView, epoch_before_start
from tidelog_broker.core.replication.log_view import last_epoch as last_epoch_of
from tidelog_broker.core.replication.messages import Diverged, StartOver


class Fits(NamedTuple):
    """The follower's log is the beginning of the leader's, as far as both reach back."""


Comparison: TypeAlias = Fits | Diverged | StartOver


def compare(end_offset: int, last_epoch: int | None, log: LogView, leader_epoch: int) -> Comparison:
    """The leader's answer to a follower whose log ends at `end_offset` with a record of `last_epoch`."""
    start, end = log.start_offset, log.end_offset
    if end_offset < start:
        return start_over(log, leader_epoch, last_epoch)
    if last_epoch is None:
        # It says nothing of what lay below its end, so it can begin only where this log does: whatever else
        # it holds true (its log start) may be of a history that an unclean election ended.
        return Fits() if end_offset == start else start_over(log, leader_epoch, last_epoch)
    known = log.epochs.end_of(last_epoch, end)
    if known is None:
        return start_over(log, leader_epoch, last_epoch)
    epoch, epoch_end = known
    if epoch == last_epoch and end_offset <= epoch_end:
        return Fits()
    return Diverged(leader_epoch, epoch, epoch_end, _unclean(log, last_epoch))


def start_over(log: LogView, leader_epoch: int, last_epoch: int | None) -> StartOver:
    """The leader's word to a follower whose log goes on nowhere in its own; `last_epoch`: that log's."""
    return StartOver(leader_epoch, log.start_offset, _unclean(log, last_epoch), epoch_before_start(log))


def _unclean(log: LogView, last_epoch: int | None) -> bool:
    """Whether an election after that epoch was unclean: only then what was committed may be gone."""
    return any(marked for later, _, marked in log.epochs if later > (last_epoch or 0))


def way_back(
    answer: Diverged | StartOver, log: LogView, high_watermark: int
) -> Truncate | Restart | Quarantine | None:
    """What a follower does about an answer; None: it cuts nothing, so it answers no question of this log.

    `high_watermark` is the follower's own. A leader that was elected cleanly has
    everything below it, so a cut below is only right if some epoch began uncleanly.
    """
    if isinstance(answer, StartOver):
        to, restart, epoch_before = answer.start_offset, True, answer.epoch_before
        if log.end_offset == log.start_offset and last_epoch_of(log) is None:
            # It holds no record and knows of none: nothing is lost with it.
            return Restart(to, epoch_before)
    else:
        to = min(answer.end_offset, _own_end_of(answer.epoch, log))
        epoch_before = log.epochs.epoch_at(to - 1)
        if to >= log.end_offset:
            return None
        # With nothing left, the history goes too, but for what it says of the record below.
        restart = to <= log.start_offset
    if to < high_watermark and not answer.unclean:
        return Quarantine(
            f"the leader's log parts from this one at offset {to}, below the high watermark "
            f"{high_watermark}, and no epoch since then began with an unclean election ({answer})"
        )
    return Restart(to, epoch_before) if restart else Truncate(to)


def _own_end_of(epoch: int, log: LogView) -> int:
    """Where an epoch ends in this log, or would end if it were there."""
    known = log.epochs.end_of(epoch, log.end_offset)
    if known is not None:
        return known[1]
    return next((start for _, start, _ in log.epochs), log.start_offset)
