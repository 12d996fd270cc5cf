"""The two files of a segment's index, ``.index`` and ``.timeindex`` (DESIGN 4.1).

They are caches: nothing is synced, and one file without the other counts as no index.
Neighbours: `index` defines their content and checks it, `segment` decides when
they are read and written. All functions take the segment's path without its suffix and
raise OSError.
"""

from __future__ import annotations

from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.whole_files import write_all
from tidelog_broker.storage.segments.index import SparseIndex

INDEX_SUFFIXES = (".index", ".timeindex")


def index_paths(stem: str) -> tuple[str, str]:
    """The paths of the offset index and of the time index."""
    offsets, times = INDEX_SUFFIXES
    return stem + offsets, stem + times


def has_index_files(files: OpenFiles, stem: str) -> bool:
    """Whether at least one of the two files exists."""
    return any(files.files.exists(path) for path in index_paths(stem))


def load_index(files: OpenFiles, stem: str, base_offset: int, end_position: int) -> SparseIndex:
    """Loads the index of a segment that ends at `end_position`; it may be empty."""
    offsets_path, times_path = index_paths(stem)
    data = (b"", b"")
    if files.files.exists(offsets_path) and files.files.exists(times_path):
        with files.use(offsets_path) as offsets, files.use(times_path) as times:
            data = offsets.pread(offsets.size(), 0), times.pread(times.size(), 0)
    return SparseIndex.load(base_offset, *data, end_position)


def save_index(files: OpenFiles, stem: str, index: SparseIndex) -> None:
    """Writes the unsaved entries behind the saved ones, and replaces all else that was there."""
    offsets_path, times_path = index_paths(stem)
    offsets_at, times_at = index.saved_bytes
    offsets, times, check = index.unsaved()
    with files.use(offsets_path, create=True) as file:
        file.truncate(offsets_at + write_all(file, [offsets], offsets_at))
    with files.use(times_path, create=True) as file:
        file.truncate(times_at + write_all(file, [times], times_at))
    index.was_saved(check)


def remove_index_files(files: OpenFiles, stem: str) -> None:
    for path in index_paths(stem):
        files.forget(path)
        if files.files.exists(path):
            files.files.remove(path)


def close_index_files(files: OpenFiles, stem: str) -> None:
    """Closes the descriptors; the files stay."""
    for path in index_paths(stem):
        files.forget(path)
