"""The identity of a data directory, and whether a broker may start on it (DESIGN 4, first paragraph).

``meta.json`` says which broker of which cluster the directory belongs to, the kernel's boot
id at the last start (2b), and how often a broker has started here. That counter is the leader
epoch of a broker without a quorum (R10). ``lock`` keeps a second broker out. After a failed
flush, ``FAILED`` keeps the next broker out until ``tidelog-broker recover``.

Blocking. Neighbours: `raft.log` below ``raft/``, `store` below ``streams/``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator

import msgspec
import structlog

from tidelog.errors import InvalidRequest
from tidelog.model import id_bytes, id_text
from tidelog.records.checksum import crc32c
from tidelog_broker.errors import MEND, DataDirectoryError, DirectoryDamaged
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.reserve import FULL, RESERVE_BYTES, Reserve
from tidelog_broker.storage.files.whole_files import read_file, replace_file, write_all

log = structlog.get_logger(__name__)

FORMAT_VERSION = 1
"""The format of everything below the data directory; a newer format is refused."""

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"

Unlock = Callable[[], None]


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``meta.json``."""

    format_version: int = FORMAT_VERSION
    cluster_id: str
    broker_id: int
    directory_id: str
    boot_id: str = ""
    """The kernel's boot id at the last start; empty: no broker has started here, or the id is not known."""
    start_count: int = 0


def kernel_boot_id() -> str:
    """The running kernel's boot id; empty if it cannot be read."""
    try:
        with open(BOOT_ID_PATH, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def lock_file(path: str) -> Unlock:
    """Locks `path` until this process ends or unlocks it.

    Raises `DataDirectoryError` if another process has the lock.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise DataDirectoryError(
            f"{os.path.dirname(path)} is in use by another broker (process {owner}); "
            "stop that one first, or choose another data directory"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return lambda: os.close(fd)


class DataDirectory:
    """A data directory that this process has locked; made by `open` and `open_to_recover`."""

    def __init__(
        self, files: Files, path: str, meta: Meta, boot_id: str, unlock: Unlock, reserve: Reserve
    ) -> None:
        self.files = files
        self.path = path
        self.meta = meta
        self.same_boot = bool(boot_id) and boot_id == meta.boot_id
        """The kernel has not booted since the last start, so its page cache is still complete (2b)."""
        self.reserve = reserve
        self._boot_id = boot_id
        self._unlock = unlock

    def __repr__(self) -> str:
        return (
            f"<DataDirectory {self.path} broker={self.meta.broker_id} starts={self.meta.start_count} "
            f"same_boot={self.same_boot}>"
        )

    @property
    def cluster_id(self) -> bytes:
        return id_bytes(self.meta.cluster_id)

    @property
    def broker_id(self) -> int:
        return self.meta.broker_id

    @property
    def directory_id(self) -> bytes:
        return id_bytes(self.meta.directory_id)

    @property
    def raft_folder(self) -> str:
        return raft_folder(self.path)

    @classmethod
    def format(
        cls,
        files: Files,
        path: str,
        *,
        cluster_id: bytes,
        broker_id: int,
        directory_id: bytes,
        make_log: Callable[[str], None],
    ) -> None:
        """Makes an empty or missing folder the data directory of a broker, once (M1).

        `make_log` writes the metadata log into the folder that it receives. ``meta.json`` gets
        its name last, so a crash in between leaves a folder that can be formatted again. The draft
        of ``meta.json`` is durable before there is a log; it tells this folder from a folder that
        lost its ``meta.json``. Raises `DirectoryDamaged` if ``meta.json`` was lost, and
        `DataDirectoryError`.
        """
        with _sentences(path, "format"):
            if files.exists(_meta_path(path)):
                meta = _read_meta(files, path)
                raise DataDirectoryError(
                    f"{path} is formatted already, for broker {meta.broker_id} of cluster {meta.cluster_id}"
                )
            _make_folder(files, path)
            left = _left_without_meta(files, path)
            if left:
                raise DirectoryDamaged(f"{path} {left}, so it is not formatted; {MEND}")
            meta = Meta(
                cluster_id=id_text(cluster_id), broker_id=broker_id, directory_id=id_text(directory_id)
            )
            replace_file(files, _draft_path(path), _pack_meta(meta))
            if files.exists(raft_folder(path)):
                files.remove_tree(raft_folder(path))
            make_log(raft_folder(path))
            # Names reach the disk in any order: meta.json must not come before the log.
            files.sync_dir(path)
            files.rename(_draft_path(path), _meta_path(path))
            files.sync_dir(path)

    @classmethod
    def is_formatted(cls, files: Files, path: str) -> bool:
        """Whether `path` is already the data directory of a broker.

        Raises `DirectoryDamaged` if it was a data directory and lost its ``meta.json``, and
        `DataDirectoryError`.
        """
        with _sentences(path, "read"):
            if files.exists(_meta_path(path)):
                return True
            if _left_without_meta(files, path):
                raise DirectoryDamaged(
                    f"{path} is no longer a data directory: its meta.json is missing; {MEND}"
                )
            return False

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        *,
        broker_id: int | None = None,
        reserve_bytes: int = RESERVE_BYTES,
        read_boot_id: Callable[[], str] = kernel_boot_id,
        lock: Callable[[str], Unlock] = lock_file,
    ) -> DataDirectory:
        """Locks and reads a formatted directory; `broker_id` None: the directory of any broker.

        Changes nothing but the lock; `record_start` writes. Raises `DataDirectoryError` if the
        directory is not formatted, is locked, belongs to another broker, has a newer format, or is
        marked FAILED.
        """
        directory = cls._open(files, path, broker_id, reserve_bytes, read_boot_id, lock)
        reason = directory.failure()
        if reason is not None:
            directory.close()
            raise DataDirectoryError(
                f"the last broker on {path} ended because its disk failed ({reason}); "
                f"check the disk, then run `tidelog-broker recover --data-dir {path}`"
            )
        return directory

    @classmethod
    def open_to_recover(
        cls, files: Files, path: str, *, lock: Callable[[str], Unlock] = lock_file
    ) -> DataDirectory:
        """Like `open`, with or without the FAILED mark.

        After a failed flush the page cache proves nothing, so `same_boot` is False.
        """
        return cls._open(files, path, None, 0, lambda: "", lock)

    @classmethod
    def _open(
        cls,
        files: Files,
        path: str,
        broker_id: int | None,
        reserve_bytes: int,
        read_boot_id: Callable[[], str],
        lock: Callable[[str], Unlock],
    ) -> DataDirectory:
        with _sentences(path, "open"):
            if not cls.is_formatted(files, path):
                raise DataDirectoryError(
                    f"{path} is not a data directory yet; run `tidelog-broker format --data-dir {path}` first"
                )
            unlock = lock(f"{path}/lock")
            try:
                meta = _read_meta(files, path)
                if broker_id is not None and broker_id != meta.broker_id:
                    raise DataDirectoryError(
                        f"{path} belongs to broker {meta.broker_id}, and this is broker {broker_id}; "
                        "start it with the id or the data directory that fits"
                    )
            except BaseException:
                unlock()
                raise
        reserve = Reserve(files, path, reserve_bytes)
        return cls(files, path, meta, read_boot_id(), unlock, reserve)

    def record_start(self) -> int:
        """Counts a start and saves this boot's id, durably; returns the counter (R10).

        Must be called when recovery is complete and on disk, and before the broker serves requests.
        If the boot id were written earlier, the next start would trust pages that the last crash lost.
        """
        meta = msgspec.structs.replace(
            self.meta, start_count=self.meta.start_count + 1, boot_id=self._boot_id
        )
        with _sentences(self.path, "write"):
            self.reserve.run(lambda: replace_file(self.files, _meta_path(self.path), _pack_meta(meta)))
        self.meta = meta
        self.reserve.restore()
        return meta.start_count

    def forget_boot(self) -> None:
        """Removes the boot id durably; the next start then trusts the page cache no more than after a boot.

        Must be called after a failed flush, before anything is cut (R6): pages that could not be
        written may be gone although the kernel did not boot again.
        """
        meta = msgspec.structs.replace(self.meta, boot_id="")
        with _sentences(self.path, "write"):
            self.reserve.run(lambda: replace_file(self.files, _meta_path(self.path), _pack_meta(meta)))
        self.meta, self.same_boot = meta, False

    def failure(self) -> str | None:
        """The reason in the FAILED mark; None: there is no mark."""
        path = f"{self.path}/FAILED"
        with _sentences(self.path, "read"):
            if not self.files.exists(path):
                return None
            return read_file(self.files, path).decode("utf-8", "replace").strip() or "no reason is known"

    def mark_failed(self, reason: str) -> None:
        """Writes the FAILED mark, so that no broker starts here; logs an error if the disk refuses it."""
        path = f"{self.path}/FAILED"

        def write() -> None:
            file = self.files.open(path, create=True)
            try:
                write_all(file, [f"{reason}\n".encode()], 0)
                file.datasync()
            finally:
                file.close()
            self.files.sync_dir(self.path)

        try:
            self.reserve.run(write)
        except OSError as error:
            log.error("the FAILED mark could not be made durable", path=path, error=str(error))

    def clear_failed(self) -> None:
        """Removes the FAILED mark durably, if there is a mark."""
        path = f"{self.path}/FAILED"
        with _sentences(self.path, "write"):
            if self.files.exists(path):
                self.files.remove(path)
                self.files.sync_dir(self.path)

    def close(self) -> None:
        """Unlocks the directory, so that another broker may start on it."""
        self._unlock()


def _make_folder(files: Files, path: str) -> None:
    """Makes a folder and its missing parents, durably."""
    missing, above = [], path
    while not files.exists(above):
        missing.append(above)
        above = os.path.dirname(above)
    files.make_dir(path)
    for folder in missing:
        files.sync_dir(os.path.dirname(folder))


def raft_folder(path: str) -> str:
    return f"{path}/raft"


def _meta_path(path: str) -> str:
    return f"{path}/meta.json"


def _draft_path(path: str) -> str:
    """The path of ``meta.json`` while the directory is formatted."""
    return f"{_meta_path(path)}.draft"


def _left_without_meta(files: Files, path: str) -> str:
    """Which data of a broker a directory without ``meta.json`` holds, for a message; empty: none.

    A metadata log beside the draft does not count: formatting was interrupted, and no broker has started
    here.
    """
    if files.exists(f"{path}/streams"):
        return "holds streams but no meta.json"
    if files.exists(raft_folder(path)) and not files.exists(_draft_path(path)):
        return "holds a metadata log but no meta.json"
    return ""


def _pack_meta(meta: Meta) -> bytes:
    """``meta.json`` as readable JSON with a checksum: rot that lowers the start counter must be noticed."""
    fields: dict[str, object] = msgspec.to_builtins(meta)
    return msgspec.json.format(msgspec.json.encode({**fields, "crc32c": _crc(fields)}), indent=2) + b"\n"


def _crc(fields: dict[str, object]) -> str:
    """The checksum over all fields, including fields of later versions."""
    return f"{crc32c(msgspec.json.encode(fields, order='sorted')):08x}"


def _read_meta(files: Files, path: str) -> Meta:
    data = read_file(files, _meta_path(path))
    damaged = DirectoryDamaged(f"{_meta_path(path)} is damaged; {MEND}")
    try:
        found = msgspec.json.decode(data, type=dict[str, object])
        said = found.pop("crc32c", None)
        intact = said == _crc(found)
        version = found.get("format_version")
        # If the version number rotted, the file is damaged: no later software could start on it either.
        if isinstance(version, int) and version > FORMAT_VERSION and (intact or said is None):
            raise DataDirectoryError(
                f"{path} was written in format {version}, this version knows none after {FORMAT_VERSION}; "
                "start the version of tidelog-broker that wrote it, or a later one"
            )
        meta = msgspec.convert(found, Meta)
        id_bytes(meta.cluster_id)
        id_bytes(meta.directory_id)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError, InvalidRequest):
        raise damaged from None
    if not intact:
        raise damaged
    return meta


@contextlib.contextmanager
def _sentences(path: str, what: str) -> Iterator[None]:
    """Turns an OSError into a `DataDirectoryError` whose message is one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            advice = "free some room on its volume"
        else:
            advice = "it must be a folder that this user may write to"
        raise DataDirectoryError(f"cannot {what} {path}: {error.strerror or error}; {advice}") from error
