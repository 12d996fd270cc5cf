"""The work of a write round, on the event loop or in the write thread: appends, then tasks. Blocking.

An unexpected exception affects its own partition only: the log is abandoned, because it is unknown which part
of the write is in it, and the other partitions of the round continue. Neighbour: `write_rounds` says when a
round runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import InternalError, TidelogError, Unavailable
from tidelog_broker.clock import Clock
from tidelog_broker.errors import StorageFailure
from tidelog_broker.writing.append_requests import Append, Outcome
from tidelog_broker.writing.partition import Partition

Work = list[tuple[Partition, list[Append]]]


class Task(NamedTuple):
    """A write that is not an append of a leader: a follower's append, or a cut of the log."""

    partition: Partition
    work: Callable[[], object]
    """May raise `TidelogError` or OSError, and the log stays usable; or `StorageFailure`."""
    done: Callable[[Exception | None], None]
    bytes: int


class Written(NamedTuple):
    """The outcome of a round."""

    appends: list[tuple[Partition, list[Outcome]]]
    tasks: list[Exception | None]
    unforeseen: dict[Partition, Exception]
    """For each partition that failed, the error that ended its writing; its log is abandoned."""
    seconds: float
    """Duration of the round."""


def write(work: Work, tasks: list[Task], now_us: int, elapsed: Clock) -> Written:
    """Does the round. Raises `StorageFailure`; any other exception ends the writing of its partition only."""
    began_us = elapsed()
    unforeseen: dict[Partition, Exception] = {}
    done = [(one, _append(one, appends, now_us, unforeseen)) for one, appends in work]
    told = [_do(task, unforeseen) for task in tasks] if tasks else []
    return Written(done, told, unforeseen, (elapsed() - began_us) / 1e6)


def _append(
    partition: Partition, appends: list[Append], now_us: int, unforeseen: dict[Partition, Exception]
) -> list[Outcome]:
    try:
        return partition.write_round(appends, now_us)
    except StorageFailure:
        raise
    except Exception as error:
        partition.log.writer.abandon()
        unforeseen[partition] = error
        answer = _may_be_written(partition, error)
        return [(append, answer) for append in appends]


def _do(task: Task, unforeseen: dict[Partition, Exception]) -> Exception | None:
    partition = task.partition
    if partition.log.abandoned:
        return Unavailable(f"{partition.name}/{partition.partition} takes no further writes in this run")
    try:
        task.work()
    except (TidelogError, OSError) as error:
        return error
    except StorageFailure:
        raise
    except Exception as error:
        partition.log.writer.abandon()
        unforeseen[partition] = error
        return _may_be_written(partition, error)
    return None


def _may_be_written(partition: Partition, error: Exception) -> InternalError:
    return InternalError(
        f"writing to {partition.name}/{partition.partition} failed unexpectedly ({type(error).__name__}); "
        "the records may be in the log, and the broker's own log has the trace"
    )
