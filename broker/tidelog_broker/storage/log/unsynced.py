"""The files of a log that may not be on disk yet, and that the next flush must sync.

Each file is kept with the descriptor through which it was written, because an fsync must
use the same descriptor (DESIGN 4.3). Neighbours: `writer` adds the files that it writes, `flusher` takes
all of them for a flush, `state` has the locks under which they change, and `truncation` drops the files
that it cuts off.
"""

from __future__ import annotations

from tidelog_broker.storage.files.open_files import Held, OpenFiles
from tidelog_broker.storage.segments.segment import Segment


class Unsynced:
    """The files of one log that changed since the last flush began.

    Not thread-safe: the log's locks protect it.
    """

    __slots__ = ("_epochs", "_files", "_folder", "_folder_dirty", "_segments", "_snapshots")

    def __init__(self, files: OpenFiles, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._segments: list[tuple[Segment, Held]] = []
        self._epochs: list[tuple[int, Held]] = []
        """Leader epochs that began, with the file of their entries."""
        self._snapshots: list[tuple[int, Held]] = []
        """Offsets of the append guard's snapshots, with their files."""
        self._folder_dirty = False

    def __repr__(self) -> str:
        return f"<Unsynced segments={len(self._segments)} epochs={len(self._epochs)}>"

    @property
    def any_records(self) -> bool:
        """Whether records or their history wait for a flush; a snapshot alone is no reason to flush."""
        return bool(self._segments or self._epochs)

    def add_segment(self, segment: Segment, held: Held) -> None:
        """Adds a segment to which batches were written; the segment's size does not include them yet."""
        if self._segments and self._segments[-1][0] is segment:
            segment.release(held)
            return
        self._segments.append((segment, held))
        if segment.size == 0:
            self._folder_dirty = True

    def add_epoch(self, epoch: int, held: Held) -> None:
        self._epochs.append((epoch, held))

    def add_snapshot(self, offset: int, held: Held) -> None:
        self._snapshots.append((offset, held))
        self._folder_dirty = True

    @property
    def epoch(self) -> int | None:
        """The newest leader epoch that began; None: no epoch began."""
        return self._epochs[-1][0] if self._epochs else None

    @property
    def snapshot_offset(self) -> int | None:
        """The offset of the newest snapshot of the append guard; None: there is no snapshot."""
        return self._snapshots[-1][0] if self._snapshots else None

    def sync(self) -> None:
        """Makes all files durable; raises OSError, after which their state on disk is unknown."""
        # History first: after a crash, recovery would cut a batch whose epoch is not on disk.
        if self._epochs:
            self._epochs[-1][1].file.datasync()
        for _, held in (*self._segments, *self._snapshots):
            held.file.datasync()
        if self._folder_dirty:
            self._files.files.sync_dir(self._folder)

    def release(self) -> None:
        """Releases the descriptors: their content was synced, or nothing waits for it."""
        for _, held in (*self._epochs, *self._segments, *self._snapshots):
            self._files.release(held)

    # --- before a part of the log is removed or replaced

    def drop_segment(self, segment: Segment) -> None:
        for entry in [entry for entry in self._segments if entry[0] is segment]:
            self._segments.remove(entry)
            segment.release(entry[1])

    def drop_snapshots(self) -> None:
        snapshots, self._snapshots = self._snapshots, []
        for _, held in snapshots:
            self._files.release(held)

    def sync_epochs(self) -> None:
        """Makes only the history durable; raises OSError."""
        epochs, self._epochs = self._epochs, []
        for _, held in epochs:
            held.file.datasync()
            self._files.release(held)

    def drop_epochs(self) -> None:
        """Drops the history, because the whole history was written again, durably."""
        epochs, self._epochs = self._epochs, []
        for _, held in epochs:
            self._files.release(held)

    def sync_folder(self) -> None:
        """Makes the folder's entries durable; raises OSError."""
        self._files.files.sync_dir(self._folder)
        self._folder_dirty = False
