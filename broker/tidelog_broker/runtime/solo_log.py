"""The metadata log of a broker without a quorum: made once, replayed at each start (M6).

The log's own format, with this broker as the only voter: a controller that is driven by
Raft opens it as a cluster of one, with nothing converted. Blocking; `controller` runs on
what comes out.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import FormatCluster, decode_command, encode_command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image
from tidelog_broker.errors import DataDirectoryError
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Voter
from tidelog_broker.storage.data_directory import DataDirectory
from tidelog_broker.storage.files import Files
from tidelog_broker.storage.raft_log import RaftLog, create_raft_log
from tidelog_broker.storage.raft_recovery import open_raft_log

FIRST_TERM = 1

READ_BYTES = 4 << 20
"""Entries read at a time when the log is replayed."""


class Replayed(NamedTuple):
    """Where the log stands: everything in it is committed, because its only voter has it on disk."""

    log: RaftLog
    image: ClusterImage
    configuration: Configuration


def format_solo(files: Files, path: str, *, cluster_id: bytes, broker_id: int, directory_id: bytes) -> None:
    """Makes `path` the data directory of a new cluster with one broker, its only voter (M1).

    Raises `DataDirectoryError` if it is one already or cannot be written.
    """
    me = Voter(broker_id, directory_id)
    voters = Configuration(voters=(me,))
    entries = [
        Entry(1, FIRST_TERM, EntryType.CONFIGURATION, voters.encode()),
        Entry(2, FIRST_TERM, EntryType.COMMAND, encode_command(FormatCluster(cluster_id))),
    ]
    state = HardState(term=FIRST_TERM, vote=me, commit=len(entries))
    DataDirectory.format(
        files,
        path,
        cluster_id=cluster_id,
        broker_id=broker_id,
        directory_id=directory_id,
        make_log=lambda folder: create_raft_log(files, folder, state, entries),
    )


def open_solo_log(directory: DataDirectory) -> Replayed:
    """Opens the log, repaired if a crash tore its end, and replays it.

    Raises `DataDirectoryError` if it is damaged, of a later version, or of a cluster with
    other voters.
    """
    log = open_raft_log(
        directory.files, directory.raft_folder, same_boot=directory.same_boot, reserve=directory.reserve
    )
    try:
        image, configuration = _replay(log)
        _check_alone(directory, image, configuration)
    except BaseException:
        log.close()
        raise
    return Replayed(log, image, configuration)


def _replay(log: RaftLog) -> tuple[ClusterImage, Configuration]:
    """The newest snapshot and the entries after it."""
    image, configuration = ClusterImage(), Configuration(voters=())
    if log.snapshot is not None:
        image = decode_image(log.snapshot.data)
        configuration = log.snapshot.configuration
    index = log.snapshot_index + 1
    while index <= log.last_index:
        for entry in log.entries(index, log.last_index + 1, READ_BYTES):
            if entry.type is EntryType.COMMAND:
                image = apply(image, decode_command(entry.payload), entry.index)
            elif entry.type is EntryType.CONFIGURATION:
                configuration = Configuration.decode(entry.payload)
            index = entry.index + 1
    return replace(image, version=log.last_index), configuration


def _check_alone(directory: DataDirectory, image: ClusterImage, configuration: Configuration) -> None:
    if image.cluster_id != directory.cluster_id:
        raise DataDirectoryError(
            f"meta.json and the metadata log of {directory.path} name different clusters; "
            "one of them comes from another data directory"
        )
    if configuration.voters != (Voter(directory.broker_id, directory.directory_id),):
        brokers = ", ".join(str(voter.broker_id) for voter in configuration.voters) or "nobody"
        raise DataDirectoryError(
            f"the voters of the metadata log of {directory.path} are {brokers}; "
            f"this version runs only with broker {directory.broker_id} on its first disk as the only one"
        )
