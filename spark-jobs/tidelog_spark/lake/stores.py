"""Where files are: a folder of this machine (or of a shared volume), or a prefix in an object store.

A `Folder` has the few operations that the lake needs, with what each promises after a crash. It is
picklable, so tasks on other machines open the same folder. Nothing here knows what is in the files.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from tidelog.errors import InvalidRequest

NAME_BYTES_MAX: Final = 255
"""What the file systems of Linux take as the name of a file or folder."""

PATH_BYTES_MAX: Final = 4_095
"""What Linux takes as a path."""

KEY_BYTES_MAX: Final = 1_024
"""What S3 takes as the key of an object."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """How to reach the object store of all `s3://` and `s3a://` paths.

    Credentials are not here: the AWS library reads them from the environment, or from the file that
    `AWS_SHARED_CREDENTIALS_FILE` names.
    """

    endpoint: str | None = None
    """``http://host:port``; None: Amazon's own."""
    region: str | None = None


class Folder(Protocol):
    """A folder and what is below it; all paths are relative to it, with ``/``."""

    @property
    def url(self) -> str:
        """As the user wrote it."""

    def too_long(self, path: str) -> str | None:
        """Why no file can be at the path, such as "a name of 300 bytes, and …"; None: a file can be there."""

    def write(self, path: str) -> Any:
        """A context manager with a binary file to write; complete and durable when it is left."""

    def create(self, path: str, content: bytes) -> bool:
        """Makes a small file at once, durably; False, and no change, if there is one."""

    def read(self, path: str) -> bytes | None:
        """The content; None: there is no such file."""

    def open(self, path: str) -> pa.NativeFile:
        """A file to read piece by piece; a context manager. Raises `FileNotFoundError`."""

    def move(self, source: str, target: str) -> None:
        """Makes `target` appear complete, and `source` disappear. Does nothing if `source` is gone."""

    def names(self, path: str) -> list[str]:
        """What is directly in the folder `path`, sorted; nothing if there is no such folder."""

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with everything in it, if it is there."""


def folder_at(url: str, store: ObjectStore) -> Folder:
    """The folder at a path, a `file:` URL or an `s3:` URL; raises `InvalidRequest` for any other."""
    scheme, rest = split_url(url)
    if scheme == "file":
        return LocalFolder(url, Path(rest).absolute())
    return BucketFolder(url, rest, store)


def split_url(url: str) -> tuple[str, str]:
    """("file", path) or ("s3", bucket/prefix); raises `InvalidRequest`."""
    if "://" not in url and not url.startswith("file:"):
        if not url:
            raise InvalidRequest("a path is empty; give a folder such as /lake/orders or s3://bucket/orders")
        return "file", url
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return "file", unquote(parts.path)
    if parts.scheme in ("s3", "s3a") and parts.netloc:
        return "s3", f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/")
    raise InvalidRequest(
        f"the path {url!r} is neither a folder of a file system nor s3://bucket/folder (or s3a://…)"
    )


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of a POSIX file system."""

    url: str
    root: Path

    def too_long(self, path: str) -> str | None:
        name = max(len(os.fsencode(part)) for part in path.split("/"))
        if name > NAME_BYTES_MAX:
            return f"a name of {name} bytes, and a file system takes {NAME_BYTES_MAX} at most"
        whole = len(os.fsencode(self.root / path))
        if whole > PATH_BYTES_MAX:
            return f"a path of {whole} bytes, and Linux takes {PATH_BYTES_MAX} at most"
        return None

    @contextmanager
    def write(self, path: str) -> Iterator[Any]:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def create(self, path: str, content: bytes) -> bool:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # A link, unlike a rename, never replaces what another process has made.
            os.link(draft, target)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        sync(target.parent)
        return True

    def read(self, path: str) -> bytes | None:
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pa.NativeFile:
        return pa.OSFile(str(self.root / path))

    def move(self, source: str, target: str) -> None:
        end = self.root / target
        end.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self.root / source).rename(end)
        except FileNotFoundError:
            return
        sync(end.parent)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / path))
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        target = self.root / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Makes the names in a folder durable."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@dataclass(frozen=True, slots=True)
class BucketFolder:
    """A prefix in a bucket. An object appears complete, and is durable when the store has answered."""

    url: str
    root: str
    """bucket/prefix"""
    store: ObjectStore

    def too_long(self, path: str) -> str | None:
        key = len(f"{self.root}/{path}".partition("/")[2].encode())
        if key > KEY_BYTES_MAX:
            return f"a key of {key} bytes, and an object store takes {KEY_BYTES_MAX} at most"
        return None

    @contextmanager
    def write(self, path: str) -> Iterator[Any]:
        # A failed attempt leaves the half of its file as an object, under a name that nothing counts.
        with self._files.open_output_stream(f"{self.root}/{path}") as stream:
            yield stream

    def create(self, path: str, content: bytes) -> bool:
        if self.read(path) is not None:
            return False
        with self.write(path) as file:
            file.write(content)
        return True

    def read(self, path: str) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self.root}/{path}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pa.NativeFile:
        return self._files.open_input_file(f"{self.root}/{path}")

    def move(self, source: str, target: str) -> None:
        if self._files.get_file_info(f"{self.root}/{source}").type == fs.FileType.NotFound:
            return
        self._files.copy_file(f"{self.root}/{source}", f"{self.root}/{target}")
        self._files.delete_file(f"{self.root}/{source}")

    def names(self, path: str) -> list[str]:
        selector = fs.FileSelector(f"{self.root}/{path}".rstrip("/"), allow_not_found=True)
        return sorted(found.base_name for found in self._files.get_file_info(selector))

    def remove(self, path: str) -> None:
        found = self._files.get_file_info(f"{self.root}/{path}")
        if found.type == fs.FileType.File:
            self._files.delete_file(found.path)
        elif found.type == fs.FileType.Directory:
            self._files.delete_dir(found.path)

    @property
    def _files(self) -> fs.S3FileSystem:
        return _s3(self.store)


_connected: dict[ObjectStore, fs.S3FileSystem] = {}


def _s3(store: ObjectStore) -> fs.S3FileSystem:
    """This process's connection to the store."""
    known = _connected.get(store)
    if known is None:
        settings: dict[str, Any] = {}
        if store.endpoint is not None:
            parts = urlsplit(store.endpoint)
            settings |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
        if store.region is not None:
            settings["region"] = store.region
        known = _connected[store] = fs.S3FileSystem(**settings)
    return known
