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
"""Of the driver: three for its kills, the others for brokers that were away for too long."""
WAIT_SECONDS_MAX = 600.0


class Copy:
    """The cluster, the streams and the driver, which is started again when it has ended."""

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

    def keep_running(self) -> None:
        """Starts the driver if it does not run."""
        if self._driver is not None and self._driver.poll() is None:
            return
        assert "IndeterminateReplay" not in self.output, self.output
        self._starts += 1
        assert self._starts <= STARTS_MAX, self.output
        self._driver = self._start("follow")

    def finish(self) -> None:
        """Copies what is left."""
        self.kill_driver()
        self._driver = self._start("end")
        assert self._driver.wait(WAIT_SECONDS_MAX) == 0, self.output

    def _start(self, until: str) -> subprocess.Popen[bytes]:
        servers = ",".join(self._trio.addresses)
        checkpoint = str(self._folder / "checkpoint")
        command = [sys.executable, str(DRIVER), servers, "source", "target", checkpoint]
        (self._folder / "tmp").mkdir(exist_ok=True)
        with (self._folder / "driver.log").open("ab") as output:
            return subprocess.Popen(
                [*command, str(MICRO_BATCH_RECORDS), until],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self._folder / "tmp")},
            )

    def kill(self, victim: str, chance: random.Random) -> bool:
        """Kills the victim; False if it does not run now."""
        match victim:
            case "driver":
                return self.kill_driver()
            case "worker":
                return self._kill_worker(chance)
            case "leader":
                return self._kill_leader(chance)
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

    def _kill_leader(self, chance: random.Random) -> bool:
        """Of a partition of the target; it comes back at once."""
        leader = None
        with suppress(TidelogError):
            described = self._log.describe_stream("target")
            leader = chance.choice([one.leader for one in described.partitions])
        if leader is None:
            return False
        self._trio.brokers[leader].kill()
        self._trio.brokers[leader].start()
        return True

    def _kill_worker(self, chance: random.Random) -> bool:
        """A process that runs tasks: a child of the daemon that makes them."""
        assert self._driver is not None
        daemons, parents = set(), {}
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._driver.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "pyspark.daemon" in process.cmdline():
                        daemons.add(process.pid)
                        parents[process.pid] = process.ppid()
        workers = sorted(pid for pid, parent in parents.items() if parent in daemons)
        if not workers:
            return False
        os.kill(chance.choice(workers), signal.SIGKILL)
        return True


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


def _send(log: blocking.Client, first: int, end: int) -> None:
    """The records of these offsets to each partition of the source."""
    with log.producer("source") as producer:
        for at in range(first, end, 100):
            values = [b"%0*d" % (VALUE_BYTES, number) for number in range(at, min(at + 100, end))]
            for partition in range(PARTITIONS):
                rows = pa.record_batch({"value": pa.array(values, pa.binary())})
                producer.send_batch(rows, partition=partition)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_copied_once_whatever_is_killed(seed: int, tmp_path: Path) -> None:
    assert RECORDS * VALUE_BYTES > 100 * BYTES_MAX, "a sink then writes more than 100 record batches"
    chance = random.Random(seed)
    portion = RECORDS // PARTITIONS // len(VICTIMS)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    with _copy(tmp_path) as (copy, log):
        for number, victim in enumerate(chance.sample(VICTIMS, len(VICTIMS))):
            # Each victim dies while a portion of the records is on its way.
            _send(log, number * portion, (number + 1) * portion)
            moment = (number + chance.random() / 2) * portion * PARTITIONS
            while copy.progress() < moment or not copy.kill(victim, chance):
                assert time.monotonic() < deadline, copy.output
                copy.keep_running()
                time.sleep(0.005)
        copy.finish()
        found = Counter[bytes | None]()
        for record in log.reader("target", follow=False):
            assert record.key is not None
            _, offset = record.key.split(b":")
            assert record.value == b"%0*d" % (VALUE_BYTES, int(offset))
            found[record.key] += 1
    assert found == Counter(
        b"%d:%d" % (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(portion * len(VICTIMS))
    )
