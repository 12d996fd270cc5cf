"""Expires old snapshots of an Iceberg table, and removes the files that only these snapshots have.

PyIceberg removes the snapshots from the metadata of the table, and no file. So three steps follow each
other, with a note of the files beside them: the note, the commit, the removal. A file is removed only if the
table, as it is after the commit, does not reach it from any snapshot. So a run that was interrupted is
completed by the next one from its note, and a note without a commit removes nothing.

    data/<query>/expiring/<id>.json  files that the table may not need any more

The batches that count are in properties of the table (`iceberg`), which no expiry touches. The snapshots at
the head of branches and those with a tag always stay.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Snapshot

from tidelog_spark.lake.stores import Folder
from tidelog_spark.lake.table_files import home_of

LUMPS: Final = 10
"""Snapshots are expired in lumps, at most so many in the span that they are kept, because each expiry reads
the manifests of all snapshots that stay. So a snapshot may stay a tenth of the span longer."""

_DELETES_METADATA: Final = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expiry:
    """Which snapshots one query expires in a table."""

    folder: Folder
    """Of the table."""
    query: str
    older_than: timedelta

    def expire(self, table: Table, now: datetime) -> int:
        """Expires the snapshots that are old enough; answers their number. `table` was read just now."""
        self._remove_noted(table)
        old = self._old(table, now)
        if not old:
            return 0
        gone = {snapshot.snapshot_id for snapshot in old}
        kept = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in gone]
        note = f"{self._notes}/{uuid.uuid4().hex}.json"
        self.folder.create(note, json.dumps(_only_of(table, old, kept)).encode())
        try:
            if _DELETES_METADATA not in table.properties:
                with table.transaction() as properties:
                    # Each commit writes a new metadata file, and the old ones would stay for ever.
                    properties.set_properties({_DELETES_METADATA: "true"})
            table.maintenance.expire_snapshots().by_ids(sorted(gone)).commit()
        except CommitFailedException as error:
            log.info("the expiry of old snapshots waits for the next batch: %s", error)
            return 0
        self._remove_noted(table.refresh())
        log.info("expired %d snapshots", len(old))
        return len(old)

    @property
    def _notes(self) -> str:
        return f"{home_of(self.query)}/expiring"

    def _old(self, table: Table, now: datetime) -> list[Snapshot]:
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        limit_ms = round((now - self.older_than).timestamp() * 1000)
        lump_ms = round(self.older_than.total_seconds() * 1000) // LUMPS
        old = [
            snapshot
            for snapshot in table.metadata.snapshots
            if snapshot.timestamp_ms < limit_ms and snapshot.snapshot_id not in heads
        ]
        due = any(snapshot.timestamp_ms < limit_ms - lump_ms for snapshot in old)
        return old if due else []

    def _remove_noted(self, table: Table) -> None:
        """Removes the files of the notes that no snapshot of the table reaches."""
        for name in self.folder.names(self._notes):
            noted = json.loads(self.folder.read(f"{self._notes}/{name}") or b"{}")
            lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
            manifests = _manifests(table, table.metadata.snapshots)
            # Files before manifests, and manifests before lists: each step can be repeated.
            if noted.get("files"):
                _remove(table, set(noted["files"]) - _files(table, manifests.values()))
            _remove(table, set(noted.get("manifests", ())) - manifests.keys())
            _remove(table, set(noted.get("lists", ())) - lists)
            self.folder.remove(f"{self._notes}/{name}")


def _only_of(table: Table, old: Sequence[Snapshot], kept: Sequence[Snapshot]) -> dict[str, list[str]]:
    """What the old snapshots reach, without the manifests that others have, too."""
    needed = _manifests(table, kept)
    manifests = {path: manifest for path, manifest in _manifests(table, old).items() if path not in needed}
    return {
        "lists": sorted(snapshot.manifest_list for snapshot in old),
        "manifests": sorted(manifests),
        "files": sorted(_files(table, manifests.values())),
    }


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    return {
        manifest.manifest_path: manifest
        for snapshot in snapshots
        for manifest in snapshot.manifests(table.io)
    }


def _files(table: Table, manifests: Iterable[ManifestFile]) -> set[str]:
    """The data files and delete files in the manifests."""
    return {
        entry.data_file.file_path
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def _remove(table: Table, paths: Iterable[str]) -> None:
    for path in sorted(paths):
        with suppress(FileNotFoundError):
            table.io.delete(path)
