"""How a data directory begins: of a new cluster, once, or of a broker that joins one (M1).

The metadata log of a new cluster names its first broker as the only voter. That of a broker
that joins is empty: it never votes and never campaigns, until a leader has sent it entries
and then made it a voter. Blocking. Neighbour: `storage.directory.data_directory` makes the rest.
"""

from __future__ import annotations

from tidelog_broker.core.metadata.commands import FEATURE_LEVEL, FormatCluster, encode_command
from tidelog_broker.model import Configuration, Entry, EntryType, HardState, Voter
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.raft.log import create_raft_log

FIRST_TERM = 1


def format_solo(files: Files, path: str, *, cluster_id: bytes, broker_id: int, directory_id: bytes) -> None:
    """Makes `path` the data directory of a new cluster with one broker, its only voter.

    Raises `DataDirectoryError` if it is one already or cannot be written.
    """
    me = Voter(broker_id, directory_id)
    voters = Configuration(voters=(me,))
    entries = [
        Entry(1, FIRST_TERM, EntryType.CONFIGURATION, voters.encode()),
        Entry(2, FIRST_TERM, EntryType.COMMAND, encode_command(FormatCluster(cluster_id, FEATURE_LEVEL))),
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


def format_joiner(files: Files, path: str, *, cluster_id: bytes, broker_id: int, directory_id: bytes) -> None:
    """Makes `path` the data directory of a broker that joins a cluster. Raises like `format_solo`."""
    DataDirectory.format(
        files,
        path,
        cluster_id=cluster_id,
        broker_id=broker_id,
        directory_id=directory_id,
        make_log=lambda folder: make_empty_log(files, folder),
    )


def make_empty_log(files: Files, folder: str) -> None:
    """The metadata log of a broker that has yet to learn what its cluster knows. Raises OSError."""
    create_raft_log(files, folder, HardState(), [])
