"""Opens the metadata log of a data directory, and the controller on it.

A directory that a broker alone wrote, also before there were quorums, is that of a cluster with
one voter, with nothing converted (M6). Neighbour: `formatting` makes new ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor
from uuid import uuid4

from tidelog_broker.core.metadata.commands import FormatCluster, decode_command
from tidelog_broker.core.metadata.snapshot import decode_image
from tidelog_broker.errors import BrokerError, DataDirectoryError
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.model import EntryType
from tidelog_broker.quorum.quorum_controller import QuorumController, QuorumOptions
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.raft.log import RaftLog
from tidelog_broker.storage.raft.recovery import open_raft_log


def open_quorum_controller(
    directory: DataDirectory,
    threads: Executor,
    *,
    fail: Callable[[BaseException], None],
    ended: Callable[[BrokerError], None] = lambda error: None,
    options: QuorumOptions | None = None,
    incarnation: bytes = b"",
    rng: random.Random | None = None,
    clock: ClusterClock | None = None,
) -> QuorumController:
    """The controller of a broker, which takes part once it is started. Blocking.

    `fail` is called on the event loop when the log's files fail: what is on disk is
    unknown, and the broker must end. `ended` is called when this run must not go on although
    the disk works; `start` and `register` raise it, too. `clock`: None: the machine's. Raises
    `DataDirectoryError` if the log is damaged, of a later version, or of another cluster than
    ``meta.json``.
    """
    raft_log = open_raft_log(
        directory.files, directory.raft_folder, same_boot=directory.same_boot, reserve=directory.reserve
    )
    try:
        _check_cluster(directory, raft_log)
        return QuorumController(
            directory,
            raft_log,
            threads,
            fail=fail,
            ended=ended,
            options=options or QuorumOptions(),
            incarnation=incarnation or uuid4().bytes,
            rng=rng or random.Random(),
            clock=clock or ClusterClock(),
        )
    except BaseException:
        raft_log.close()
        raise


def _check_cluster(directory: DataDirectory, raft_log: RaftLog) -> None:
    """The log and meta.json speak of one cluster; an empty log speaks of none yet."""
    cluster_id = None
    if raft_log.snapshot is not None:
        cluster_id = decode_image(raft_log.snapshot.data).cluster_id
    elif raft_log.last_index:
        # A cluster's first command, behind the first list of its voters.
        for entry in raft_log.entries(1, min(raft_log.last_index, 2) + 1):
            if entry.type is EntryType.COMMAND:
                command = decode_command(entry.payload)
                cluster_id = command.cluster_id if isinstance(command, FormatCluster) else None
    if cluster_id is not None and cluster_id != directory.cluster_id:
        raise DataDirectoryError(
            f"meta.json and the metadata log of {directory.path} name different clusters; "
            "one of them comes from another data directory"
        )
