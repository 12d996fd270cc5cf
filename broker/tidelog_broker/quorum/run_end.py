"""Why a run of a broker must end although its disk works: its metadata log is not what its cluster counts on.

The log was superseded by a forced recovery (M2), or it lacks what it acknowledged (R19). Neighbours:
`transport` meets brokers of other histories, `driver` finds what is missing,
`quorum_controller` ends what goes on here.
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
    """See the module. Of one event loop; the mark is written in `threads`."""

    def __init__(
        self,
        me: Voter,
        directory: DataDirectory,
        threads: Executor,
        *,
        raft: Callable[[], RaftDriver],
        ended: Callable[[BrokerError], None],
    ) -> None:
        """`ended` is told once."""
        self._me = me
        self._directory = directory
        self._threads = threads
        self._raft = raft
        self._ended = ended
        self._marking: asyncio.Task[None] | None = None
        self.reason: BrokerError | None = None
        """None: the run goes on."""

    def __repr__(self) -> str:
        return f"<RunEnd {self.reason or 'goes on'}>"

    async def stop(self) -> None:
        """Waits for the mark, if one is being written."""
        if self._marking is not None:
            await asyncio.gather(self._marking, return_exceptions=True)

    def forgotten(self, what: str) -> None:
        """The log lacks what it acknowledged."""
        self._end(
            DirectoryDamaged(
                f"{what}: its data directory was put back from a copy, or its disk lost what it had flushed. "
                "Empty the directory and start the broker again; the other brokers refill it"
            )
        )

    def directory_restored(self, reason: str) -> None:
        """Another broker knows of a later start of this directory. May be told again and again."""
        self._end(DirectoryDamaged(reason))

    def superseded(self, theirs: tuple[Recovery, ...]) -> None:
        """The cluster went on by force from what this log shares with it. May be told again and again."""
        if self._marking is None:
            self._marking = asyncio.create_task(self._supersede(theirs), name="superseded metadata")

    async def _supersede(self, theirs: Sequence[Recovery]) -> None:
        raft_log, directory = self._raft().node.log, self._directory
        begun = theirs[len(raft_log.configuration.recoveries)]
        last = (raft_log.last_term, raft_log.last_index)
        what = (
            f"the metadata of the cluster was recovered by force after its entry {begun.index} (term "
            f"{begun.term}); that of this broker goes on from before to entry {last[1]} (term {last[0]})"
        )
        if knows_more(self._me, raft_log.configuration, last, theirs):
            self._end(
                RunOver(
                    f"{what}, and this broker voted: it may know of changes that the recovery lost. To give "
                    f"those up, run `tidelog-broker cluster-recover --data-dir {directory.path} --start-over`"
                )
            )
            return
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, mark, directory.files, directory.path)
        except OSError as error:
            self._end(RunOver(f"{what}, and its data directory could not be marked so: {error}"))
            return
        self._end(
            RunOver(
                f"{what}. Start it again: it then sets its metadata log aside and learns what the cluster "
                "knows; its records stay"
            )
        )

    def _end(self, reason: BrokerError) -> None:
        if self.reason is None:
            self.reason = reason
            log.error("this run of the broker is over", reason=str(reason))
            self._ended(reason)
