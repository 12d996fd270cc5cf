"""One run of the decoder fuzzing, in a process of its own: `fuzz_run.py MODE [SCALE]`.

A crash of Arrow's native code kills this process and not the test run, a hang meets the
caller's deadline, and memory is measured from a clean start. Prints one JSON object with
the counts. Everything is enumerated or drawn from a fixed seed: a run repeats exactly.

The oracle for a batch with right CRCs that `validate_batch` accepts: it has as many
records as the header says, Arrow's other way to open it and the twin of `twin.py` read
the same records, and encoding those again gives a batch that reads the same.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from records import twin
from records.forge import Forgery, compressed, reseal, stored_plain
from records.samples import COLUMN_SETS, COMPRESSIONS, RECORDS, sample_batch
from tidelog.errors import InvalidRequest
from tidelog.records import (
    BatchHeader,
    BatchLimits,
    Columns,
    Compression,
    decode_batch,
    encode_batch,
    schema_of,
    validate_batch,
)

LIMITS = BatchLimits(batch_bytes_max=1 << 20, batch_decoded_bytes_max=1 << 20)

WORDS_32 = [0, 1, 3, 7, 0x7F, 0xFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]
WORDS_64 = [0, 1, 2, 4, 64, 1 << 20, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1]

counts: Counter[str] = Counter()


def check(batch: bytes, label: str) -> None:
    """Counts what becomes of one batch; raises when it is anything but refused or read alike by all."""
    counts["cases"] += 1
    try:
        header = validate_batch(batch, LIMITS, now_us=0)
    except InvalidRequest as error:
        counts[f"refused {error.code}"] += 1
        return
    counts["accepted"] += 1
    decoded = decode_batch(batch, header)
    assert decoded.num_rows == header.record_count, label
    records = twin.records_of(decoded)
    assert records == twin.read_records(batch), label
    assert records == twin.records_of(open_otherwise(batch, header)), label
    again = encode_batch(decoded, compression=Compression(header.compression))
    validate_batch(again, BatchLimits(), now_us=0)
    assert twin.read_records(again) == records, label


def open_otherwise(batch: bytes, header: BatchHeader) -> pa.RecordBatch:
    """Arrow's other reader: by stream where `decode_batch` opens a message, and the other way about."""
    schema = schema_of(Columns(header.columns))
    if header.compression:
        return pa.ipc.read_record_batch(pa.py_buffer(batch[80:]), schema)
    return pa.ipc.open_stream(schema.serialize().to_pybytes() + batch[80:]).read_next_batch()


def decode_unchecked(batch: bytes) -> None:
    """The decoder alone, behind no check: an error must be typed. (What it returns is not touched.)"""
    counts["decoded unchecked"] += 1
    try:
        decode_batch(batch)
    except InvalidRequest:
        counts["decoder refused"] += 1


def all_samples() -> Iterator[tuple[bytes, Columns, Compression]]:
    for present in COLUMN_SETS:
        for compression in COMPRESSIONS:
            yield sample_batch(present, compression, RECORDS[:2]), present, compression


def forged_samples(every: bool) -> Iterator[bytes]:
    """For the walks with mended CRCs: all column sets plain; compressed those with fewest and most."""
    for batch, present, compression in all_samples():
        if every or compression is Compression.NONE or present in (COLUMN_SETS[0], COLUMN_SETS[-1]):
            yield batch


# --- Modes


def truncate(_: int) -> None:
    """Every prefix of every sample: as it is, with a mended length, and cut at 8 bytes with mended CRC."""
    for batch, _present, _compression in all_samples():
        for end in range(len(batch)):
            cut = batch[:end]
            check(cut, f"cut at {end}")
            decode_unchecked(cut)
            if end >= 80:
                check(reseal(cut, length=end), f"cut at {end}, mended")
        assert counts["accepted"] == 0


def flip_alone(_: int) -> None:
    """Every bit of every sample, the CRC left as it was: never accepted."""
    for batch, _present, _compression in all_samples():
        for bit in range(8 * len(batch)):
            check(flipped(batch, bit), f"bit {bit}")
        assert counts["accepted"] == 0, "a flipped bit passed"


def flip_sealed(scale: int) -> None:
    """Every bit behind the CRC, and the CRC computed again: metadata walk and Arrow are what is left."""
    for batch in forged_samples(scale > 1):
        for bit in range(36 * 8, 8 * len(batch)):
            check(reseal(flipped(batch, bit)), f"bit {bit} of {batch.hex()}")


def decoder_alone(scale: int) -> None:
    """Every flip straight into the decoder; only here may Arrow try to allocate what it reads."""
    for batch in forged_samples(scale > 1):
        for bit in range(36 * 8, 8 * len(batch)):
            decode_unchecked(flipped(batch, bit))


def words(scale: int) -> None:
    """Numbers that software trips over, written over every aligned word of message and body."""
    for batch in forged_samples(scale > 1):
        for at in range(36, len(batch) - 3, 4):
            for word in WORDS_32:
                check_written(batch, at, struct.pack("<I", word))
            if at % 8 == 0 and at + 8 <= len(batch):
                for word in WORDS_64:
                    check_written(batch, at, struct.pack("<Q", word))


def check_written(batch: bytes, at: int, word: bytes) -> None:
    bad = reseal(batch[:at] + word + batch[at + len(word) :])
    check(bad, f"{word.hex()} at {at} of {batch.hex()}")


def noise(scale: int) -> None:
    """Some bytes overwritten, swapped, cut out or doubled, in several places at once."""
    dice = random.Random(20260101)
    samples = [batch for batch, _, _ in all_samples()]
    for _ in range(8_000 * scale):
        bad = bytearray(dice.choice(samples))
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(36, len(bad))
            match dice.randrange(4):
                case 0:
                    bad[at] = dice.randrange(256)
                case 1:
                    other = dice.randrange(36, len(bad))
                    bad[at], bad[other] = bad[other], bad[at]
                case 2:
                    at -= at % 8
                    del bad[max(80, at) : max(80, at) + 8]
                case 3:
                    at = max(80, at - at % 8)
                    bad[at:at] = bad[at : at + 8]
        sealed = reseal(bytes(bad))
        check(sealed, sealed.hex())


def shuffle_parts(scale: int) -> None:
    """Forgeries: nodes, buffers, places and codec drawn again, most of them almost right."""
    dice = random.Random(20260102)
    numbers = [0, 1, 2, 3, 8, 16, -1, -2, 1 << 31, 1 << 62]
    for _ in range(4_000 * scale):
        batch = sample_batch(dice.choice(COLUMN_SETS), dice.choice(COMPRESSIONS))
        forgery = Forgery.of(batch)
        plain = [twin.plain(stored, forgery.codec) for stored in forgery.buffers]
        for _ in range(dice.randint(1, 2)):
            forgery = changed(forgery, plain, dice, numbers)
        check(forgery.batch(), repr(forgery))


def changed(forgery: Forgery, honest: list[bytes], dice: random.Random, numbers: list[int]) -> Forgery:
    node, buffer = dice.randrange(len(forgery.nodes)), dice.randrange(len(forgery.buffers))
    length, nulls = forgery.nodes[node]
    match dice.randrange(8):
        case 0:
            return forgery.with_node(node, dice.choice([*numbers, length + 1]), nulls)
        case 1:
            return forgery.with_node(node, length, dice.choice([*numbers, nulls + 1]))
        case 2:
            at, size = forgery.honest_places()[buffer]
            return forgery.with_place(
                buffer, at + dice.choice([-8, 0, 4, 8]), size + dice.choice([-8, -1, 0, 1, 8])
            )
        case 3:
            return forgery.with_place(buffer, dice.choice(numbers), dice.choice(numbers))
        case 4:
            plain = bytes(dice.choice([0, 1, 0xFF]) for _ in range(dice.choice([0, 1, 8, 12, 16])))
            return forgery.with_buffer(buffer, compressed(plain, forgery.codec))
        case 5:
            return forgery.with_buffer(buffer, stored_plain(honest[buffer]))
        case 6:
            claim = dice.choice(numbers)
            return forgery.with_buffer(buffer, compressed(b"\x01" * 16, forgery.codec, claim=claim))
        case _:
            return forgery.but(rows=dice.choice(numbers), codec=dice.choice([None, 0, 1]))


def flipped(batch: bytes, bit: int) -> bytes:
    bad = bytearray(batch)
    bad[bit // 8] ^= 1 << bit % 8
    return bytes(bad)


def bombs(_: int) -> None:
    """Little input that claims or holds much. None of it may reach the memory pool."""
    for batch in bomb_batches():
        before = pa.default_memory_pool().max_memory()
        accepted = counts["accepted"]
        check(batch, "bomb")
        assert counts["accepted"] == accepted, "a bomb was accepted"
        assert pa.default_memory_pool().max_memory() - before < 4 << 20, "a bomb reached the pool"


def bomb_batches() -> Iterable[bytes]:
    zeros = bytes(300 << 20)
    packed = {
        codec: pa.compress(zeros, codec=name, asbytes=True) for codec, name in ((0, "lz4"), (1, "zstd"))
    }
    del zeros
    pa.default_memory_pool().release_unused()
    for compression in (Compression.LZ4, Compression.ZSTD):
        codec = int(compression) - 1
        forgery = Forgery.of(sample_batch(COLUMN_SETS[-1], compression))
        for index in range(len(forgery.buffers)):
            for claim in (300 << 20, 1 << 30, 1 << 40, (1 << 63) - 1, -2, -(1 << 63), 16, 0):
                yield forgery.with_buffer(index, struct.pack("<q", claim) + packed[codec][:500_000]).batch()
        # Each buffer alone is under the limit, together they are not.
        share = (1 << 20) // 4
        each = [compressed(bytes(share), codec) for _ in forgery.buffers]
        yield forgery.but(buffers=each).batch()


MODES = {
    mode.__name__: mode
    for mode in (truncate, flip_alone, flip_sealed, decoder_alone, words, noise, shuffle_parts, bombs)
}


def resident_peak_kib() -> int:
    """The most memory this program held. getrusage would count what its parent held when it was forked."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    mode, scale = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    MODES[mode](scale)
    counts["arrow peak KiB"] = pa.default_memory_pool().max_memory() >> 10
    counts["resident peak MiB"] = resident_peak_kib() >> 10
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()
