"""The metadata of a cluster that lost the majority of its voters, by force (M2): one voter that is left
goes on alone.

Offline, on the data directory of that voter. Its log gets one more entry, in a new term: it is the
only voter from here on. Everything in its log counts as committed then, and what only the lost
voters had is lost: changes that were answered may be undone, leaders forgotten. Records are not
touched. Once the broker runs again, others that are registered learn from it, and become
voters; the lost ones are fenced and wait to be unregistered.

The lost voters must never come back with their old directories: two of them would be a
majority by what they know, and the cluster would have two controllers.

Blocking. Neighbours: `quorum_opening` opens a log to go on with it, `formatting` makes new ones.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import decode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Voter
from tidelog_broker.storage.data_directory import DataDirectory
from tidelog_broker.storage.raft_log import RaftLog
from tidelog_broker.storage.raft_recovery import open_raft_log


class QuorumReport(NamedTuple):
    """What a voter's metadata log holds, and whether it was made the only voter's."""

    cluster_id: bytes
    broker_id: int
    voters: tuple[int, ...]
    """Before."""
    last_term: int
    last_index: int
    """Of its last entry. Of the voters that are left, the one with the greatest (term, index) knows most."""
    committed: int
    """Known here to be committed, at least; what follows may never have been."""
    brokers: tuple[int, ...]
    """Registered, when all of the log counts."""
    streams: int
    forced: bool
    """The log was changed."""

    @property
    def alone(self) -> bool:
        """It is the only voter already: there is nothing to force."""
        return self.voters == (self.broker_id,)


def recover_quorum(directory: DataDirectory, *, force: bool) -> QuorumReport:
    """Makes the owner of `directory` the only voter, if `force`; else only looks.

    Raises `DataDirectoryError` if the metadata log is empty or damaged, or its broker is no voter.
    """
    raft_log = open_raft_log(
        directory.files, directory.raft_folder, same_boot=directory.same_boot, reserve=directory.reserve
    )
    try:
        return _recover(directory, raft_log, force)
    finally:
        raft_log.close()


def _recover(directory: DataDirectory, raft_log: RaftLog, force: bool) -> QuorumReport:
    me = Voter(directory.broker_id, directory.directory_id)
    if raft_log.last_index == 0 or not raft_log.configurations:
        raise DataDirectoryError(
            f"the metadata log of {directory.path} is empty: this broker had not learnt of its cluster yet; "
            "recover on a broker that voted"
        )
    configuration = raft_log.configurations[-1][1]
    if me not in configuration.voters:
        raise DataDirectoryError(
            f"broker {me.broker_id} with the data directory {directory.path} does not vote; "
            f"brokers {[voter.broker_id for voter in configuration.voters]} do, as far as it knows: "
            "recover on one of them"
        )
    image = _whole_image(raft_log)
    state = raft_log.hard_state
    report = QuorumReport(
        cluster_id=directory.cluster_id,
        broker_id=me.broker_id,
        voters=tuple(voter.broker_id for voter in configuration.voters),
        last_term=raft_log.term(raft_log.last_index) or 0,
        last_index=raft_log.last_index,
        committed=max(state.commit, raft_log.snapshot_index),
        brokers=tuple(sorted(image.brokers)),
        streams=len(image.streams),
        forced=False,
    )
    if report.alone or not force:
        return report
    _stand_alone(raft_log, me, max(state.term, report.last_term) + 1)
    return report._replace(forced=True)


def _stand_alone(raft_log: RaftLog, me: Voter, term: int) -> None:
    """After a crash in between it can be done again."""
    # The term first: an entry may not be of a later one than the log's owner has seen.
    raft_log.save_hard_state(HardState(term, None, raft_log.hard_state.commit))
    index = raft_log.last_index + 1
    alone = Configuration(voters=(me,))
    raft_log.append([Entry(index, term, EntryType.CONFIGURATION, alone.encode())])
    raft_log.sync()
    raft_log.save_hard_state(HardState(term, None, index))


def _whole_image(raft_log: RaftLog) -> ClusterImage:
    """The image after every entry, as it will be once they count."""
    snapshot = raft_log.snapshot
    image = ClusterImage() if snapshot is None else decode_image(snapshot.data)
    index = raft_log.snapshot_index + 1
    while index <= raft_log.last_index:
        entries = raft_log.entries(index, raft_log.last_index + 1)
        if not entries:
            raise DataDirectoryError(f"entry {index} of the metadata log is not there; restore a backup")
        for entry in entries:
            if entry.type is EntryType.COMMAND:
                image = apply(image, decode_command(entry.payload), entry.index)
        index = entries[-1].index + 1
    return image
