"""The stream to which a job writes: it exists, and the job does not read it."""

from __future__ import annotations

from tidelog import blocking
from tidelog.errors import InvalidRequest


def check_target(servers: str, stream: str, key: str, pattern: str | None) -> int:
    """The number of partitions of the stream.

    `key`: of the configuration, for the sentence. `pattern`: of the streams that the job reads. Raises
    `StreamNotFound`, and `InvalidRequest` if the pattern matches the stream.
    """
    with blocking.connect(servers.split(",")) as log:
        if pattern is not None and any(found.name == stream for found in log.list_streams(pattern)):
            raise InvalidRequest(
                f"{key} is {stream!r}, which source.pattern matches, so the job would read what it writes; "
                f"give the stream another name, or a narrower pattern"
            )
        return len(log.describe_stream(stream).partitions)
