"""Opens the metadata log of a data directory, and the controller on it.

A directory that a single broker wrote, also before there were quorums, belongs to a cluster with one
voter; nothing is converted (M6). Neighbour: `offline.formatting` makes new directories.
"""

from __future__ import annotations

import random
from concurrent.futures import Executor
from uuid import uuid4

from tidelog_broker.core.metadata.commands import FormatCluster, decode_command
from tidelog_broker.core.metadata.snapshot import decode_image
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.model import EntryType
from tidelog_broker.quorum.host import QuorumHost
from tidelog_broker.quorum.options import QuorumOptions
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.raft.log import RaftLog
from tidelog_broker.storage.raft.recovery import open_raft_log


def open_quorum_controller(
    directory: DataDirectory,
    threads: Executor,
    host: QuorumHost,
    *,
    options: QuorumOptions | None = None,
    incarnation: bytes = b"",
    rng: random.Random | None = None,
    clock: ClusterClock | None = None,
) -> QuorumController:
    """The controller of a broker, which takes part once it is started. Blocking.

    `clock`: None: the machine's. Raises `DataDirectoryError` if the log is damaged, of a later version, or
    of another cluster than ``meta.json``.
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
            host,
            options=options or QuorumOptions(),
            incarnation=incarnation or uuid4().bytes,
            rng=rng or random.Random(),
            clock=clock or ClusterClock(),
        )
    except BaseException:
        raft_log.close()
        raise


def _check_cluster(directory: DataDirectory, raft_log: RaftLog) -> None:
    """Raises `DataDirectoryError` if log and meta.json name different clusters; an empty log names none."""
    cluster_id = None
    if raft_log.snapshot is not None:
        cluster_id = decode_image(raft_log.snapshot.data).cluster_id
    elif raft_log.last_index:
        # The first command of a cluster follows the first configuration.
        for entry in raft_log.entries(1, min(raft_log.last_index, 2) + 1):
            if entry.type is EntryType.COMMAND:
                command = decode_command(entry.payload)
                cluster_id = command.cluster_id if isinstance(command, FormatCluster) else None
    if cluster_id is not None and cluster_id != directory.cluster_id:
        raise DataDirectoryError(
            f"meta.json and the metadata log of {directory.path} name different clusters; "
            "one of them comes from another data directory"
        )
