"""What holds for all tests: their order on several processes, no deadline on a busy machine, no event
loop that nobody closes, a Ctrl-C that works, and processes in Java and Go that start fast."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("tidelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidelog")

# pytest-asyncio asks for the current event loop before the first asynchronous test, and asyncio makes one
# for whoever asks first; nobody would close it. Once told that there is none, asyncio makes none.
asyncio.set_event_loop(None)

# A script that runs the tests in its background, or nohup, has them ignore signals, and so has every program
# they start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Spark's processes live for seconds: compiling their code well costs more than it saves. What Spark reads
# from the environment reaches those of the demo and of jobs too.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# So do the programs in Go: a control plane, `kubectl`, Helm, NATS servers. They collect garbage less often.
os.environ.setdefault("GOGC", "400")

SPARK = "tests/spark/"
PROGRAMS = "tests/spark/programs/"
ADMISSION = "tests/operator/admission/"


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A file's tests run in one process. All that need Spark's session run in one, those that start Spark in
    processes of their own run in another, and those that share a control plane in a third."""

    def _split_scope(self, nodeid: str) -> str:
        for folder in (PROGRAMS, SPARK, ADMISSION):
            if nodeid.startswith(folder):
                return folder
        return nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Asked by pytest-xdist."""
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, or one process would end long after the other."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    # What was collected stays: the tests' own garbage is looked for without it.
    gc.collect()
    gc.freeze()
    items.sort(key=lambda item: (not item.nodeid.startswith(SPARK), item.path not in slow))


@pytest.fixture(autouse=True)
def loggers_are_not_bound_to_what_a_test_captures() -> Iterator[None]:
    """A command that sets up its log in this process binds all loggers to the standard error of its test.

    That is closed when the next test logs. Run such a command in a process of its own.
    """
    yield
    assert not structlog.get_config()["cache_logger_on_first_use"]
