"""Identifiers of streams, clusters, incarnations and directories: the 16 bytes of a UUID (RFC 9562).

These functions convert to and from the usual form with hyphens.
"""

from __future__ import annotations

from tidelog.errors import InvalidRequest


def id_text(identifier: bytes) -> str:
    """The text form of 16 bytes: ``xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx``."""
    digits = identifier.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_bytes(text: str) -> bytes:
    """The 16 bytes of 32 hexadecimal digits, with or without hyphens; raises `InvalidRequest`."""
    digits = text.replace("-", "")
    try:
        if len(digits) == 32:
            return bytes.fromhex(digits)
    except ValueError:
        pass
    raise InvalidRequest(f"{text[:50]!r} is not an identifier; an identifier has 32 hexadecimal digits")
