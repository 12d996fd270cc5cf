"""Identifiers (stream, cluster, incarnation, directory): 16 bytes in RFC 9562 order.

These functions convert to and from the usual form with hyphens.
"""

from __future__ import annotations

from tidelog.errors import InvalidRequest


def id_text(identifier: bytes) -> str:
    """``xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`` for 16 bytes."""
    digits = identifier.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_bytes(text: str) -> bytes:
    """16 bytes for 32 hexadecimal digits, with hyphens or without; raises `InvalidRequest`."""
    digits = text.replace("-", "")
    try:
        if len(digits) == 32:
            return bytes.fromhex(digits)
    except ValueError:
        pass
    raise InvalidRequest(f"{text[:50]!r} is not an identifier; it has 32 hexadecimal digits")
