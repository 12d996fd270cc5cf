"""The record batch: one format from producer to disk to follower to consumer to Spark.

What belongs here: the conversion between bytes and Arrow, its checks, and the fields of the
header. What does not: files, sockets, clocks, retries. DESIGN section 3, rules F1–F7;
``docs/storage-format.md`` describes the bytes for other languages.

- `layout`    the 80-byte header
- `checksum`  CRC-32C
- `schema`    the columns that a batch can have
- `message`   the Arrow IPC metadata, read without trusting it
- `decoded_size` the size of a batch after decompression
- `plain`     encodes a few plain records without Arrow
- `codec`     encodes columns as a batch, and decodes them
- `validation` the checks of a leader before it writes (F1)
- `limits`    the bounds
- `projecting` applies a reader's projection to a batch: `subject_filter` matches, `slicing` moves columns
- `projected` what a broker makes of a batch for such a reader
"""

from tidelog.records.codec import decode_batch, decode_body, encode_batch, stamp, to_columns
from tidelog.records.decoded_size import allocated_bytes
from tidelog.records.layout import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    BatchHeader,
    Compression,
    header_crc,
    split_batches,
    verify_batch,
)
from tidelog.records.limits import BatchLimits
from tidelog.records.schema import Columns, schema_of
from tidelog.records.validation import BatchClaims, check_contents, read_claims, validate_batch

__all__ = [
    "HEADER_BYTES",
    "NO_PRODUCER_ID",
    "BatchClaims",
    "BatchHeader",
    "BatchLimits",
    "Columns",
    "Compression",
    "allocated_bytes",
    "check_contents",
    "decode_batch",
    "decode_body",
    "encode_batch",
    "header_crc",
    "read_claims",
    "schema_of",
    "split_batches",
    "stamp",
    "to_columns",
    "validate_batch",
    "verify_batch",
]
