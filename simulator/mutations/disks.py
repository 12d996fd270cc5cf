"""Bugs in the recovery at a start, and in reads from the disk (2a to 2d)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from simulator.mutations.plant import mutation, patched
from tidelog_broker.storage.directory.folders import LogFolders
from tidelog_broker.storage.directory.opening import LogOpener


@mutation("2a", "restarts")
def an_unsynced_tail_is_trusted_after_a_restart() -> Iterator[None]:
    from simulator.disk import FakeFile
    from tidelog_broker.storage.log import recovery_scan

    original = recovery_scan.RecoveryScan._scan_file

    def trusting(self: Any, *arguments: Any) -> Any:
        with mock.patch.object(FakeFile, "datasync"):
            return original(self, *arguments)

    with patched((recovery_scan.RecoveryScan, "_scan_file", trusting)):
        yield


@mutation("2b")
def a_power_loss_is_taken_for_a_kill() -> Iterator[None]:
    from tidelog_broker.storage.directory.data_directory import DataDirectory

    begin = DataDirectory.__init__

    def mistaken(self: DataDirectory, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        self.same_boot = bool(self.meta.boot_id)

    with patched((DataDirectory, "__init__", mistaken)):
        yield


@mutation("2c", "bad disks")
def what_is_read_is_not_checked() -> Iterator[None]:
    with mock.patch("tidelog_broker.storage.segments.reading.verify_batch"):
        yield


@mutation("2c", "bad disks")
def a_log_that_is_gone_is_made_anew_at_once() -> Iterator[None]:
    opened = LogOpener._open

    def trusting(self: Any, want: Any, folder: str, ends: Any, same_boot: bool) -> Any:
        there = self.files.files.exists(folder)
        return opened(self, want, folder, ends, same_boot) if there else self.create(want)

    with patched((LogOpener, "_open", trusting)):
        yield


@mutation("2d", "bad disks")
def a_folder_that_the_image_does_not_know_is_removed() -> Iterator[None]:
    strays = LogFolders.strays

    def tidy(self: Any, claimed: set[str]) -> Iterator[str]:
        for path in list(strays(self, claimed)):
            self.files.files.remove_tree(path)
            yield path

    with patched((LogFolders, "strays", tidy)):
        yield


@mutation("2d", "bad disks")
def a_folder_is_believed_to_be_what_its_name_says() -> Iterator[None]:
    from tidelog_broker.storage.log import recovery

    with patched((recovery, "check_identity", lambda *arguments: None)):
        yield
