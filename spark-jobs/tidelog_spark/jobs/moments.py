"""Tells a bad moment, which passes, from what only people can mend.

A failure comes from our own code, from PyIceberg, from a file system, or as a page of text from Java that has
the traceback of a Python process in it. Only the kinds that are known to pass are retried: a retry of
anything else would hide the reason for minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tidelog import errors
from tidelog.errors import TidelogError

_PASSING_CLASSES: Final = frozenset(
    {
        # PyIceberg: another writer was first, or the answer was lost (the commit looks before it repeats).
        "CommitFailedException",
        "CommitStateUnknownException",
        "ServiceUnavailableError",
        "ServerError",
        # requests, urllib3 and the standard library
        "ConnectionError",
        "ConnectTimeout",
        "ReadTimeout",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "BrokenPipeError",
        "TimeoutError",
        # Java and Hadoop
        "ConnectException",
        "SocketTimeoutException",
        "SocketException",
        "NoRouteToHostException",
        "UnknownHostException",
        "SdkClientException",
        "AWSServiceIOException",
        "AWSServiceThrottledException",
        "AWSStatus500Exception",
        "ConnectTimeoutException",
    }
)

_PASSING_TEXTS: Final = tuple(
    re.compile(text, re.IGNORECASE)
    for text in (
        # The planner of a streaming source has ten seconds to start, a constant of Spark.
        r"python (?:worker|planner|streaming)[^\n]*(?:failed|timed? ?out|did not)[^\n]*connect",
        r"failed to connect back",
        r"Accept timed out",
        r"STREAMING_PYTHON_RUNNER_INITIALIZATION_FAILURE",
        r"ExecutorLostFailure",
        r"Could not find [^\n]* executors",
        r"Python worker exited unexpectedly",
        r"AWS Error (?:NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING)",
        r"database is locked",
    )
)

_CLASS: Final = re.compile(r"^(?:Caused by: |\w+: )?(?:[\w]+\.)*(\w+)(?::|$)", re.MULTILINE)


def passes(error: BaseException) -> bool:
    """Whether the same work may succeed a little later, unchanged."""
    ours = tidelog_class(error)
    if ours is not None:
        return ours.retriable
    for link in _chain(error):
        if type(link).__name__ in _PASSING_CLASSES or isinstance(link, ConnectionError | TimeoutError):
            return True
        text = str(link)
        if any(pattern.search(text) for pattern in _PASSING_TEXTS):
            return True
        if _PASSING_CLASSES.intersection(_CLASS.findall(text)):
            return True
    return False


def tidelog_class(error: BaseException) -> type[TidelogError] | None:
    """The class of our error, also if only its name came through Java's text."""
    for link in _chain(error):
        if isinstance(link, TidelogError):
            return type(link)
    named = re.findall(r"^tidelog\.errors\.(\w+): ", str(error), re.MULTILINE)
    found = getattr(errors, named[-1], None) if named else None
    return found if isinstance(found, type) and issubclass(found, TidelogError) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
