"""Ends a run of a broker although its disk works: its metadata log is not what the cluster counts on.

A forced recovery superseded the log (M2), or it lacks entries that it acknowledged (R19). Neighbours:
`transport` meets brokers of other histories, `driver` finds what is missing,
`quorum_controller` then refuses all changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

import structlog

from tidelog_broker.core.raft.history import knows_more
from tidelog_broker.errors import BrokerError, DirectoryDamaged, RunOver
from tidelog_broker.model import Recovery, Voter
from tidelog_broker.quorum.driver import RaftDriver
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.directory.superseding import mark

log = structlog.get_logger(__name__)


class RunEnd:
    """Ends a run, once. Belongs to one event loop; the mark is written in `threads`."""

    def __init__(
        self,
        me: Voter,
        directory: DataDirectory,
        threads: Executor,
        *,
        raft: Callable[[], RaftDriver],
        ended: Callable[[BrokerError], None],
    ) -> None:
        """`ended` is called once."""
        self._me = me
        self._directory = directory
        self._threads = threads
        self._raft = raft
        self._ended = ended
        self._marking: asyncio.Task[None] | None = None
        self.reason: BrokerError | None = None
        """Why the run must end; None: it goes on."""

    def __repr__(self) -> str:
        return f"<RunEnd {self.reason or 'goes on'}>"

    async def stop(self) -> None:
        """Waits for the mark, if one is being written."""
        if self._marking is not None:
            await asyncio.gather(self._marking, return_exceptions=True)

    def forgotten(self, what: str) -> None:
        """The log lacks entries that it acknowledged."""
        self._end(
            DirectoryDamaged(
                f"{what}: the data directory was put back from a copy, or the disk lost what was flushed "
                "to it. Empty the directory and start the broker again; the other brokers refill it"
            )
        )

    def directory_restored(self, reason: str) -> None:
        """Another broker knows of a later start of this directory. May be called again and again."""
        self._end(DirectoryDamaged(reason))

    def superseded(self, theirs: tuple[Recovery, ...]) -> None:
        """The cluster was recovered by force from entries that this log shares. May be called repeatedly."""
        if self._marking is None:
            self._marking = asyncio.create_task(self._supersede(theirs), name="superseded metadata")

    async def _supersede(self, theirs: Sequence[Recovery]) -> None:
        raft_log, directory = self._raft().node.log, self._directory
        begun = theirs[len(raft_log.configuration.recoveries)]
        last = (raft_log.last_term, raft_log.last_index)
        what = (
            f"the metadata of the cluster was recovered by force after entry {begun.index} (term "
            f"{begun.term}); the metadata log of this broker follows the history before that, up to entry "
            f"{last[1]} (term "
            f"{last[0]})"
        )
        if knows_more(self._me, raft_log.configuration, last, theirs):
            self._end(
                RunOver(
                    f"{what}. This broker voted, so its log may have changes that the recovery lost. To give "
                    f"them up, run `tidelog-broker cluster-recover --data-dir {directory.path} --start-over`"
                )
            )
            return
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, mark, directory.files, directory.path)
        except OSError as error:
            self._end(RunOver(f"{what}. Its data directory could not be marked for a new start: {error}"))
            return
        self._end(
            RunOver(
                f"{what}. Start the broker again: it sets its metadata log aside and gets the metadata of "
                "the cluster; its records stay"
            )
        )

    def _end(self, reason: BrokerError) -> None:
        if self.reason is None:
            self.reason = reason
            log.error("this run of the broker ends", reason=str(reason))
            self._ended(reason)
