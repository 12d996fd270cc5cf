"""Recovers the metadata of a cluster that lost the majority of its voters, by force (M2): one voter that is
left continues alone.

It works offline, on the data directory of that voter. Everything in its log then counts as committed, and
entries that only the lost voters had are lost: acknowledged changes may be undone, and leaders forgotten.
Records are not touched. The log gets two entries, in a term far above any that others can have reached:

1. A command by which every leader epoch and partition epoch, and the next producer id, grows beyond what
   the lost changes may have given out (`RecoverCluster`). So no two histories share an epoch.
2. A configuration with this broker as the only voter, and with the recovery in its history. Brokers whose
   log is of the history before are refused until they have started over (`core.raft.history`).

Once the broker runs again, other registered brokers follow it and become voters; the lost brokers are
fenced and wait to be unregistered. They must never come back with their old directories: two of them would
be a majority by what they know, and the cluster would have two controllers.

Blocking. Neighbours: `quorum_losses` says what is lost, `quorum.opening` opens a log to go on with it,
`storage.directory.superseding` sets aside the log of a broker that starts over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import uuid4

from tidelog.wording import listed
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import RecoverCluster, decode_command, encode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image
from tidelog_broker.errors import MEND, DataDirectoryError
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Recovery, Voter
from tidelog_broker.offline.formatting import make_empty_log
from tidelog_broker.offline.quorum_losses import QuorumReport, beyond, last_written, strays
from tidelog_broker.storage.directory import superseding
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.raft.log import RaftLog
from tidelog_broker.storage.raft.recovery import open_raft_log

TERM_STRIDE: Final = 1 << 32
"""Elections take half a second, so no broker has reached such a term: every earlier term is old."""

EPOCH_STRIDE: Final = 1 << 20
"""More elections of one partition than the lost entries can hold; an epoch has 32 bits."""

SINK_NUMBER_STRIDE: Final = 1 << 16
"""More sinks than one cluster may have, so that no sink of the lost entries shares its number with
another."""

PRODUCER_ID_STRIDE: Final = 1 << 32
"""More producer ids than the lost entries can have given out."""


def recover_quorum(
    directory: DataDirectory, *, force: bool, new_id: Callable[[], bytes] = lambda: uuid4().bytes
) -> QuorumReport:
    """Makes the owner of `directory` the only voter if `force`; otherwise only reads. `new_id`: its id.

    Raises `DataDirectoryError` if the metadata log is damaged; if it is empty, unless the broker has started
    over and nothing is forced; and, with `force`, if its broker is no voter.
    """
    superseding.require_log(directory.files, directory.path)
    raft_log = open_raft_log(
        directory.files, directory.raft_folder, same_boot=directory.same_boot, reserve=directory.reserve
    )
    try:
        return _recover(directory, raft_log, force, new_id)
    finally:
        raft_log.close()


def _recover(
    directory: DataDirectory, raft_log: RaftLog, force: bool, new_id: Callable[[], bytes]
) -> QuorumReport:
    me = Voter(directory.broker_id, directory.directory_id)
    aside = superseding.newest_aside(directory.files, directory.path)
    if raft_log.last_index == 0 and aside:
        if force:
            raise DataDirectoryError(
                f"the metadata log of {directory.path} is empty, because it was set aside as {aside}. "
                "Start the broker: it gets the metadata from the others. To force a recovery, choose a "
                "broker that voted"
            )
        return _started_over(directory, aside)
    if raft_log.last_index == 0 or not raft_log.configurations:
        raise DataDirectoryError(
            f"the metadata log of {directory.path} is empty: this broker has received nothing of its "
            "cluster yet; recover a broker that voted"
        )
    configuration = raft_log.configurations[-1][1]
    if force and me not in configuration.voters:
        raise DataDirectoryError(
            f"broker {me.broker_id} with the data directory {directory.path} does not vote; "
            f"as far as it knows, the voters are brokers {_ids(configuration)}: "
            "recover one of them"
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
        written_s=last_written(directory),
        strays=tuple(strays(directory, image)),
        beyond=tuple(beyond(directory, image)),
    )
    if report.alone or not force:
        return report
    recovery = Recovery(new_id(), report.last_index, report.last_term)
    alone = Configuration(voters=(me,), recoveries=(*configuration.recoveries, recovery))
    _stand_alone(raft_log, alone, max(state.term, report.last_term) + TERM_STRIDE)
    return report._replace(forced=True)


def start_over(directory: DataDirectory) -> QuorumReport:
    """Sets the metadata log of this broker aside: it gets the metadata from the others (M2).

    What only this log has is given up. If the log was set aside and received nothing since, nothing changes.
    Raises `DataDirectoryError` if the log cannot be read: such a directory must be emptied.
    """
    report = recover_quorum(directory, force=False)
    if report.set_aside:
        return report
    files, path = directory.files, directory.path
    superseding.mark(files, path)
    return report._replace(set_aside=superseding.set_aside(files, path, partial(make_empty_log, files)))


def _started_over(directory: DataDirectory, aside: str) -> QuorumReport:
    """The report on an empty log whose predecessor was set aside as `aside`."""
    return QuorumReport(
        cluster_id=directory.cluster_id,
        broker_id=directory.broker_id,
        voters=(),
        last_term=0,
        last_index=0,
        committed=0,
        brokers=(),
        streams=0,
        forced=False,
        set_aside=aside,
    )


def _stand_alone(raft_log: RaftLog, alone: Configuration, term: int) -> None:
    """Writes the two entries. After a crash in between it can be repeated."""
    # The term first: no entry may have a later term than the hard state.
    raft_log.save_hard_state(HardState(term, None, raft_log.hard_state.commit))
    raised = RecoverCluster(
        alone.recoveries[-1].id, EPOCH_STRIDE, PRODUCER_ID_STRIDE, sink_number_stride=SINK_NUMBER_STRIDE
    )
    index = raft_log.last_index + 1
    # The command first: if the configuration is there, the command is there, too.
    raft_log.append(
        [
            Entry(index, term, EntryType.COMMAND, encode_command(raised)),
            Entry(index + 1, term, EntryType.CONFIGURATION, alone.encode()),
        ]
    )
    raft_log.sync()
    raft_log.save_hard_state(HardState(term, None, index + 1))


def _whole_image(raft_log: RaftLog) -> ClusterImage:
    """The image after every entry, as if all of them were committed."""
    snapshot = raft_log.snapshot
    image = ClusterImage() if snapshot is None else decode_image(snapshot.data)
    index = raft_log.snapshot_index + 1
    while index <= raft_log.last_index:
        entries = raft_log.entries(index, raft_log.last_index + 1)
        if not entries:
            raise DataDirectoryError(
                f"entry {index} of the metadata log is not there: recover on another voter; {MEND}"
            )
        for entry in entries:
            if entry.type is EntryType.COMMAND:
                image = apply(image, decode_command(entry.payload), entry.index)
        index = entries[-1].index + 1
    return image


def _ids(configuration: Configuration) -> str:
    return listed(voter.broker_id for voter in configuration.voters)
