"""What a forced recovery of the metadata finds in a voter's data directory, and what it loses (M2).

Nothing is changed here. Neighbour: `quorum_recovery` does it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.storage.directory.data_directory import DataDirectory
from tidelog_broker.storage.directory.folders import stream_folder
from tidelog_broker.storage.folder.leader_epochs import EpochsLost, load_epochs
from tidelog_broker.storage.raft.segment import SEGMENT_NAME

NAMED_MAX: Final = 20
"""Folders and partitions that are named to people; JSON has them all."""


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
    written_s: float | None = None
    """When the metadata log was last written to, in seconds since 1970; changes from later are lost.
    None: the file system does not say."""
    strays: tuple[str, ...] = ()
    """Folders here of partitions that the image does not place on this broker: kept, and not served."""
    beyond: tuple[str, ...] = ()
    """Partitions here whose log has later leader epochs than the image knows: leaders were forgotten."""
    set_aside: str = ""
    """Where the metadata log is kept of a broker that starts over."""

    @property
    def alone(self) -> bool:
        """It is the only voter already: there is nothing to force."""
        return self.voters == (self.broker_id,)

    @property
    def started_over_before(self) -> bool:
        """The log was set aside earlier, and the empty one in its place has learnt nothing yet."""
        return bool(self.set_aside) and self.last_index == 0


def sentences(report: QuorumReport) -> list[str]:
    """What was done, and what is or would be lost by it, for people."""
    if report.started_over_before:
        return [
            f"the metadata log was set aside already, and is kept as {report.set_aside}; start the broker: "
            "it learns from the others"
        ]
    if report.set_aside:
        return [
            f"the metadata log is kept as {report.set_aside}; start the broker: it learns from the others"
        ]
    if report.alone and not report.forced:
        return ["it is the only voter already: there is nothing to recover"]
    lost = [voter for voter in report.voters if voter != report.broker_id]
    when = ""
    if report.written_s is not None:
        when = f" ({datetime.fromtimestamp(report.written_s, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    said = [
        f"broker {report.broker_id} is the only voter now; start it"
        if report.forced
        else f"nothing was changed; with --force broker {report.broker_id} is the only voter",
        f"changes of the metadata after entry {report.last_index}{when} are lost: streams that were made, "
        "changed or deleted, replicas that moved, brokers that joined. Brokers "
        f"{list(report.brokers)} are known; any other one registers again by itself",
        "of partitions whose leader was elected after that, the newest records may be missing; a replica "
        "that has them sets its log aside as .quarantine-…",
        f"never start {lost} with their old data directories again, or there will be two clusters; "
        "unregister those that stay away",
    ]
    if report.strays:
        said.append(
            f"{len(report.strays)} folders here belong to partitions that this metadata does not place on "
            f"this broker, and are kept: {_some(report.strays)}"
        )
    if report.beyond:
        said.append(
            f"{len(report.beyond)} partitions here have records of leaders that this metadata does not know: "
            f"{_some(report.beyond)}"
        )
    return said


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


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
            # Its start quarantines it.
            continue
        if (epochs.latest or 0) > leader_epoch:
            yield f"{name}/{number}"


def _placed(directory: DataDirectory, image: ClusterImage) -> Iterator[tuple[str, str, bytes, int, int]]:
    """Of each partition that the image places here: folder, stream's name and id, number, leader epoch."""
    for stream in sorted(image.streams.values(), key=lambda one: one.name):
        for number, partition in enumerate(stream.partitions):
            if directory.broker_id in partition.replicas:
                folder = f"{stream_folder(stream.name, stream.id)}/{number}"
                yield folder, stream.name, stream.id, number, partition.leader_epoch
