"""A copy from stream to stream while its driver, its tasks and the brokers are killed at random.

Each record of the source stands in the target once, told by its offset, which is its key there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from support.trio import Trio
from tidelog import blocking
from tidelog._sinking.cutting import BYTES_MAX
from tidelog.errors import TidelogError

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

DRIVER = Path(__file__).with_name("copy_driver.py")
PARTITIONS = 2
RECORDS = 12_000
VALUE_BYTES = 6_000
MICRO_BATCH_RECORDS = 3_000
SEEDS = [1]
VICTIMS = ["driver", "worker", "leader", "brokers", "driver", "worker", "leader"]
STARTS_MAX = 12
"""Of the driver: two for its kills, the others for brokers that were away for too long."""
WAIT_SECONDS_MAX = 600.0


class Copy:
    """The cluster, the streams and the driver, which is started again when it ends with an error."""

    def __init__(self, trio: Trio, log: blocking.Client, folder: Path) -> None:
        self._trio, self._log, self._folder = trio, log, folder
        self._driver: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._seen = 0

    @property
    def output(self) -> str:
        file = self._folder / "driver.log"
        return file.read_text() if file.exists() else ""

    def progress(self) -> int:
        """Records in the target, as far as brokers could be asked."""
        with suppress(TidelogError):
            self._seen = sum(end for _, end in self._log.offsets("target").values())
        return self._seen

    def ended(self) -> bool:
        """Whether the copy is complete; starts the driver if it does not run."""
        if self._driver is not None and self._driver.poll() == 0:
            return True
        if self._driver is None or self._driver.poll() is not None:
            assert "INDETERMINATE_REPLAY" not in self.output, self.output
            assert "IndeterminateReplay" not in self.output, self.output
            self._starts += 1
            assert self._starts <= STARTS_MAX, self.output
            self._driver = self._start()
        return False

    def _start(self) -> subprocess.Popen[bytes]:
        servers = ",".join(self._trio.addresses)
        checkpoint = str(self._folder / "checkpoint")
        command = [sys.executable, str(DRIVER), servers, "source", "target", checkpoint]
        (self._folder / "tmp").mkdir(exist_ok=True)
        with (self._folder / "driver.log").open("ab") as output:
            return subprocess.Popen(
                [*command, str(MICRO_BATCH_RECORDS)], stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, "TMPDIR": str(self._folder / "tmp")},
            )  # fmt: skip

    def kill(self, victim: str, chance: random.Random) -> bool:
        """Kills the victim; False if it does not run now."""
        match victim:
            case "driver":
                return self.kill_driver()
            case "worker":
                return self._kill_worker(chance)
            case "leader":
                described = self._log.describe_stream("target")
                leader = chance.choice([one.leader for one in described.partitions])
                if leader is None:
                    return False
                self._trio.brokers[leader].kill()
                self._trio.brokers[leader].start()
                return True
            case _:
                self._trio.kill()
                self._trio.start_again()
                return True

    def kill_driver(self) -> bool:
        """Its processes, in Python and Java, all at once."""
        if self._driver is None or self._driver.poll() is not None:
            return False
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        return True

    def _kill_worker(self, chance: random.Random) -> bool:
        assert self._driver is not None
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(self._driver.pid).children(recursive=True)
            daemons = {one.pid for one in found if "pyspark.daemon" in one.cmdline()}
            workers = sorted(one.pid for one in found if one.pid in daemons and one.ppid() in daemons)
            if workers:
                os.kill(chance.choice(workers), signal.SIGKILL)
                return True
        return False


@contextmanager
def _copy(folder: Path) -> Iterator[tuple[Copy, blocking.Client]]:
    trio = Trio(folder)
    try:
        trio.start()
        with blocking.connect(trio.addresses) as log:
            for name, partitions in (("source", PARTITIONS), ("target", 3)):
                log.create_stream(name, partitions=partitions, replication_factor=3, durability="page-cache")
            copy = Copy(trio, log, folder)
            try:
                yield copy, log
            finally:
                copy.kill_driver()
    finally:
        trio.stop()


def _fill(log: blocking.Client) -> None:
    with log.producer("source") as producer:
        for first in range(0, RECORDS // PARTITIONS, 100):
            values = [b"%0*d" % (VALUE_BYTES, number) for number in range(first, first + 100)]
            for partition in range(PARTITIONS):
                rows = pa.record_batch({"value": pa.array(values, pa.binary())})
                producer.send_batch(rows, partition=partition)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_copied_once_whatever_is_killed(seed: int, tmp_path: Path) -> None:
    assert RECORDS * VALUE_BYTES > 100 * BYTES_MAX, "a sink then writes more than 100 record batches"
    chance = random.Random(seed)
    victims = chance.sample(VICTIMS, len(VICTIMS))
    moments = sorted(chance.sample(range(1, RECORDS * 9 // 10), len(victims)))
    with _copy(tmp_path) as (copy, log):
        _fill(log)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not copy.ended():
            assert time.monotonic() < deadline, copy.output
            if victims and copy.progress() >= moments[0] and copy.kill(victims[0], chance):
                victims.pop(0)
                moments.pop(0)
            time.sleep(0.005)
        assert not victims, f"the copy ended before {victims} were killed"
        found = Counter[bytes | None]()
        for record in log.reader("target", follow=False):
            assert record.key is not None
            _, offset = record.key.split(b":")
            assert record.value == b"%0*d" % (VALUE_BYTES, int(offset))
            found[record.key] += 1
    assert found == Counter(
        b"%d:%d" % (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(RECORDS // PARTITIONS)
    )
