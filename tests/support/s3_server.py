"""MinIO as a process: a real object store with one bucket."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from pyarrow import fs

from support.hosts import HOST, free_port

SCRIPT = Path(__file__).parents[2] / "tools/s3/binaries.sh"
KEY, SECRET = "tidelog-test", "tidelog-test-secret"
BUCKET = "lake"
START_SECONDS_MAX = 60.0


def program() -> Path | None:
    """MinIO, if `tools/s3/binaries.sh build` has built it."""
    found = subprocess.run([str(SCRIPT), "where"], capture_output=True, text=True)
    return Path(found.stdout.strip()) / "minio" if found.returncode == 0 else None


class S3Server:
    """A context manager. Its data is in `folder`."""

    def __init__(self, folder: Path, minio: Path) -> None:
        self._folder, self._minio = folder, minio
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"http://{HOST}:{free_port()}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the AWS libraries read."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def __enter__(self) -> S3Server:
        address = self.endpoint.removeprefix("http://")
        settings = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
        with (self._folder / "minio.log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(self._minio), "server", "--address", address, str(self._folder / "data")],
                env={**os.environ, **settings}, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._ready():
            assert self._process.poll() is None, (self._folder / "minio.log").read_text()
            assert time.monotonic() < deadline, (self._folder / "minio.log").read_text()
            time.sleep(0.05)
        self.files().create_dir(BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def files(self) -> fs.S3FileSystem:
        """The store, as another program sees it."""
        return fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=self.endpoint, allow_bucket_creation=True
        )

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/minio/health/live", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
