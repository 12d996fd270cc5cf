"""Failures that only a broker has: they end it or keep it from starting.

What a client can see is in `tidelog.errors`.
"""

from __future__ import annotations


class BrokerError(Exception):
    """The broker cannot start or go on; the message says what to do."""


class DataDirectoryError(BrokerError):
    """The data directory is missing, foreign, locked, of another version or marked FAILED."""


class StorageFailure(BrokerError):
    """A write could not be undone or a flush failed: what is on disk is unknown (DESIGN 4.3)."""
