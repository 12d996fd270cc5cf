"""Merges the small files of a folder of Parquet files, in one step for every reader.

A plain folder has no way to replace several files by one in one step, but Linux can exchange two folders
(`renameat2` with ``RENAME_EXCHANGE``). So the merge is prepared beside the lake: a new folder with the merged
file, and with hard links to the files that stay as they are. Then the two folders change places, and the
old one is removed. A reader that lists the folder finds the old files or the new ones, never both and never
neither. A reader that has listed the old files and opens them later gets "file not found" and must list
again: an error, not a wrong result.

A crash before the exchange leaves the lake as it was, and a crash after it leaves the old files in the
hidden folder; the next run removes what it finds there. Only the driver of the query writes to the lake,
between two batches, so nothing is added to a folder while it is merged. The old folder is removed with
all that is in it; so a folder that has anything but Parquet files, such as the sub-folders of another
partitioning, is not merged.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.errors import InvalidRequest
from tidelog_spark.lake.journal import HIDDEN
from tidelog_spark.lake.stores import sync
from tidelog_spark.lake.writing import COMPRESSION, FILE_BYTES_MAX

SMALL_BYTES: Final = 64 << 20
"""A file below this size is merged with others."""

SMALL_FILES_MIN: Final = 8
"""A folder with fewer small files is left alone, so that each row is rewritten a few times at most."""

GROUP_BYTES: Final = 64 << 20
"""Decoded rows of a row group in a merged file, and so the memory that a merge needs."""

WORK: Final = f"{HIDDEN}-compaction"
"""Where merges are prepared: hidden, in the file system of the lake."""

_EXCHANGE: Final = 2
_AT_CWD: Final = -100

log = logging.getLogger(__name__)


def check(lake: Path) -> None:
    """Raises `InvalidRequest` unless the file system of the lake can exchange two folders."""
    work = lake / WORK
    one, other = work / "check-1", work / "check-2"
    one.mkdir(parents=True, exist_ok=True)
    other.mkdir(exist_ok=True)
    try:
        exchange(one, other)
    except OSError as error:
        raise InvalidRequest(
            f"compactSmallFiles is not possible at {lake}: its file system cannot exchange two folders in "
            f"one step ({error.strerror}). Set it to false, or write to an Iceberg table"
        ) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def clean(lake: Path) -> None:
    """Removes what a merge that did not end has left."""
    shutil.rmtree(lake / WORK, ignore_errors=True)


def compact(lake: Path, folders: Iterable[str]) -> int:
    """Merges the small files of these folders where there are enough; answers how many were merged."""
    merged = 0
    for folder in sorted(folders):
        files, strangers = _content(lake / folder)
        small = [file for file in files if file.stat().st_size < SMALL_BYTES]
        if len(small) < SMALL_FILES_MIN:
            continue
        if strangers:
            log.warning(
                "The small files of %s are not merged, because it has more than Parquet files, such as %s. "
                "Move that to another place.",
                lake / folder,
                strangers[0],
            )
        else:
            _merge(lake, folder, files, small)
            merged += len(small)
            log.info("merged %d small files of %s", len(small), lake / folder)
    return merged


def _content(folder: Path) -> tuple[list[Path], list[str]]:
    """The Parquet files of a folder, and the names of all that is something else."""
    files: list[Path] = []
    strangers: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".parquet") and entry.is_file(follow_symlinks=False):
                files.append(Path(entry.path))
            else:
                strangers.append(entry.name)
    return sorted(files), sorted(strangers)


def _merge(lake: Path, folder: str, files: list[Path], small: list[Path]) -> None:
    clean(lake)
    prepared = lake / WORK / uuid.uuid4().hex
    prepared.mkdir(parents=True)
    for file in files:
        if file not in small:
            os.link(file, prepared / file.name)
    _write_merged(small, prepared)
    sync(prepared)
    exchange(prepared, lake / folder)
    sync((lake / folder).parent)
    clean(lake)


def _write_merged(small: list[Path], prepared: Path) -> None:
    """The rows of the files, in their order, in files of at most about `FILE_BYTES_MAX`."""
    groups: list[list[Path]] = [[]]
    size = 0
    for file in small:
        if size + file.stat().st_size > FILE_BYTES_MAX and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.stat().st_size
    for group in groups:
        # Columns may have been added or dropped between two files.
        schema = pa.unify_schemas([pq.read_schema(file) for file in group])
        # The name of the last file sorts where its rows belong, and stays unique.
        target = prepared / f"{group[-1].stem.partition('+')[0]}+{uuid.uuid4().hex[:8]}.parquet"
        with target.open("wb") as output:
            with pq.ParquetWriter(output, schema, compression=COMPRESSION, store_schema=False) as writer:
                _copy_rows(group, writer, schema)
            output.flush()
            os.fsync(output.fileno())


def _copy_rows(group: list[Path], writer: pq.ParquetWriter, schema: pa.Schema) -> None:
    waiting: list[pa.Table] = []
    for file in group:
        with pq.ParquetFile(file) as source:
            for number in range(source.num_row_groups):
                waiting.append(_with_columns(source.read_row_group(number), schema))
                if sum(table.nbytes for table in waiting) >= GROUP_BYTES:
                    writer.write_table(pa.concat_tables(waiting))
                    waiting.clear()
    if waiting:
        writer.write_table(pa.concat_tables(waiting))


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=schema)


def exchange(one: Path, other: Path) -> None:
    """Two folders change places in one step; raises `OSError` where that is not possible."""
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, "renameat2 needs Linux with glibc 2.28 or musl 1.2.6")
    if rename(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), ctypes.c_uint(_EXCHANGE)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
