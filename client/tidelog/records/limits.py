"""The bounds of a record batch (F3). Each has a name, so that an error can name it."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_BYTES_HARD_MAX = 64 << 20
"""No configuration allows a larger batch. Bytes."""

ENVELOPE_BYTES_MAX = 1 << 20
"""The most bytes of a message besides its batch."""

DECODED_BYTES_HARD_MAX = (1 << 31) - 1
"""No configuration allows a batch that decodes to more: offsets into a column are 32-bit. Bytes."""

RECORDS_PER_BATCH_MAX = 1 << 20
"""The most records of one batch, whatever their size."""

BATCH_OVERHEAD_BYTES = 2048
"""Header, Arrow metadata and the padding of every buffer take at most this much of a batch. Bytes."""

SEGMENT_BYTES_HARD_MAX = (1 << 32) - 1
"""Positions in a segment are 32-bit."""

HEADERS_PER_RECORD_MAX = 1024
"""The most headers of one record, where records are built one by one."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The bounds of the batches of one stream."""

    batch_bytes_max: int = 1 << 20
    """Bytes of a whole batch, header included."""
    batch_decoded_bytes_max: int = 64 << 20
    """Bytes of the uncompressed buffers; checked before decompression."""

    def __post_init__(self) -> None:
        if not 0 < self.batch_bytes_max <= BATCH_BYTES_HARD_MAX:
            raise ValueError(
                f"batch_bytes_max is {self.batch_bytes_max}; it must lie in 1–{BATCH_BYTES_HARD_MAX} bytes"
            )
        if not 0 < self.batch_decoded_bytes_max <= DECODED_BYTES_HARD_MAX:
            raise ValueError(
                f"batch_decoded_bytes_max is {self.batch_decoded_bytes_max}; it must lie in "
                f"1–{DECODED_BYTES_HARD_MAX} bytes"
            )
