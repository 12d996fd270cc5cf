"""Reports what a forced recovery of the metadata finds in a voter's data directory, and what it loses (M2).

Nothing is changed here. Neighbour: `quorum_recovery` makes the changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from tidelog.wording import count_of, listed
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.directory.folders import stream_folder
from tidelog_broker.storage.folder.leader_epochs import EpochsLost, load_epochs
from tidelog_broker.storage.raft.segment import SEGMENT_NAME

NAMED_MAX: Final = 20
"""A sentence names at most so many folders or partitions; the JSON output names all of them."""


class QuorumReport(NamedTuple):
    """What the metadata log of a voter holds, and whether it was made the log of the only voter."""

    cluster_id: bytes
    broker_id: int
    voters: tuple[int, ...]
    """The voters before the recovery."""
    last_term: int
    last_index: int
    """The last entry. Of the voters that are left, the greatest (term, index) has most entries."""
    committed: int
    """The log is committed up to this entry at least; later entries may not be committed."""
    brokers: tuple[int, ...]
    """The registered brokers after all entries of the log."""
    streams: int
    forced: bool
    """The log was changed."""
    written_s: float | None = None
    """When the metadata log was last written, in seconds since 1970; later changes are lost.
    None: the file system does not tell."""
    strays: tuple[str, ...] = ()
    """Folders here of partitions that the image does not place on this broker: kept, and not served."""
    beyond: tuple[str, ...] = ()
    """Partitions here whose log has leader epochs that the image does not know: leaders were lost."""
    set_aside: str = ""
    """Where the old metadata log of a broker that starts over is kept; empty: it does not start over."""

    @property
    def alone(self) -> bool:
        """The broker is the only voter already: there is nothing to force."""
        return self.voters == (self.broker_id,)

    @property
    def started_over_before(self) -> bool:
        """The log was set aside earlier, and the empty log in its place has received no entries yet."""
        return bool(self.set_aside) and self.last_index == 0


def sentences(report: QuorumReport) -> list[str]:
    """Sentences that say what was done, and what is or would be lost."""
    if report.started_over_before:
        return [
            f"The metadata log was set aside before, and is kept as {report.set_aside}. Start the broker: "
            "it gets the metadata from the other brokers."
        ]
    if report.set_aside:
        return [
            f"The metadata log is kept as {report.set_aside}. Start the broker: it gets the metadata from "
            f"the other brokers."
        ]
    if report.alone and not report.forced:
        return ["The broker is the only voter already. There is nothing to recover."]
    lost = [voter for voter in report.voters if voter != report.broker_id]
    when = ""
    if report.written_s is not None:
        when = f" ({datetime.fromtimestamp(report.written_s, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    said = [
        f"Broker {report.broker_id} is the only voter now. Start it."
        if report.forced
        else f"Nothing was changed. With --force, broker {report.broker_id} becomes the only voter.",
        f"Changes of the metadata after entry {report.last_index}{when} are lost: streams that were created, "
        "changed or deleted, replicas that moved, brokers that joined. Known brokers: "
        f"{listed(report.brokers, at_most=NAMED_MAX)}; any other broker registers again on its own.",
        "If a leader was elected after that, the newest records of its partition may be missing. A replica "
        "that has these records sets its log aside as .quarantine-…",
        f"Never start brokers {listed(lost, at_most=NAMED_MAX)} with their old data directories again: there "
        f"would be two clusters. "
        "Unregister the brokers that do not come back.",
    ]
    if report.strays:
        said.append(
            f"{count_of(len(report.strays), 'folder')} here belong to partitions that this metadata does "
            f"not place on this broker. They are kept: {listed(report.strays, at_most=NAMED_MAX)}"
        )
    if report.beyond:
        said.append(
            f"{count_of(len(report.beyond), 'partition')} here with records of leaders that this metadata "
            f"does not know: "
            f"{listed(report.beyond, at_most=NAMED_MAX)}"
        )
    return said


def last_written(directory: DataDirectory) -> float | None:
    times = []
    for name in directory.files.list(directory.raft_folder):
        if SEGMENT_NAME.fullmatch(name):
            with suppress(OSError):
                times.append(os.stat(f"{directory.raft_folder}/{name}").st_mtime)
    return max(times, default=None)


def strays(directory: DataDirectory, image: ClusterImage) -> Iterator[str]:
    files, streams = directory.files, f"{directory.path}/streams"
    placed = {f"{streams}/{folder}" for folder, *_ in _placed(directory, image)}
    for stream in sorted(files.list(streams)) if files.exists(streams) else []:
        if stream.startswith("."):
            continue
        try:
            partitions = files.list(f"{streams}/{stream}")
        except NotADirectoryError:
            continue
        for partition in sorted(partitions):
            path = f"{streams}/{stream}/{partition}"
            if not partition.startswith(".") and path not in placed:
                yield path


def beyond(directory: DataDirectory, image: ClusterImage) -> Iterator[str]:
    for folder, name, stream_id, number, leader_epoch in _placed(directory, image):
        try:
            epochs = load_epochs(directory.files, f"{directory.path}/streams/{folder}", stream_id, number)
        except EpochsLost:
            # The next start quarantines this log.
            continue
        if (epochs.latest or 0) > leader_epoch:
            yield f"{name}/{number}"


def _placed(directory: DataDirectory, image: ClusterImage) -> Iterator[tuple[str, str, bytes, int, int]]:
    """For each partition that the image places here: folder, stream name and id, number, leader epoch."""
    for stream in sorted(image.streams.values(), key=lambda one: one.name):
        for number, partition in enumerate(stream.partitions):
            if directory.broker_id in partition.replicas:
                folder = f"{stream_folder(stream.name, stream.id)}/{number}"
                yield folder, stream.name, stream.id, number, partition.leader_epoch
